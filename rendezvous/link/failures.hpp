// SPDX-License-Identifier: BSD-3-Clause
// Limits what goes over the link about failed workers: all that a report needs, and never more than a frame holds,
// whatever workers write.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "rendezvous/link/messages.hpp"

namespace ddp::rendezvous {

// Limit of one worker's message, and of its error file.
inline constexpr std::size_t kMaxMessageBytes = 16 << 10;
// Limit of all text about the failures of one node. JSON at most doubles it, since agents send printable text only.
inline constexpr std::size_t kMaxFailuresBytes = 1 << 20;

// Returns one line: "rank 5 on node b exited with code 1: ValueError: loss is NaN".
std::string describe_with_message(const WorkerFailure& failure);

// Returns how much was written about a failure, and removes it.
std::size_t text_bytes(const WorkerFailure& failure);
void forget_text(WorkerFailure& failure);

// Returns at most about `bytes` of a text of many lines: its beginning, a line that says how much is left out, and its
// end, where tracebacks say most.
std::string shortened(const std::string& text, std::size_t bytes);

// Shortens the failures of an agent's own workers to kMaxFailuresBytes. Workers that failed by themselves keep their
// text first, in the order of their failures; workers that ddprun stopped keep what there is room for.
void keep_within_link(std::vector<WorkerFailure>& failures);

// Returns what the coordinator sends to each of `nodes` nodes: failures of workers that failed by themselves first,
// with enough text for a few lines each.
std::vector<WorkerFailure> worth_telling(std::vector<WorkerFailure> failures, std::size_t nodes);

}  // namespace ddp::rendezvous
