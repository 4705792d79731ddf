// SPDX-License-Identifier: BSD-3-Clause
/// @file
/// Work: operations that run while the caller does something else.
#pragma once

#include <cstdint>
#include <optional>

#include "ddp/ddp.h"
#include "ddp/error.hpp"

namespace ddp {

/// One asynchronous operation. Dropping it neither waits nor cancels; its buffers must stay valid until it has ended.
/// It is a plain value: copies mean the same operation, and any thread may wait, any number of times. Source: Work of
/// PyTorch.
class Work {
 public:
  /// Makes an empty one, to be assigned to. wait() throws Error with Status::InvalidArgument.
  Work() = default;
  /// Wraps the struct of ddp.h.
  explicit Work(ddp_work work) : work_(work) {}
  /// Waits until the operation has ended. Throws its failure, or Error with Status::Aborted if an
  /// earlier operation of the group failed. The deadline was set when it was issued.
  void wait() const { detail::check(ddp_work_wait(work_)); }
  /// Waits as wait() does, and returns the rank at the other end of a message; -1 for a collective, and if a message
  /// has been waited for before.
  int wait_source() const {
    std::int32_t source = 0;
    detail::check(ddp_work_wait_source(work_, &source));
    return source;
  }
  /// Waits as wait() does, on the host even for an operation on the memory of a GPU, for which wait() makes only this
  /// thread's current stream wait (see cuda.hpp).
  void synchronize() const { detail::check(ddp_work_synchronize(work_)); }
  /// Waits for at most `timeout`, and returns whether the operation has ended. Throws its failure.
  bool wait_for(Milliseconds timeout) const {
    std::int32_t completed = 0;
    detail::check(ddp_work_wait_for(work_, timeout.count(), &completed));
    return completed != 0;
  }
  /// Returns whether the operation has ended, well or not. Does not wait.
  bool is_completed() const {
    std::int32_t completed = 0;
    static_cast<void>(ddp_work_wait_for(work_, 0, &completed));
    return completed != 0;
  }
  /// Returns what wait() would throw, if the operation has failed by now. Does not wait.
  std::optional<Error> exception() const {
    std::int32_t completed = 0;
    const ddp_status status = ddp_work_wait_for(work_, 0, &completed);
    return status != DDP_OK ? std::optional<Error>(Error(static_cast<Status>(status), ddp_error_last())) : std::nullopt;
  }

 private:
  ddp_work work_ = {nullptr, 0};
};

}  // namespace ddp
