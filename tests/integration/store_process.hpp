// SPDX-License-Identifier: BSD-3-Clause
// A ddp_store that runs as a process of its own, for tests of it from outside.
#pragma once

#include <cstdint>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include "tests/support/process.hpp"

namespace ddp::testing {

struct StoreProcess {
  explicit StoreProcess(std::vector<std::string> options = {}) : process(command(std::move(options))) {
    process.wait_for("\n");
    port = static_cast<std::uint16_t>(std::stoi(process.out().substr(process.out().find(':') + 1)));
  }
  static std::vector<std::string> command(std::vector<std::string> options) {
    options.insert(options.begin(), {DDP_STORE_BINARY, "--port", "0", "--bind", "127.0.0.1"});
    return options;
  }
  std::size_t resident() const { return status("VmRSS"); }
  std::size_t peak() const { return status("VmHWM"); }  // the most that was resident so far

  Process process;
  std::uint16_t port = 0;

 private:
  // Returns a line of /proc/PID/status, in bytes.
  std::size_t status(const std::string& name) const {
    std::istringstream lines(read_file("/proc/" + std::to_string(process.pid()) + "/status"));
    for (std::string line; std::getline(lines, line);) {
      if (line.starts_with(name + ":")) return std::stoul(line.substr(name.size() + 1)) * 1024;
    }
    return 0;
  }
};

}  // namespace ddp::testing
