// SPDX-License-Identifier: BSD-3-Clause
#include "runtime/api/c_guard.hpp"

#include <algorithm>
#include <array>
#include <cstddef>
#include <string>

namespace ddp::runtime {
namespace {

using rendezvous::ErrorCode;

// In the order of ErrorCode.
constexpr std::array kStatuses = {DDP_INVALID_ARGUMENT, DDP_TIMEOUT, DDP_PEER_LOST, DDP_ABORTED,
                                  DDP_MISMATCH,         DDP_SYSTEM,  DDP_CORRUPT};
static_assert(kStatuses.size() == static_cast<std::size_t>(ErrorCode::Corrupt) + 1);

thread_local std::string last_error;

}  // namespace

ddp_status status_of(ErrorCode code) { return kStatuses.at(static_cast<std::size_t>(code)); }

ErrorCode code_of(ddp_status status) {
  const auto* const found = std::find(kStatuses.begin(), kStatuses.end(), status);
  return found != kStatuses.end() ? static_cast<ErrorCode>(found - kStatuses.begin()) : ErrorCode::System;
}

}  // namespace ddp::runtime

const char* ddp_error_last(void) { return ddp::runtime::last_error.c_str(); }

ddp_status ddp_error_set(ddp_status status, const char* message) {
  try {
    ddp::runtime::last_error = message;
  } catch (...) {
    ddp::runtime::last_error.clear();
  }
  return status;
}
