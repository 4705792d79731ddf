// SPDX-License-Identifier: BSD-3-Clause
// The stacks of workers as JSON: for `ddprun stacks --json`, for the log, and from the process that takes them to the
// agent.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "launcher/stacks/stack.hpp"

namespace ddp::launcher {

// Returns [{"rank":0,"pid":4711,"missing":[],"threads":[{"id":4711,"name":"MainThread",
// "kernel":"asleep in futex_wait_queue","python":[{"function":"f","file":"/a.py","line":3}],"native":[...]}]}]
std::string stacks_json(const std::vector<WorkerStacks>& workers);

// Returns what stacks_json() wrote; nothing if the text is something else.
std::optional<std::vector<WorkerStacks>> stacks_from_json(std::string_view json);

}  // namespace ddp::launcher
