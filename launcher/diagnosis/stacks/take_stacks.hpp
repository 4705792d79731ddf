// SPDX-License-Identifier: BSD-3-Clause
// Takes the stacks of processes from outside: of Python by py-spy, which stops nobody, of native code by elfutils'
// eu-stack, which stops a process for some milliseconds. Where one of them is missing or not allowed, what the kernel
// says of each thread is left.
//
// A tool that is killed while it looks at a process leaves that stopped. So whatever is stopped afterwards and was not
// before gets SIGCONT.
#pragma once

#include <chrono>
#include <string>
#include <utility>
#include <vector>

#include "launcher/diagnosis/stacks/stack.hpp"

namespace ddp::launcher {

struct StackTools {
  std::string py_spy;  // path; empty: there is none
  std::string eu_stack;
};

// Says that a tool is missing, and how to get it.
inline constexpr char kGetPySpy[] = "no py-spy: `pip install py-spy` shows Python's lines";
inline constexpr char kGetEuStack[] = "no eu-stack: Debian's package elfutils shows native frames";

// Looks for the tools: py-spy beside this Python first, since it may be in the job's environment, then both in PATH,
// then py-spy beside ddprun, where an installer of the wheel has put it. The first word of a process's command line, if
// that is an absolute path, is its Python, unless it is another user's process. Beside a program only a py-spy counts
// that nobody but this user and root can replace.
StackTools find_stack_tools(const std::string& python);
StackTools find_stack_tools(pid_t worker);

// Takes the stacks of workers, given as rank and pid, side by side. Blocks until all are there, at most `within`. With
// little time, what takes long is left out: the native frames of Python programs, lines of native frames, and processes
// that workers have started.
std::vector<WorkerStacks> take_stacks(const std::vector<std::pair<int, pid_t>>& workers, const StackTools& tools,
                                      std::chrono::milliseconds within);

}  // namespace ddp::launcher
