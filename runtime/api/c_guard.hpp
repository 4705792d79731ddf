// SPDX-License-Identifier: BSD-3-Clause
// Wraps every exported function: no exception leaves it, and its text is kept for ddp_error_last().
#pragma once

#include "ddp/ddp.h"
#include "rendezvous/base/error.hpp"
#include "runtime/api/arguments.hpp"

namespace ddp::runtime {

ddp_status status_of(rendezvous::ErrorCode code);
rendezvous::ErrorCode code_of(ddp_status status);  // the status is a failure

template <typename Body>
ddp_status guard(Body&& body) noexcept {
  return guard_from<rendezvous::Error>([](const rendezvous::Error& e) { return status_of(e.code()); }, body);
}

}  // namespace ddp::runtime
