// SPDX-License-Identifier: BSD-3-Clause
/// @file
/// CUDA streams: what operations on the memory of a GPU follow, and what waits for them. No CUDA header is needed; a
/// cudaStream_t and a CUstream are the same, and are taken as void*.
///
///     ddp::Work work = group.all_reduce_async(gradients);   // behind what is on the current stream
///     next_kernel<<<grid, block, 0, stream>>>(...);         // meanwhile
///     work.wait();                                          // the stream waits, the host does not
///     optimizer_step<<<grid, block, 0, stream>>>(...);
#pragma once

#include "ddp/ddp.h"
#include "ddp/error.hpp"

namespace ddp {

/// This thread's current stream of a CUDA device; null is the legacy default stream.
inline void* current_stream(int device = 0) {
  void* stream = nullptr;
  detail::check(ddp_stream_current(device, &stream));
  return stream;
}

/// While it lives, `stream` is this thread's current stream of the device; then the one before is again.
class StreamGuard {
 public:
  /// stream: of that device, a cudaStream_t or CUstream.
  explicit StreamGuard(void* stream, int device = 0) : device_(device), before_(current_stream(device)) {
    detail::check(ddp_stream_set_current(device, stream));
  }
  ~StreamGuard() { ddp_stream_set_current(device_, before_); }
  StreamGuard(const StreamGuard&) = delete;             ///< a scope's own
  StreamGuard& operator=(const StreamGuard&) = delete;  ///< likewise

 private:
  int device_;
  void* before_;
};

}  // namespace ddp
