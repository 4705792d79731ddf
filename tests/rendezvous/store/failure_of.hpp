// SPDX-License-Identifier: BSD-3-Clause
// Catches the error that a call throws, so that a test can check its parts.
#pragma once

#include <functional>
#include <string>

#include "rendezvous/base/error.hpp"

namespace ddp::rendezvous {

struct Failure {
  ErrorCode code = ErrorCode::Corrupt;
  std::string message = "no error";
};

inline Failure failure_of(const std::function<void()>& call) {
  try {
    call();
  } catch (const Error& error) {
    return {error.code(), error.what()};
  }
  return {};
}

}  // namespace ddp::rendezvous
