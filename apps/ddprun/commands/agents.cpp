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

using launcher::AgentView;

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

std::string list_of(const std::vector<AgentView>& jobs) {
  std::string text;
  for (const AgentView& job : jobs)
    text += (text.empty() ? "" : ", ") + job.job + " (pid " + std::to_string(job.pid) + ")";
  return text;
}

}  // namespace

AgentAnswers ask_all_agents(const std::string& command) {
  AgentAnswers answers;
  const std::string folder = launcher::agent_socket_folder();
  if (access(folder.c_str(), F_OK) == 0) launcher::make_agent_socket_folder();  // whose is it?
  for (const std::string& path : sockets_in(folder)) {
    try {
      const std::string answer = rendezvous::ask_agent(path, kAskState).text;
      if (launcher::agent_view(answer)) {
        answers.states.push_back(answer);
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

AgentView find_job(const std::string& command, const std::string& name) {
  std::vector<AgentView> all, meant;
  for (const std::string& state : ask_all_agents(command).states) all.push_back(*launcher::agent_view(state));
  for (const AgentView& job : all) {
    if (job.job.starts_with(name) || std::to_string(job.pid) == name) meant.push_back(job);
  }
  if (all.empty()) throw UsageError(command + ": this user has no job on this machine");
  if (meant.empty()) throw UsageError(command + ": no job is called " + name + "; there are " + list_of(all));
  if (meant.size() > 1) {
    throw UsageError(command + ": which job? Give the beginning of its id, or its pid, of " + list_of(meant));
  }
  return meant.front();
}

}  // namespace ddp::apps
