// SPDX-License-Identifier: BSD-3-Clause
// The memory in which a worker of libddp records its calls (rendezvous/operation_records.hpp). The agent holds it, so
// that it outlives the worker, and reads it when somebody asks.
#pragma once

#include <vector>

#include "launcher/stacks/stack.hpp"
#include "rendezvous/base/descriptor.hpp"

namespace ddp::launcher {

class CallMemory {
 public:
  // Throws rendezvous::Error if the system provides no such memory.
  CallMemory();

  // For the worker.
  const rendezvous::Descriptor& descriptor() const { return memory_; }
  // Returns what the worker has noted of each group that it has now. What makes no sense is left out.
  std::vector<GroupCalls> read() const;

 private:
  rendezvous::Descriptor memory_;
};

}  // namespace ddp::launcher
