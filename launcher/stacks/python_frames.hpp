// SPDX-License-Identifier: BSD-3-Clause
// Reads what `py-spy dump --json` prints.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "launcher/stacks/stack.hpp"

namespace ddp::launcher {

struct PythonThread {
  std::string name;
  std::vector<StackFrame> frames;  // innermost first
};

// Returns the Python threads of a process by the kernel's thread id; nothing if the text is not what py-spy prints.
std::optional<std::map<pid_t, PythonThread>> python_threads(std::string_view py_spy_json);

}  // namespace ddp::launcher
