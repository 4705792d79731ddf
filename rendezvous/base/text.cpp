// SPDX-License-Identifier: BSD-3-Clause
#include "rendezvous/base/text.hpp"

#include <unistd.h>

#include <algorithm>
#include <climits>
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

std::string host_name() {
  char name[HOST_NAME_MAX + 1] = {};
  ::gethostname(name, sizeof name - 1);
  return name;
}

}  // namespace ddp::rendezvous
