// SPDX-License-Identifier: BSD-3-Clause
// A point in time as text.
#pragma once

#include <chrono>
#include <cstdio>
#include <ctime>
#include <string>

#include "rendezvous/link/messages.hpp"

namespace ddp::launcher {

// Returns the time of this machine's zone in strftime's `format`, whose result must have at most 31 characters.
inline std::string local_time(rendezvous::WallTime time, const char* format) {
  const std::time_t seconds = std::chrono::system_clock::to_time_t(time);
  std::tm parts = {};
  localtime_r(&seconds, &parts);
  char text[32];
  const std::size_t length = std::strftime(text, sizeof text, format, &parts);
  return {text, length};
}

// Returns the current time as "2026-11-21T19:28:00.123Z".
inline std::string utc_now() {
  const auto now = std::chrono::system_clock::now();
  const std::time_t seconds = std::chrono::system_clock::to_time_t(now);
  const auto ms = std::chrono::duration_cast<std::chrono::milliseconds>(now.time_since_epoch()).count() % 1000;
  std::tm parts = {};
  gmtime_r(&seconds, &parts);
  char second[32], text[40];
  std::strftime(second, sizeof second, "%Y-%m-%dT%H:%M:%S", &parts);
  snprintf(text, sizeof text, "%s.%03dZ", second, static_cast<int>(ms));
  return text;
}

}  // namespace ddp::launcher
