// SPDX-License-Identifier: BSD-3-Clause
// Checks of text that people get to see.
#pragma once

#include <string>

#include "rendezvous/base/check.hpp"
#include "rendezvous/link/printable.hpp"

namespace ddp::fuzz {

inline void check_line(const std::string& line) { DDP_CHECK(rendezvous::printable_line(line) == line, line); }

}  // namespace ddp::fuzz
