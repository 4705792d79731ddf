// SPDX-License-Identifier: BSD-3-Clause
// Finds out from the kernel's log whether the memory of a worker's GPU has failed. NVIDIA's driver writes such a
// failure there as an Xid with the pid of the process that it hit, and the worker may say nothing of it, or only that
// some call of CUDA failed.
//
// Used on the loop's thread. Reading the log and drawing conclusions are separate, for the tests.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <string>
#include <string_view>

namespace ddp::launcher {

// Returns what a record of /dev/kmsg, "4,9,98765432,-;NVRM: Xid (PCI:0000:3b:00): 48, pid=4242, ...", says of the
// memory of this process's GPU; empty if it is about something else, or from before `since`.
std::string gpu_memory_fault_in(std::string_view record, pid_t pid, std::int64_t since);

class GpuFaultWatch {
 public:
  GpuFaultWatch();

  // Begins a round: what was written before is not of this one.
  void start();
  // Returns what has happened to the memory of this worker's GPU, in words; empty if nothing is known.
  std::string explain(pid_t pid) const;

 private:
  bool reads_kernel_log_;
  std::int64_t round_started_ = 0;
};

}  // namespace ddp::launcher
