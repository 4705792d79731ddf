// SPDX-License-Identifier: BSD-3-Clause
#include "collectives/host/nodes/own_place.hpp"

#include <unistd.h>

#include "rendezvous/base/text.hpp"
#include "rendezvous/base/text_stream.hpp"
#include "rendezvous/machine/cpus.hpp"
#include "rendezvous/machine/network_space.hpp"

namespace ddp::collectives {

OwnPlace own_place() {
  OwnPlace place = {"?", "?", std::to_string(geteuid()), {}};
  const auto [boot, network] = rendezvous::own_network_space();
  if (!boot.empty()) place.boot = boot;
  if (!network.empty()) place.network = network;
  place.numa_node = rendezvous::numa_node_of(rendezvous::allowed_cpus(), rendezvous::numa_node_of_cpus("/sys"));
  return place;
}

bool may_share_memory(const OwnPlace& a, const OwnPlace& b) {
  return a.boot == b.boot && a.network == b.network && a.user == b.user;
}

std::string to_word(const OwnPlace& place) {
  const std::string numa_node = place.numa_node ? std::to_string(*place.numa_node) : "-";
  return place.boot + "/" + place.network + "/" + place.user + "/" + numa_node;
}

OwnPlace place_from(const std::string& word) {
  rendezvous::TextStream parts(word);
  OwnPlace place;
  std::string numa_node;
  std::getline(parts, place.boot, '/');
  std::getline(parts, place.network, '/');
  std::getline(parts, place.user, '/');
  std::getline(parts, numa_node);
  place.numa_node = rendezvous::parse_number<int>(numa_node);
  return place;
}

std::string difference(const OwnPlace& a, const OwnPlace& b) {
  if (a.boot != b.boot) return "";
  if (a.network != b.network) return "they are in different network namespaces";
  return "they are of different users";
}

}  // namespace ddp::collectives
