// SPDX-License-Identifier: BSD-3-Clause
// Wraps every exported function: no exception leaves it, and its text is kept for ddp_error_last().
#pragma once

#include <exception>
#include <new>
#include <stdexcept>

#include "ddp/ddp.h"
#include "rendezvous/base/error.hpp"

namespace ddp::runtime {

ddp_status status_of(rendezvous::ErrorCode code);
rendezvous::ErrorCode code_of(ddp_status status);  // the status is a failure

template <typename Body>
ddp_status guard(Body&& body) noexcept {
  try {
    body();
    return DDP_OK;
  } catch (const rendezvous::Error& e) {
    return ddp_error_set(status_of(e.code()), e.what());
  } catch (const std::invalid_argument& e) {  // from arguments.hpp
    return ddp_error_set(DDP_INVALID_ARGUMENT, e.what());
  } catch (const std::bad_alloc&) {
    return ddp_error_set(DDP_SYSTEM, "out of memory");
  } catch (const std::exception& e) {
    return ddp_error_set(DDP_SYSTEM, e.what());
  } catch (...) {
    return ddp_error_set(DDP_SYSTEM, "an error of an unknown kind");
  }
}

}  // namespace ddp::runtime
