// SPDX-License-Identifier: BSD-3-Clause
// Wraps every exported function: no exception leaves it, and its text is kept for ddp_error_last().
#pragma once

#include <exception>
#include <new>
#include <string>

#include "ddp/ddp.h"
#include "rendezvous/base/error.hpp"

namespace ddp::runtime {

ddp_status status_of(rendezvous::ErrorCode code);
rendezvous::ErrorCode code_of(ddp_status status);  // the status is a failure
ddp_status remember(ddp_status status, const char* what) noexcept;

template <typename Body>
ddp_status guard(Body&& body) noexcept {
  try {
    body();
    return DDP_OK;
  } catch (const rendezvous::Error& e) {
    return remember(status_of(e.code()), e.what());
  } catch (const std::bad_alloc&) {
    return remember(DDP_SYSTEM, "out of memory");
  } catch (const std::exception& e) {
    return remember(DDP_SYSTEM, e.what());
  } catch (...) {
    return remember(DDP_SYSTEM, "an error of an unknown kind");
  }
}

template <typename T>
T& not_null(T* pointer, const char* what) {
  if (pointer != nullptr) return *pointer;
  throw rendezvous::Error(rendezvous::ErrorCode::InvalidArgument, std::string(what) + " is null");
}

}  // namespace ddp::runtime
