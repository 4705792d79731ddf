// SPDX-License-Identifier: BSD-3-Clause
// A time of day that is an hour ahead, for a ddprun and all below it.
#pragma once

#include "tests/support/process.hpp"
#include "tests/support/sanitizer.hpp"

namespace ddp::testing {

inline Process::Options an_hour_ahead(const TemporaryFolder& folder) {
  if (kIsSanitized) return {};  // a sanitizer wants to be the first library
  return {.environment = {{"LD_PRELOAD", FAKE_LIBC}, {"FAKE_LIBC_CLOCK", folder.write("clock", "3600")}}};
}

}  // namespace ddp::testing
