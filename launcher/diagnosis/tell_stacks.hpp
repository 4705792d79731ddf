// SPDX-License-Identifier: BSD-3-Clause
// What the log says of workers' stacks, and of workers that make no progress.
#pragma once

#include <string>
#include <vector>

#include "launcher/diagnosis/hang_watch.hpp"
#include "launcher/diagnosis/stacks/stack.hpp"
#include "launcher/output/log.hpp"

namespace ddp::launcher {

// Returns the lines of describe_stacks(), each after a line break and four spaces.
std::string indented_stacks(const std::vector<WorkerStacks>& stacks);

// Tells what workers did that are stopped now and started again. All of it is in the JSON line.
void tell_stacks(const std::vector<WorkerStacks>& stacks, Log& log);

// Tells that workers make no progress, who is late, and what each of them does.
void tell_hang(const Hang& hang, Log& log);

}  // namespace ddp::launcher
