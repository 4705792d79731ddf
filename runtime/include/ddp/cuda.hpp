// SPDX-License-Identifier: BSD-3-Clause
/// @file
/// CUDA streams: which stream operations on the memory of a GPU follow, and which waits for them. No CUDA header is
/// needed: a cudaStream_t or CUstream is given as void*.
///
///     ddp::Work work = group.all_reduce_async(gradients);   // after the work on the current stream
///     next_kernel<<<grid, block, 0, stream>>>(...);         // meanwhile
///     work.wait();                                          // the stream waits, the host does not
///     optimizer_step<<<grid, block, 0, stream>>>(...);
#pragma once

#include "ddp/ddp.h"
#include "ddp/error.hpp"

namespace ddp {

/// Returns this thread's current stream of a CUDA device; null is the legacy default stream.
inline void* current_stream(int device = 0) {
  void* stream = nullptr;
  detail::check(ddp_stream_current(device, &stream));
  return stream;
}

/// Makes a stream this thread's current one for a device while the guard lives, and restores the previous one then.
class StreamGuard {
 public:
  /// Sets `stream`, a cudaStream_t or CUstream of that device.
  explicit StreamGuard(void* stream, int device = 0) : device_(device), before_(current_stream(device)) {
    detail::check(ddp_stream_set_current(device, stream));
  }
  /// Restores the previous stream.
  ~StreamGuard() { ddp_stream_set_current(device_, before_); }
  StreamGuard(const StreamGuard&) = delete;             ///< belongs to one scope
  StreamGuard& operator=(const StreamGuard&) = delete;  ///< belongs to one scope

 private:
  int device_;
  void* before_;
};

}  // namespace ddp
