// SPDX-License-Identifier: BSD-3-Clause
// What the NVIDIA GPUs of this node are doing, by NVML. A driver may take long to answer or hang, so that it is asked
// on a thread of its own, and only while somebody looks: each look gets what the one before has asked for.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

namespace ddp::launcher {

struct GpuUse {
  int index = 0;                 // as NVML counts
  int percent = -1;              // share of the time in which something ran on it; -1: not known
  std::int64_t memory = 0;       // used bytes
  std::int64_t capacity = 0;     // all its memory, in bytes
  std::vector<pid_t> pids = {};  // processes that compute on it; in a container the driver may show other pids
};

// Asks NVML now; none without a driver.
std::vector<GpuUse> gpu_use();

class GpuSampler {
 public:
  // Returns the newest sample, if it is not old, and begins to take another one.
  std::vector<GpuUse> newest();

 private:
  struct Sample;
  std::shared_ptr<Sample> sample_;  // shared with the thread, which may outlive this
};

}  // namespace ddp::launcher
