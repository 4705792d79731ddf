// SPDX-License-Identifier: BSD-3-Clause
// The stacks and calls of workers as JSON: for `ddprun stacks --json`, for the log, and from the process that takes
// them to the agent.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "launcher/diagnosis/stacks/stack.hpp"

namespace ddp::launcher {

// Returns [{"rank":0,"pid":4711,"missing":[],"threads":[{"id":4711,"name":"MainThread",
// "kernel":"asleep in futex_wait_queue","python":[{"function":"f","file":"/a.py","line":3}],"native":[...]}]}]
// A worker of libddp also has "calls", as calls_json() writes them, and one with processes of its own may have
// "children": [{"pid":4720,"name":"pt_data_worker","threads":[...]}].
std::string stacks_json(const std::vector<WorkerStacks>& workers);
// Returns [{"group":"world","rank":0,"size":4,"collectives":412,"newest":"all_reduce","under_way":[
// {"operation":"all_reduce","sequence":412,"bytes":4000,"milliseconds":31000}],"operations":420}]; a message has a
// "peer", too.
std::string calls_json(const std::vector<GroupCalls>& groups);

// Return what these wrote; nothing if the text is something else.
std::optional<std::vector<WorkerStacks>> stacks_from_json(std::string_view json);
std::optional<std::vector<GroupCalls>> calls_from_json(std::string_view json);

}  // namespace ddp::launcher
