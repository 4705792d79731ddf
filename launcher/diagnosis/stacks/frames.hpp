// SPDX-License-Identifier: BSD-3-Clause
// Reads the stacks that `eu-stack -m`, `eu-stack -m -s` and `py-spy dump --json` print.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "launcher/diagnosis/stacks/stack.hpp"

namespace ddp::launcher {

// Returns the native frames of a process's threads, innermost first, by thread id.
std::map<pid_t, std::vector<StackFrame>> native_threads(std::string_view eu_stack_text);

// Takes away the interpreter's frames and what is outside of them: leaves what the innermost Python frame has called.
void keep_what_python_called(std::vector<StackFrame>& frames);

struct PythonThread {
  std::string name;
  std::vector<StackFrame> frames;  // innermost first
};

// Returns the Python threads of a process by the kernel's thread id; nothing if the text is not what py-spy prints.
std::optional<std::map<pid_t, PythonThread>> python_threads(std::string_view py_spy_json);

}  // namespace ddp::launcher
