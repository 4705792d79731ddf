// SPDX-License-Identifier: BSD-3-Clause
/// @file
/// Operations that go on while the caller does something else.
#pragma once

#include <cstdint>

#include "ddp/ddp.h"
#include "ddp/error.hpp"

namespace ddp {

/// One asynchronous operation. Dropping it neither waits nor cancels; its buffers must stay valid until it ended.
class Work {
 public:
  /// No operation; to be assigned one.
  Work() = default;
  /// From ddp.h.
  explicit Work(ddp_work work) : work_(work) {}
  /// Blocks until the operation ended; throws if it failed. The deadline was set when it was issued.
  void wait() const { detail::check(ddp_work_wait(work_)); }
  /// A look of at most `timeout`: true once the operation ended. Throws if it failed.
  bool wait_for(Milliseconds timeout) const {
    std::int32_t completed = 0;
    detail::check(ddp_work_wait_for(work_, timeout.count(), &completed));
    return completed != 0;
  }
  /// Whether the operation ended, without waiting. Throws if it failed.
  bool is_completed() const { return wait_for(Milliseconds(0)); }

 private:
  ddp_work work_ = {nullptr, 0};
};

}  // namespace ddp
