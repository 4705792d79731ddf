// SPDX-License-Identifier: BSD-3-Clause
// A point in time as text, in this machine's time zone.
#pragma once

#include <chrono>
#include <ctime>
#include <string>

#include "rendezvous/link/messages.hpp"

namespace ddp::launcher {

// Returns the time in strftime's `format`, whose result must have at most 31 characters.
inline std::string local_time(rendezvous::WallTime time, const char* format) {
  const std::time_t seconds = std::chrono::system_clock::to_time_t(time);
  std::tm parts = {};
  localtime_r(&seconds, &parts);
  char text[32];
  const std::size_t length = std::strftime(text, sizeof text, format, &parts);
  return {text, length};
}

}  // namespace ddp::launcher
