// SPDX-License-Identifier: BSD-3-Clause
#include "collectives/host/nodes/own_place.hpp"

#include <sys/stat.h>
#include <unistd.h>

#include <fstream>

namespace ddp::collectives {

OwnPlace own_place() {
  OwnPlace place = {"?", "?", std::to_string(geteuid())};
  std::ifstream("/proc/sys/kernel/random/boot_id") >> place.boot;
  struct stat network = {};
  if (stat("/proc/self/ns/net", &network) == 0) place.network = std::to_string(network.st_ino);
  return place;
}

std::string to_word(const OwnPlace& place) { return place.boot + "/" + place.network + "/" + place.user; }

OwnPlace place_from(const std::string& word) {
  const std::size_t first = word.find('/'), last = word.rfind('/');
  if (first == std::string::npos || first == last) return {word, "", ""};
  return {word.substr(0, first), word.substr(first + 1, last - first - 1), word.substr(last + 1)};
}

std::string difference(const OwnPlace& a, const OwnPlace& b) {
  if (a.boot != b.boot) return "";
  if (a.network != b.network) return "they are in different network namespaces";
  return "they are of different users";
}

}  // namespace ddp::collectives
