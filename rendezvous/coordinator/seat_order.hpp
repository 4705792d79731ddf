// SPDX-License-Identifier: BSD-3-Clause
// The order in which nodes that have no node rank yet get one. A node that has one keeps it while it lives.
#pragma once

#include <map>
#include <string>
#include <string_view>

#include "rendezvous/link/messages.hpp"

namespace ddp::rendezvous {

// Returns whether one host name goes before another. Numbers within them count as numbers: gpu2 goes before gpu10.
bool goes_before(std::string_view a, std::string_view b);

class SeatOrder {
 public:
  // `places` says where each host is in the network (--topology); hosts with neighbouring numbers are neighbours.
  explicit SeatOrder(std::map<std::string, int> places = {}) : places_(std::move(places)) {}

  // Returns whether one node goes before another: by the node rank that each was given, if any, then by place, then by
  // name. False both ways: nothing tells them apart.
  bool operator()(const AgentState& a, const AgentState& b) const;
  // Returns whether there are places, and none of them is this host's.
  bool lacks(const std::string& host) const { return !places_.empty() && place_of(host) == kNowhere; }

 private:
  static constexpr int kNowhere = 1 << 30;
  // Finds a host by its whole name, or by what is before the first dot.
  int place_of(const std::string& host) const;

  std::map<std::string, int> places_;
};

}  // namespace ddp::rendezvous
