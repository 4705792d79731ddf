// SPDX-License-Identifier: BSD-3-Clause
#include "apps/ddprun/ps.hpp"

#include <dirent.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdio>
#include <map>
#include <optional>

#include "apps/ddprun/options/usage_error.hpp"
#include "launcher/local/agent_socket.hpp"
#include "launcher/text/json_text.hpp"
#include "rendezvous/agent_client.hpp"
#include "rendezvous/base/error.hpp"

namespace ddp::apps {
namespace {

constexpr char kAskState[] = R"({"version":1,"ask":"state"})";
static_assert(rendezvous::kAgentSocketVersion == 1);

using Row = std::array<std::string, 8>;
const Row kHeadings = {"JOB", "NODE", "PID", "TIME", "ROUND", "WORKERS", "STEP", "PROGRAM"};

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

std::string shown(const launcher::JsonMembers& members, const char* name) {
  const auto found = members.find(name);
  if (found == members.end()) return "-";
  if (const auto* text = std::get_if<std::string>(&found->second)) return *text;
  if (const auto* number = std::get_if<std::int64_t>(&found->second)) return std::to_string(*number);
  return "-";
}

std::int64_t number_of(const launcher::JsonMembers& members, const char* name) {
  const auto found = members.find(name);
  const auto* number = found != members.end() ? std::get_if<std::int64_t>(&found->second) : nullptr;
  return number != nullptr ? *number : 0;
}

// Returns "1:02:03".
std::string clock_time(std::int64_t seconds) {
  std::array<char, 40> text;
  snprintf(text.data(), text.size(), "%lld:%02d:%02d", static_cast<long long>(seconds / 3600),
           static_cast<int>(seconds / 60 % 60), static_cast<int>(seconds % 60));
  return text.data();
}

Row row_of(const launcher::JsonMembers& job) {
  const std::string nodes = shown(job, "nodes") == "0" ? "waits" : shown(job, "node_rank") + "/" + shown(job, "nodes");
  const std::string program = shown(job, "program");
  return {shown(job, "job"),   nodes,
          shown(job, "pid"),   clock_time(number_of(job, "seconds")),
          shown(job, "round"), shown(job, "world_size") + " " + shown(job, "phase"),
          shown(job, "step"),  program.substr(program.rfind('/') + 1)};
}

void print_table(const std::vector<Row>& rows) {
  Row::size_type widths[kHeadings.size()] = {};
  for (const Row& row : rows) {
    for (std::size_t i = 0; i < row.size(); ++i) widths[i] = std::max(widths[i], row[i].size());
  }
  for (const Row& row : rows) {
    std::string line;
    for (std::size_t i = 0; i < row.size(); ++i) line += row[i] + std::string(widths[i] - row[i].size() + 2, ' ');
    line.erase(line.find_last_not_of(' ') + 1);
    puts(line.c_str());
  }
}

}  // namespace

int list_jobs(const std::vector<std::string>& arguments) {
  const bool as_json = arguments == std::vector<std::string>{"--json"};
  if (!arguments.empty() && !as_json) throw SyntaxError("ddprun ps: the only option is --json");
  const std::string folder = launcher::agent_socket_folder();
  std::vector<Row> rows = {kHeadings};
  bool all_answered = true;
  if (access(folder.c_str(), F_OK) == 0) launcher::make_agent_socket_folder();  // whose is it?
  for (const std::string& path : sockets_in(folder)) {
    try {
      const std::string answer = rendezvous::ask_agent(path, kAskState).text;
      const auto job = launcher::json_members(answer);
      if (as_json) puts(answer.c_str());
      if (!as_json && job && job->count("error") == 0) rows.push_back(row_of(*job));
      if (job && job->count("error") == 0) continue;
      fprintf(stderr, "ddprun ps: %s: %s\n", path.c_str(), job ? shown(*job, "error").c_str() : answer.c_str());
    } catch (const rendezvous::Error& error) {
      if (error.code() == rendezvous::ErrorCode::PeerLost) {  // every process of its ddprun was killed at once
        unlink(path.c_str());
        continue;
      }
      fprintf(stderr, "ddprun ps: %s\n", error.what());
    }
    all_answered = false;
  }
  if (!as_json) print_table(rows);
  return all_answered ? 0 : 1;
}

}  // namespace ddp::apps
