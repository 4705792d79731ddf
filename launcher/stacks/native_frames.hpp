// SPDX-License-Identifier: BSD-3-Clause
// Reads what `eu-stack -m` and `eu-stack -m -s` print.
#pragma once

#include <map>
#include <string_view>
#include <vector>

#include "launcher/stacks/stack.hpp"

namespace ddp::launcher {

// Returns the native frames of a process's threads, innermost first, by thread id.
std::map<pid_t, std::vector<StackFrame>> native_threads(std::string_view eu_stack_text);

// Takes away the interpreter's frames and what is outside of them: leaves what the innermost Python frame has called.
void keep_what_python_called(std::vector<StackFrame>& frames);

}  // namespace ddp::launcher
