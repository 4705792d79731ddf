// SPDX-License-Identifier: BSD-3-Clause
#include "apps/ddprun/commands/agents.hpp"

#include <dirent.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>

#include "apps/ddprun/options/usage_error.hpp"
#include "launcher/local/agent_socket.hpp"
#include "rendezvous/agent_client.hpp"
#include "rendezvous/base/error.hpp"

namespace ddp::apps {
namespace {

constexpr char kAskState[] = R"({"version":1,"ask":"state"})";
static_assert(rendezvous::kAgentSocketVersion == 1);

// Returns the sockets in the folder, in a fixed order; none if there is no folder.
std::vector<std::string> sockets_in(const std::string& folder) {
  std::vector<std::string> paths;
  DIR* const open = opendir(folder.c_str());
  if (open == nullptr) return paths;
  while (const dirent* entry = readdir(open)) {
    if (entry->d_name[0] != '.') paths.push_back(folder + "/" + entry->d_name);
  }
  closedir(open);
  std::sort(paths.begin(), paths.end());
  return paths;
}

std::string list_of(const std::vector<FoundJob>& jobs) {
  std::string text;
  for (const FoundJob& job : jobs)
    text += (text.empty() ? "" : ", ") + job.view.job + " (pid " + std::to_string(job.view.pid) + ")";
  return text;
}

}  // namespace

std::string ask_state(const std::string& socket) { return rendezvous::ask_agent(socket, kAskState).text; }

AgentAnswers ask_all_agents(const std::string& command) {
  AgentAnswers answers;
  const std::string folder = launcher::agent_socket_folder();
  if (access(folder.c_str(), F_OK) == 0) launcher::make_agent_socket_folder();  // whose is it?
  for (const std::string& path : sockets_in(folder)) {
    try {
      const std::string answer = ask_state(path);
      if (launcher::agent_view(answer)) {
        answers.all.push_back({answer, path});
        continue;
      }
      fprintf(stderr, "ddprun %s: %s: %s\n", command.c_str(), path.c_str(), answer.c_str());
    } catch (const rendezvous::Error& error) {
      if (error.code() == rendezvous::ErrorCode::PeerLost) {  // every process of its ddprun was killed at once
        unlink(path.c_str());
        continue;
      }
      fprintf(stderr, "ddprun %s: %s\n", command.c_str(), error.what());
    }
    answers.is_complete = false;
  }
  return answers;
}

FoundJob find_job(const std::string& command, const std::string& name) {
  std::vector<FoundJob> all, meant;
  for (const AgentAnswers::Answer& answer : ask_all_agents(command).all) {
    all.push_back({*launcher::agent_view(answer.state), answer.socket});
  }
  for (const FoundJob& job : all) {
    if (job.view.job.starts_with(name) || std::to_string(job.view.pid) == name) meant.push_back(job);
  }
  if (all.empty()) throw UsageError(command + ": this user has no job on this machine");
  if (meant.empty()) throw UsageError(command + ": no job is called " + name + "; there are " + list_of(all));
  if (meant.size() > 1) {
    throw UsageError(command + ": which job? Give the beginning of its id, or its pid, of " + list_of(meant));
  }
  return meant.front();
}

}  // namespace ddp::apps
