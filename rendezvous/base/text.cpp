// SPDX-License-Identifier: BSD-3-Clause
#include "rendezvous/base/text.hpp"

#include <unistd.h>

#include <algorithm>
#include <climits>
#include <cstdio>
#include <cstring>

namespace ddp::rendezvous {

std::string to_string(std::chrono::milliseconds time) {
  if (time.count() % 1000 == 0) return std::to_string(time.count() / 1000) + " s";
  return std::to_string(time.count()) + " ms";
}

std::string signal_name(int signal) {
  const char* const abbreviation = sigabbrev_np(signal);
  return abbreviation ? std::string("SIG") + abbreviation : "signal " + std::to_string(signal);
}

std::string list_of(const std::vector<std::string>& words, std::size_t shown) {
  std::string text;
  for (std::size_t i = 0; i < std::min(words.size(), shown); ++i) text += (i > 0 ? ", " : "") + words[i];
  if (words.size() > shown) text += " and " + std::to_string(words.size() - shown) + " more";
  return text;
}

std::string describe_bytes(std::size_t bytes) {
  if (bytes < 1000) return std::to_string(bytes) + " B";
  double value = static_cast<double>(bytes);
  const char* unit = "";
  for (const char* next : {"kB", "MB", "GB", "TB"}) {
    value /= 1000;
    unit = next;
    if (value < 999.95) break;  // what would print as 1000.0
  }
  char text[32];
  std::snprintf(text, sizeof(text), "%.1f %s", value, unit);
  return text;
}

std::string host_name() {
  char name[HOST_NAME_MAX + 1] = {};
  ::gethostname(name, sizeof name - 1);
  return name;
}

}  // namespace ddp::rendezvous
