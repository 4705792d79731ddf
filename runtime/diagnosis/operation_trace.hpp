// SPDX-License-Identifier: BSD-3-Clause
// The memory of the flight recorder, where this process's agent reads it too (ddprun --trace): it is asked for once,
// when the first group is made.
#pragma once

#include <functional>
#include <optional>
#include <string_view>

#include "rendezvous/traced_operations.hpp"
#include "runtime/collective/operation.hpp"

namespace ddp::runtime {

struct TracedPlace {
  rendezvous::TracedGroup* group = nullptr;
  rendezvous::OperationRecord* records = nullptr;  // kTracedOperations of them
};

// Returns a place that no group has had yet; nothing if this process is not traced, or if none is left. Where it should
// be traced and cannot, a line on stderr says why.
std::optional<TracedPlace> take_traced_place();
// Tells the agent, if this process is traced, that a group got no place.
void note_untraced_group();
// Gives a place to a group. `clear` empties its records, while the agent does not read them.
void move_in(rendezvous::TracedGroup& place, std::string_view name, GroupPlace group,
             const std::function<void()>& clear);

}  // namespace ddp::runtime
