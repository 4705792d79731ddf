// SPDX-License-Identifier: BSD-3-Clause
// ncclCommAbort on a thread of its own, since NCCL may return late or never. One waits for all aborts of the process
// before NCCL makes a communicator, and before the process ends, so that none of them meets NCCL or the driver in
// their own end.
//
// Threads: any.
#pragma once

#include <chrono>
#include <condition_variable>
#include <memory>
#include <mutex>

#include "collectives/gpu/cuda_device.hpp"
#include "collectives/gpu/nccl_api.hpp"

namespace ddp::collectives {

class NcclAbort {
 public:
  using Clock = std::chrono::steady_clock;

  static constexpr std::chrono::seconds kPatience{5};

  // Begins to abort the communicator, which must have no thread inside.
  static std::shared_ptr<NcclAbort> begin(const NcclApi& api, const CudaDevice& device, NcclCommunicator* comm);
  // Waits until NCCL has returned from every abort, for each at most until kPatience after its begin.
  static void wait_for_all();

  // Returns whether NCCL has returned, waiting for that until `until`, at most until kPatience after the begin.
  bool wait(Clock::time_point until = Clock::time_point::max());
  bool is_late() const { return Clock::now() >= latest_; }

 private:
  void set_returned();

  const Clock::time_point latest_ = Clock::now() + kPatience;
  std::mutex mutex_;
  std::condition_variable changed_;
  bool returned_ = false;
};

}  // namespace ddp::collectives
