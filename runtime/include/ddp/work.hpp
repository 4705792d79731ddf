// SPDX-License-Identifier: BSD-3-Clause
/// @file
/// Work: operations that run while the caller does something else.
#pragma once

#include <atomic>
#include <cstdint>
#include <optional>

#include "ddp/ddp.h"
#include "ddp/error.hpp"

namespace ddp {

/// One asynchronous operation. Any thread may wait, any number of times. Source: Work of PyTorch.
///
/// The Work that a function returns, or the one that it is moved to, waits when it is dropped and nothing has waited on
/// it, on the host, so that the operation's buffers may go next: a Work that is dropped at once makes a blocking call.
/// Copies mean the same operation, and do not wait when they are dropped. A receive by the backend "ddp", which nobody
/// may ever answer, does not wait either: its message is thrown away when it comes. A failure then is not thrown, but
/// it has ended the group, so that the next operation throws it. Once the session has ended, and in a child that the
/// process has forked, nothing is left to wait for.
class Work {
 public:
  /// Makes an empty one, to be assigned to. wait() throws Error with Status::InvalidArgument.
  Work() = default;
  /// Takes an operation of ddp.h.
  explicit Work(ddp_work work) : work_(work), waits_(true) {}
  ~Work() { drop(); }
  /// Makes a copy, which does not wait when it is dropped.
  Work(const Work& other) : work_(other.work_) {}
  /// Takes the operation; then this one waits when it is dropped, and the other one does not.
  Work(Work&& other) noexcept : work_(other.work_), waits_(other.waits_.exchange(false)) {}
  /// Drops its operation, and becomes a copy.
  Work& operator=(const Work& other) { return *this = Work(other); }
  /// Drops its operation, and takes the other one's.
  Work& operator=(Work&& other) noexcept {
    if (this == &other) return *this;
    drop();
    work_ = other.work_;
    waits_ = other.waits_.exchange(false);
    return *this;
  }
  /// Waits until the operation has ended. Throws its failure, or Error with Status::Aborted if an
  /// earlier operation of the group failed. The deadline was set when it was issued.
  void wait() const { ended(ddp_work_wait(work_)); }
  /// Waits as wait() does, and returns the rank at the other end of a message; -1 for a collective, and if a message
  /// has been waited for before.
  int wait_source() const {
    std::int32_t source = 0;
    ended(ddp_work_wait_source(work_, &source));
    return source;
  }
  /// Waits as wait() does, on the host even for an operation on the memory of a GPU, for which wait() makes only this
  /// thread's current stream wait (see cuda.hpp).
  void synchronize() const { ended(ddp_work_synchronize(work_)); }
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
  /// Returns the struct of ddp.h.
  ddp_work c() const { return work_; }

 protected:
  /// Does what the destructor does. A class whose own members the operation uses calls it in its own destructor.
  void drop() noexcept {
    if (waits_.exchange(false)) ddp_work_drop(work_);
  }

 private:
  void ended(ddp_status status) const {
    detail::check(status);
    waits_ = false;
  }

  ddp_work work_ = {nullptr, 0};
  mutable std::atomic<bool> waits_ = false;  // when it is dropped
};

}  // namespace ddp
