// SPDX-License-Identifier: BSD-3-Clause
#include "runtime/api/c_guard.hpp"

#include <string>

namespace ddp::runtime {
namespace {

thread_local std::string last_error;

}  // namespace

ddp_status status_of(rendezvous::ErrorCode code) {
  using rendezvous::ErrorCode;
  switch (code) {
    case ErrorCode::InvalidArgument:
      return DDP_INVALID_ARGUMENT;
    case ErrorCode::Timeout:
      return DDP_TIMEOUT;
    case ErrorCode::PeerLost:
      return DDP_PEER_LOST;
    case ErrorCode::Aborted:
      return DDP_ABORTED;
    case ErrorCode::Mismatch:
      return DDP_MISMATCH;
    case ErrorCode::System:
      return DDP_SYSTEM;
    case ErrorCode::Corrupt:
      return DDP_CORRUPT;
  }
  return DDP_SYSTEM;
}

rendezvous::ErrorCode code_of(ddp_status status) {
  using rendezvous::ErrorCode;
  switch (status) {
    case DDP_INVALID_ARGUMENT:
      return ErrorCode::InvalidArgument;
    case DDP_TIMEOUT:
      return ErrorCode::Timeout;
    case DDP_PEER_LOST:
      return ErrorCode::PeerLost;
    case DDP_ABORTED:
      return ErrorCode::Aborted;
    case DDP_MISMATCH:
      return ErrorCode::Mismatch;
    case DDP_CORRUPT:
      return ErrorCode::Corrupt;
    case DDP_OK:
    case DDP_SYSTEM:
      break;
  }
  return ErrorCode::System;
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
