// SPDX-License-Identifier: BSD-3-Clause
// Decides which nodes have a seat in the next round, in which order, with which ranks, and by which address of the
// coordinator's machine they reach rank 0. Functions of the roster.
#pragma once

#include <functional>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "rendezvous/coordinator/core/roster.hpp"
#include "rendezvous/link/messages.hpp"

namespace ddp::rendezvous {

// Returns whether one host name goes before another. Numbers within them count as numbers: gpu2 goes before gpu10.
bool goes_before(std::string_view a, std::string_view b);

// The order in which nodes that have no node rank yet get one. A node that has one keeps it while it lives.
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

// Returns the members of the next round by node rank. Members of the last round keep their rank. Newcomers take the
// ranks that have become free, then new ones, in this order; ranks that are still free then are closed up. The
// coordinator's own node has 0, also after a takeover. If there are more nodes than seats, those that came first have
// one; nodes that make room (--exclude-after) come after all others.
std::vector<Incarnation> choose_seats(const Roster& roster, const JobShape& job, const SeatOrder& order,
                                      const std::function<bool(const Node&)>& makes_room);

// Returns each seat's place in the round; `place` has what all of them have in common.
std::vector<Assignment> assign_ranks(const Roster& roster, Assignment place);

// An address of the coordinator's machine by which all nodes of the round reach it: programs open ports of their own on
// it. The endpoint's host is one if all nodes spell it alike and it means on this machine the address at which they
// arrive (Debian gives a machine's own name 127.0.1.1); else that address, if there is but one; else the host, if its
// name stands for several.
struct MasterAddr {
  std::string address;  // empty: there is none
  std::string warning;  // then
};
MasterAddr choose_master_addr(const Roster& roster);

}  // namespace ddp::rendezvous
