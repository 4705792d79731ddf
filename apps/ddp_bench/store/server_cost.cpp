// SPDX-License-Identifier: BSD-3-Clause
#include "apps/ddp_bench/store/server_cost.hpp"

#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <sstream>
#include <stdexcept>
#include <string>

namespace ddp::bench {

ServerCost cost_of(pid_t pid) {
  const std::string process = "/proc/" + std::to_string(pid);
  ServerCost cost;
  std::error_code error;
  for (const auto& thread : std::filesystem::directory_iterator(process + "/task", error)) {
    double nanoseconds = 0;
    std::ifstream(thread.path() / "schedstat") >> nanoseconds;
    cost.cpu_us += nanoseconds / 1000;
  }
  if (error) throw std::runtime_error("no process " + std::to_string(pid));

  std::string stat;
  std::getline(std::ifstream(process + "/stat"), stat);
  std::istringstream fields(stat.substr(stat.rfind(')') + 1));  // the name before it may contain anything
  std::string skipped;
  for (int i = 0; i < 11; ++i) fields >> skipped;
  fields >> cost.user_ticks >> cost.system_ticks;

  std::size_t all = 0, resident = 0;
  std::ifstream(process + "/statm") >> all >> resident;
  cost.resident = resident * static_cast<std::size_t>(sysconf(_SC_PAGESIZE));
  return cost;
}

}  // namespace ddp::bench
