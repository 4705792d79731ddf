// SPDX-License-Identifier: BSD-3-Clause
// Shared by the tests of the failure matrix: the size of a row, and what /proc says of a process in
// the meantime.
#pragma once

#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <sstream>
#include <stdexcept>
#include <string>
#include <vector>

#include "tests/integration/ddprun.hpp"
#include "tests/integration/failures/measured.hpp"
#include "tests/support/hosts.hpp"
#include "tests/support/ports.hpp"

namespace ddp::testing {

// True under scripts/stress/failure_matrix, which runs every row in all its sizes and takes minutes.
inline bool full_matrix() { return getenv("DDPRUN_TEST_FULL_MATRIX") != nullptr; }
inline std::vector<int> worker_counts() { return full_matrix() ? std::vector<int>{1, 8} : std::vector<int>{3}; }
inline std::string workers(int count) { return "--nproc_per_node=" + std::to_string(count); }

// Returns what follows each `before` on its line: after "ready ", the pids of the workers.
inline std::vector<std::string> all_after(const std::string& text, const std::string& before) {
  std::vector<std::string> found;
  for (auto at = text.find(before); at != std::string::npos; at = text.find(before, at + 1)) {
    const auto begin = at + before.size();
    found.push_back(text.substr(begin, text.find('\n', begin) - begin));
  }
  return found;
}

inline std::vector<pid_t> pids(const std::string& out, const std::string& before = "ready ") {
  std::vector<pid_t> found;
  for (const std::string& number : all_after(out, before)) found.push_back(std::stoi(number));
  return found;
}

inline pid_t worker_of_rank(pid_t agent, int rank) {
  const std::string wanted = std::string(1, '\0') + "RANK=" + std::to_string(rank) + std::string(1, '\0');
  for (const pid_t child : children_of(agent)) {
    // Any thread will do: the main thread may have ended.
    for (const auto& thread : std::filesystem::directory_iterator("/proc/" + std::to_string(child) + "/task")) {
      if (count(read_file(thread.path() / "environ"), wanted) == 1) return child;
    }
  }
  throw std::runtime_error("there is no worker of rank " + std::to_string(rank));
}

// Returns the value of a line of /proc/PID/status in kB, such as "VmRSS" or "VmHWM".
inline long kilobytes(pid_t pid, const std::string& what) {
  std::istringstream status(read_file("/proc/" + std::to_string(pid) + "/status"));
  for (std::string line; std::getline(status, line);) {
    if (line.rfind(what + ":", 0) == 0) return std::stol(line.substr(what.size() + 1));
  }
  throw std::runtime_error("process " + std::to_string(pid) + " has no " + what);
}

// Returns the processor time that all its threads have used so far.
inline std::chrono::milliseconds cpu_time(pid_t pid) {
  const std::string stat = read_file("/proc/" + std::to_string(pid) + "/stat");
  std::istringstream fields(stat.substr(std::min(stat.size(), stat.rfind(')') + 2)));
  std::string skipped;
  for (int i = 3; i < 14; ++i) fields >> skipped;
  long user = 0, system = 0;
  fields >> user >> system;
  return std::chrono::milliseconds((user + system) * 1000 / sysconf(_SC_CLK_TCK));
}

// Makes ddprun and its workers load tests/fixtures/fake_libc.c before libc.
inline Process::Options with_fake_libc(const std::string& name, const std::string& value) {
  skip_with_sanitizer("a preloaded library would come before the sanitizer's");
  Process::Options options;
  options.environment = {{"LD_PRELOAD", FAKE_LIBC}, {"DDPRUN_CGROUP", "off"}, {name, value}};
  return options;
}

}  // namespace ddp::testing
