// SPDX-License-Identifier: BSD-3-Clause
// The memory of the flight recorder, where this process's agent reads it too: it is asked for once, when the first
// group is made.
#pragma once

#include <cstddef>
#include <functional>
#include <optional>
#include <string_view>

#include "rendezvous/operation_records.hpp"
#include "runtime/collective/operation.hpp"

namespace ddp::runtime {

struct SharedPlace {
  rendezvous::RecordedGroup* group = nullptr;
  rendezvous::OperationRecord* records = nullptr;
  std::size_t capacity = 0;  // how many records there are
};

// Returns a place that no group has had yet, for the last `kept` operations or more, and in a job that is traced for
// kMostRecords; nothing without an agent, or if no such place is left. If the agent refuses, a line on stderr says why.
std::optional<SharedPlace> take_shared_place(std::size_t kept);
// Tells the agent, if there is one, that a group got no place.
void note_group_left_out();
// Gives a place to a group. `clear` empties its records, while the agent does not read them.
void move_in(rendezvous::RecordedGroup& place, std::string_view name, GroupPlace group,
             const std::function<void()>& clear);

}  // namespace ddp::runtime
