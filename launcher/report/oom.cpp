// SPDX-License-Identifier: BSD-3-Clause
#include "launcher/report/oom.hpp"

#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <fstream>
#include <iterator>
#include <sstream>
#include <vector>

#include "launcher/report/kernel_log.hpp"
#include "rendezvous/base/text.hpp"

namespace ddp::launcher {

namespace {

std::string content_of(const std::string& path) {
  std::ifstream file(path);
  return {std::istreambuf_iterator<char>(file), {}};
}

std::vector<std::string> words_of(const std::string& line) {
  std::istringstream stream(line);
  return {std::istream_iterator<std::string>(stream), {}};
}

bool has_item(const std::string& list, const std::string& item) {
  return ("," + list + ",").find("," + item + ",") != std::string::npos;
}

bool exists(const std::string& path) { return access(path.c_str(), R_OK) == 0; }

std::string in_mib(const std::string& bytes) {
  std::int64_t number = 0;
  const auto [end, error] = std::from_chars(bytes.data(), bytes.data() + bytes.size(), number);
  constexpr std::int64_t kNoLimit = std::int64_t{1} << 62;  // cgroup v1 writes a number close to 2^63
  if (error != std::errc() || number >= kNoLimit) return "";
  return std::to_string(number >> 20) + " MiB";
}

}  // namespace

bool explain_one(const std::optional<std::int64_t>& counted, std::optional<std::int64_t>& explained) {
  if (!counted || !explained || *counted <= *explained) return false;
  ++*explained;
  return true;
}

std::optional<std::int64_t> counter_in(std::string_view text, std::string_view name) {
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t end = std::min(text.find('\n', at), text.size());
    const std::string_view line = text.substr(at, end - at);
    at = end + 1;
    if (line.size() <= name.size() || !line.starts_with(name) || line[name.size()] != ' ') continue;
    if (const auto number = rendezvous::parse_number<std::int64_t>(line.substr(name.size() + 1))) return number;
  }
  return std::nullopt;
}

bool names_as_killed(std::string_view record, pid_t pid, std::int64_t since) {
  constexpr std::string_view kKilled = "Killed process ";
  const auto at = record.find(kKilled);
  if (at == std::string_view::npos) return false;
  const std::string_view rest = record.substr(at + kKilled.size());
  const std::string number = std::to_string(pid);
  const bool is_about = rest.starts_with(number) && rest.size() > number.size() &&
                        (rest[number.size()] == ' ' || rest[number.size()] == ',');
  return is_about && is_record_since(record, since);
}

std::string memory_cgroup(const std::string& cgroups, const std::string& mounts) {
  // The path within the hierarchy: "4:memory:/jobs/7" in v1, "0::/jobs/7" in v2.
  std::optional<std::string> v1, v2;
  std::istringstream lines(cgroups);
  for (std::string line; std::getline(lines, line);) {
    const auto first = line.find(':'), second = line.find(':', first + 1);
    if (second == std::string::npos) continue;
    const std::string controllers = line.substr(first + 1, second - first - 1);
    if (controllers.empty()) v2 = line.substr(second + 1);
    if (has_item(controllers, "memory")) v1 = line.substr(second + 1);
  }
  const auto& path = v1 ? v1 : v2;
  if (!path) return "";
  // Where the hierarchy is mounted: "31 0 0:32 ROOT POINT options ... - cgroup source superoptions".
  std::istringstream mount_lines(mounts);
  for (std::string line; std::getline(mount_lines, line);) {
    const auto dash = line.find(" - ");
    const std::vector<std::string> before = words_of(line.substr(0, dash));
    const std::vector<std::string> after = dash == std::string::npos ? before : words_of(line.substr(dash + 3));
    if (before.size() < 5 || after.size() < 3) continue;
    const bool right = v1 ? after[0] == "cgroup" && has_item(after[2], "memory") : after[0] == "cgroup2";
    if (!right) continue;
    const std::string& root = before[3];
    // A container may see its own cgroup as the mount's root.
    std::string below = *path;
    if (root != "/" && below.starts_with(root)) below.erase(0, root.size());
    if (below == "/") below.clear();
    return before[4] + below;
  }
  return "";
}

OomWatch::OomWatch()
    : cgroup_(memory_cgroup(content_of("/proc/self/cgroup"), content_of("/proc/self/mountinfo"))),
      reads_kernel_log_(kernel_log_has_our_pids()) {}

void OomWatch::start() {
  explained_ = count();
  round_started_ = kernel_log_now();
}

OomCounts OomWatch::count() const {
  OomCounts counts;
  if (!cgroup_.empty()) {
    counts.cgroup = counter_in(content_of(cgroup_ + "/memory.events"), "oom_kill");
    if (!counts.cgroup) counts.cgroup = counter_in(content_of(cgroup_ + "/memory.oom_control"), "oom_kill");
  }
  counts.machine = counter_in(content_of("/proc/vmstat"), "oom_kill");
  return counts;
}

std::string OomWatch::explain(pid_t pid) {
  // Count the death against each counter, whichever of them is named.
  const OomCounts now = count();
  const bool machine = explain_one(now.machine, explained_.machine);
  const bool cgroup = explain_one(now.cgroup, explained_.cgroup);
  // The cgroup's limit helps to choose a larger one.
  std::string limit;
  if (cgroup) {
    for (const char* file : {"/memory.max", "/memory.limit_in_bytes"}) {
      if (limit.empty() && exists(cgroup_ + file)) limit = in_mib(content_of(cgroup_ + file));
    }
    if (!limit.empty()) limit = " (its limit is " + limit + ")";
  }
  // The log may be long, so it is read only if the counter says that there is something in it.
  const auto names = [&](std::string_view record) { return names_as_killed(record, pid, round_started_); };
  if (machine && reads_kernel_log_ && search_kernel_log(names)) {
    return "the kernel's log says that it killed process " + std::to_string(pid) + limit;
  }
  if (cgroup) return "the kernel killed a process of this job's cgroup for lack of memory" + limit;
  if (machine) return "perhaps: the kernel killed a process on this machine for lack of memory meanwhile";
  return "";
}

}  // namespace ddp::launcher
