// SPDX-License-Identifier: BSD-3-Clause
// The text of an error that crosses the backend table.
#pragma once

#include <cstddef>
#include <string_view>

#include "ddp/backend.h"

namespace ddp::collectives {

// An error whose text begins empty. The rest of its 512 bytes stays uninitialised, since every operation makes one.
struct BackendError : ddp_backend_error {
  BackendError() { text[0] = '\0'; }
};

// Writes the text into `error`, cut to its size. Does nothing if `error` is null.
inline void set_text(ddp_backend_error* error, std::string_view words) noexcept {
  if (error == nullptr) return;
  const std::size_t length = words.copy(error->text, sizeof(error->text) - 1);
  error->text[length] = '\0';
}

}  // namespace ddp::collectives
