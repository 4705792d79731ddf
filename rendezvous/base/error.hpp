// SPDX-License-Identifier: BSD-3-Clause
// The exception by which all folders but apps/ report what the caller cannot go on from: wrong input, a port that is
// taken, a peer out of reach. A message says what was tried, on what, why it failed and what to do about it. It is
// caught in one place: in main, or at libddp's C interface, which hands code and text to the user's ddp::Error.
#pragma once

#include <cerrno>
#include <cstring>
#include <stdexcept>
#include <string>

namespace ddp::rendezvous {

enum class ErrorCode {
  InvalidArgument,  // the caller's input is wrong; trying again will not help
  Timeout,          // a deadline passed
  PeerLost,         // another process of the job is gone
  Aborted,          // the group was aborted after an earlier error
  Mismatch,         // ranks disagree about what they are doing
  System,           // the operating system refused
  Corrupt,          // a file or message is not what it should be
};

class Error : public std::runtime_error {
 public:
  Error(ErrorCode code, const std::string& message) : std::runtime_error(message), code_(code) {}
  ErrorCode code() const { return code_; }

 private:
  ErrorCode code_;
};

[[noreturn]] inline void invalid_argument(const std::string& message) {
  throw Error(ErrorCode::InvalidArgument, message);
}

// For a call that has just failed: "WHAT: " and what errno says.
[[noreturn]] inline void system_error(const std::string& what) {
  throw Error(ErrorCode::System, what + ": " + std::strerror(errno));
}

}  // namespace ddp::rendezvous
