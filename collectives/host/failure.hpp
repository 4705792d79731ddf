// SPDX-License-Identifier: BSD-3-Clause
// The exception by which the parts of the backend "ddp" end a call. It becomes the status and the text that cross the
// backend table, and never leaves backend.cpp.
#pragma once

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

}  // namespace ddp::collectives
