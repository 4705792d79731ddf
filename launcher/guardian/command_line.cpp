// SPDX-License-Identifier: BSD-3-Clause
#include "launcher/guardian/command_line.hpp"

#include <cerrno>
#include <cstring>
#include <fstream>
#include <iterator>

namespace ddp::launcher {

void rename_command_line(const char* name) {
  std::ifstream file("/proc/self/cmdline", std::ios::binary);
  const auto length = std::distance(std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>());
  if (length <= 0) return;
  char* command_line = program_invocation_name;  // argv[0]; the other words follow it
  memset(command_line, 0, static_cast<std::size_t>(length));
  strncpy(command_line, name, static_cast<std::size_t>(length) - 1);
}

}  // namespace ddp::launcher
