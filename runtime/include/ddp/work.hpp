// SPDX-License-Identifier: BSD-3-Clause
/// @file
/// Operations that go on while the caller does something else.
#pragma once

#include <cstdint>
#include <optional>

#include "ddp/ddp.h"
#include "ddp/error.hpp"

namespace ddp {

/// One asynchronous operation. Dropping it neither waits nor cancels; its buffers must stay valid until it ended. A
/// plain value: copies are the same operation, and any thread may ask, any number of times. PyTorch's Work.
class Work {
 public:
  /// No operation; to be assigned one. wait() throws Error with Status::InvalidArgument.
  Work() = default;
  /// From ddp.h.
  explicit Work(ddp_work work) : work_(work) {}
  /// Blocks until the operation ended; throws what it failed with, or Error with Status::Aborted if an earlier one of
  /// its group failed. The deadline was set when it was issued.
  void wait() const { detail::check(ddp_work_wait(work_)); }
  /// The same; returns the rank that a message came from or went to (see ddp_work_wait_source()).
  int wait_source() const {
    std::int32_t source = 0;
    detail::check(ddp_work_wait_source(work_, &source));
    return source;
  }
  /// wait(), but the host waits also for an operation on the memory of a GPU, for which wait() makes only this thread's
  /// current stream wait (see cuda.hpp).
  void synchronize() const { detail::check(ddp_work_synchronize(work_)); }
  /// A look of at most `timeout`: true once the operation ended. Throws if it failed.
  bool wait_for(Milliseconds timeout) const {
    std::int32_t completed = 0;
    detail::check(ddp_work_wait_for(work_, timeout.count(), &completed));
    return completed != 0;
  }
  /// Whether the operation ended, well or not, without waiting.
  bool is_completed() const {
    std::int32_t completed = 0;
    static_cast<void>(ddp_work_wait_for(work_, 0, &completed));
    return completed != 0;
  }
  /// What wait() would throw, if the operation has failed by now.
  std::optional<Error> exception() const {
    std::int32_t completed = 0;
    const ddp_status status = ddp_work_wait_for(work_, 0, &completed);
    return status != DDP_OK ? std::optional<Error>(Error(static_cast<Status>(status), ddp_error_last())) : std::nullopt;
  }

 private:
  ddp_work work_ = {nullptr, 0};
};

}  // namespace ddp
