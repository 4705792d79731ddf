// SPDX-License-Identifier: BSD-3-Clause
// How much of what is known of failed workers goes over the link: all that a report needs, and never more than a frame
// holds, whatever workers write.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "rendezvous/link/messages.hpp"

namespace ddp::rendezvous {

// Of one worker's message, and of its error file as it is.
inline constexpr std::size_t kMaxMessageBytes = 16 << 10;
// Of all text about the failures of one node; doubled by JSON at worst, since agents send printable text only.
inline constexpr std::size_t kMaxFailuresBytes = 1 << 20;

// "rank 5 on node b exited with code 1: ValueError: loss is NaN"
std::string describe_with_message(const WorkerFailure& failure);

// At most about `bytes` of a text of many lines: its beginning, a line that says how much is left out, and its end,
// where tracebacks tell most.
std::string shortened(const std::string& text, std::size_t bytes);

// By an agent, of its own workers: those that failed by themselves keep what is known of them, in the order they
// failed, the others what there is room for.
void keep_within_link(std::vector<WorkerFailure>& failures);

// By the coordinator, to `nodes` of them: those that failed by themselves first; enough for a line or a few of each.
std::vector<WorkerFailure> worth_telling(std::vector<WorkerFailure> failures, std::size_t nodes);

}  // namespace ddp::rendezvous
