// SPDX-License-Identifier: BSD-3-Clause
// Says whose code a frame is: the user's, or of what waits for other ranks.
#pragma once

#include <string>

#include "launcher/diagnosis/stacks/stack.hpp"

namespace ddp::launcher {

// Returns whether a Python frame is neither of the standard library nor of an installed package.
bool is_users(const StackFrame& frame);
// Returns whether a native frame is of the program itself or a library of its own, not of the system or libddp.
bool is_programs(const StackFrame& frame);

// Returns whether a frame is of torch.distributed or of what serves it, or of libddp.
bool is_distributed(const StackFrame& frame);

// Returns the innermost frame of a thread that is the user's; null if there is none.
const StackFrame* users_frame(const ThreadStack& thread);
// Returns the distributed call that the user's code waits in, such as all_reduce; null if it is in none.
const StackFrame* distributed_call(const ThreadStack& thread);

// Returns "train.py:88"; the name of the file alone where no line is known.
std::string place_of(const StackFrame& frame);

}  // namespace ddp::launcher
