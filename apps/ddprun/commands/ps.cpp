// SPDX-License-Identifier: BSD-3-Clause
#include "apps/ddprun/commands/ps.hpp"

#include <algorithm>
#include <array>
#include <cstdio>

#include "apps/ddprun/commands/agents.hpp"
#include "apps/ddprun/options/usage_error.hpp"
#include "launcher/text/json_text.hpp"

namespace ddp::apps {
namespace {

using Row = std::array<std::string, 8>;
const Row kHeadings = {"JOB", "NODE", "PID", "TIME", "ROUND", "WORKERS", "STEP", "PROGRAM"};

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
  std::vector<Row> rows = {kHeadings};
  const AgentAnswers answers = ask_all_agents("ps");
  for (const auto& [state, socket] : answers.all) {
    if (as_json) puts(state.c_str());
    if (!as_json) rows.push_back(row_of(*launcher::json_members(state)));
  }
  if (!as_json) print_table(rows);
  return answers.is_complete ? 0 : 1;
}

}  // namespace ddp::apps
