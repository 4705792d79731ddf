// SPDX-License-Identifier: BSD-3-Clause
/// @file
/// Errors and timeouts: how every part of libddp for C++ reports a failure, and how it takes a timeout. Included by the
/// other headers.
#pragma once

#include <chrono>
#include <cstdint>
#include <stdexcept>
#include <string>

#include "ddp/ddp.h"

namespace ddp {

/// Kind of failure, for programs that act on it.
enum class Status : std::int32_t {
  Ok = DDP_OK,                             ///< no failure
  InvalidArgument = DDP_INVALID_ARGUMENT,  ///< the caller's input is wrong; the group is as it was
  Timeout = DDP_TIMEOUT,                   ///< a deadline passed
  PeerLost = DDP_PEER_LOST,                ///< another rank died or left
  Aborted = DDP_ABORTED,                   ///< the group was aborted by an earlier error
  Mismatch = DDP_MISMATCH,                 ///< ranks disagree, for example about a parameter's shape
  System = DDP_SYSTEM,                     ///< the operating system or a backend failed
  Corrupt = DDP_CORRUPT                    ///< a file does not have the content it should have
};

/// The exception that libddp throws for every failure, except for std::bad_alloc. what() says what went wrong, on which
/// group and operation (or store and key), and which rank caused it.
class Error : public std::runtime_error {
 public:
  /// Makes an error; `message` is one line: what was tried, on what, why it failed, and what to do.
  Error(Status status, const std::string& message) : std::runtime_error(message), status_(status) {}
  /// Returns the kind of failure.
  Status status() const noexcept { return status_; }

 private:
  Status status_;
};

namespace detail {
inline void check(ddp_status status) {
  if (status != DDP_OK) throw Error(static_cast<Status>(status), ddp_error_last());
}
}  // namespace detail

/// Type of every timeout. Coarser std::chrono durations convert to it implicitly.
using Milliseconds = std::chrono::milliseconds;
/// Timeout argument that means the default: the group's (30 minutes unless set otherwise), or the store's (5 minutes).
inline constexpr Milliseconds kDefaultTimeout{0};

}  // namespace ddp
