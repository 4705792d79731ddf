// SPDX-License-Identifier: BSD-3-Clause
/// @file
/// Work: operations that run while the caller does something else.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <optional>
#include <utility>

#include "ddp/ddp.h"
#include "ddp/error.hpp"

namespace ddp {

/// One asynchronous operation. Copies mean the same operation, and any thread may wait, any number of times. Source:
/// Work of PyTorch.
///
/// When its last copy goes and nothing has waited, it waits itself, on the host, so that the operation's buffers may go
/// next: a Work that is dropped at once makes a blocking call. A receive by the backend "ddp", which nobody may ever
/// answer, does not wait: its message is thrown away when it comes. A failure then is not thrown, but it has ended the
/// group, so that the next operation throws it. Once the session has ended, and in a child that the process has forked,
/// nothing is left to wait for.
class Work {
 public:
  /// Makes an empty one, to be assigned to. wait() throws Error with Status::InvalidArgument.
  Work() = default;
  /// Takes an operation of ddp.h.
  explicit Work(ddp_work work) : pending_(std::make_shared<Pending>(work)) {}
  /// Waits until the operation has ended. Throws its failure, or Error with Status::Aborted if an
  /// earlier operation of the group failed. The deadline was set when it was issued.
  void wait() const { ended(ddp_work_wait(c())); }
  /// Waits as wait() does, and returns the rank at the other end of a message; -1 for a collective, and if a message
  /// has been waited for before.
  int wait_source() const {
    std::int32_t source = 0;
    ended(ddp_work_wait_source(c(), &source));
    return source;
  }
  /// Waits as wait() does, on the host even for an operation on the memory of a GPU, for which wait() makes only this
  /// thread's current stream wait (see cuda.hpp).
  void synchronize() const { ended(ddp_work_synchronize(c())); }
  /// Waits for at most `timeout`, and returns whether the operation has ended. Throws its failure.
  bool wait_for(Milliseconds timeout) const {
    std::int32_t completed = 0;
    detail::check(ddp_work_wait_for(c(), timeout.count(), &completed));
    return completed != 0;
  }
  /// Returns whether the operation has ended, well or not. Does not wait.
  bool is_completed() const {
    std::int32_t completed = 0;
    static_cast<void>(ddp_work_wait_for(c(), 0, &completed));
    return completed != 0;
  }
  /// Returns what wait() would throw, if the operation has failed by now. Does not wait.
  std::optional<Error> exception() const {
    std::int32_t completed = 0;
    const ddp_status status = ddp_work_wait_for(c(), 0, &completed);
    return status != DDP_OK ? std::optional<Error>(Error(static_cast<Status>(status), ddp_error_last())) : std::nullopt;
  }
  /// Returns the struct of ddp.h.
  ddp_work c() const { return pending_ ? pending_->work : ddp_work{nullptr, 0}; }

 protected:
  /// Keeps what has to live as long as the operation.
  void keep(std::shared_ptr<const void> memory) { pending_->memory = std::move(memory); }

 private:
  struct Pending {
    explicit Pending(ddp_work work_) : work(work_) {}
    ~Pending() {
      if (!waited) ddp_work_drop(work);
    }
    Pending(const Pending&) = delete;
    Pending& operator=(const Pending&) = delete;

    ddp_work work;
    std::shared_ptr<const void> memory;
    std::atomic<bool> waited = false;
  };

  void ended(ddp_status status) const {
    detail::check(status);
    pending_->waited = true;
  }

  std::shared_ptr<Pending> pending_;
};

}  // namespace ddp
