// SPDX-License-Identifier: BSD-3-Clause
// The memory in which a worker of libddp records its calls (rendezvous/operation_records.hpp). The agent holds it, so
// that it outlives the worker, and reads it when somebody asks.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "launcher/diagnosis/stacks/stack.hpp"
#include "rendezvous/base/descriptor.hpp"

namespace ddp::launcher {

struct CallSummary {
  std::string now_in;                              // "all_reduce #412 of group world": the oldest call under way
  std::int64_t milliseconds = 0;                   // since it was called
  std::optional<int> in_collectives_percent = {};  // share of the time that the records cover; nothing: none yet
};

class CallMemory {
 public:
  // Throws rendezvous::Error if the system provides no such memory.
  CallMemory();

  // For the worker.
  const rendezvous::Descriptor& descriptor() const { return memory_; }
  // Returns what the worker has noted of each group that it has now. What makes no sense is left out.
  std::vector<GroupCalls> read() const;
  // Returns what is shown of the worker while it runs. Of ranks that wait for each other, the slowest one spends the
  // smallest share of its time in collectives, since it comes last to each.
  CallSummary summary() const;
  // Returns the last 256 operations of each group in the format of libddp's flight recorder, or less; empty without
  // any. Times are by CLOCK_MONOTONIC.
  std::string flight_record(int rank) const;

 private:
  rendezvous::Descriptor memory_;
};

}  // namespace ddp::launcher
