// SPDX-License-Identifier: BSD-3-Clause
// The exception by which the parts of the backend "ddp" end a call. It becomes the status and the text that cross the
// backend table, and never leaves backend.cpp.
#pragma once

#include <cstdint>
#include <stdexcept>
#include <string>

#include "ddp/backend.h"

namespace ddp::collectives {

class Failure : public std::runtime_error {
 public:
  Failure(ddp_backend_status status, const std::string& text) : std::runtime_error(text), status_(status) {}
  ddp_backend_status status() const { return status_; }

 private:
  ddp_backend_status status_;
};

// The error of a rank that finds that another one calls something else.
inline Failure ranks_disagree(std::uint32_t one, std::uint32_t other) {
  return {DDP_BACKEND_ERROR, "ranks disagree: rank " + std::to_string(one) + " of the group and rank " +
                                 std::to_string(other) +
                                 " have called different collectives, or the same with other sizes, types or roots, "
                                 "now or before (DDP_DEBUG=detail says what each of them calls)"};
}

}  // namespace ddp::collectives
