// SPDX-License-Identifier: BSD-3-Clause
// A moment as the clock on this machine's wall shows it.
#pragma once

#include <chrono>
#include <ctime>
#include <string>

#include "rendezvous/link/messages.hpp"

namespace ddp::launcher {

// format: strftime's, for at most 31 characters.
inline std::string local_time(rendezvous::WallTime time, const char* format) {
  const std::time_t seconds = std::chrono::system_clock::to_time_t(time);
  std::tm parts = {};
  localtime_r(&seconds, &parts);
  char text[32];
  const std::size_t length = std::strftime(text, sizeof text, format, &parts);
  return {text, length};
}

}  // namespace ddp::launcher
