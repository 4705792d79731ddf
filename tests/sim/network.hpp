// SPDX-License-Identifier: BSD-3-Clause
// Says when a message arrives, if it does. It knows links and directions, not messages: the world schedules and
// delivers those.
//
// The deadlines of the two cores rest on these assumptions, which this network keeps:
//   * A link is a TCP connection: messages arrive in order, none of them twice. Two links have no order between them.
//   * A link that breaks for the coordinator breaks for its agent at most kBreakSeenWithin later. (A firewall that
//   sends
//     a reset to the coordinator's side only would violate this: the node's lease then runs for 2/3 of lost_after,
//     while the coordinator waits only for kReconnectWindow.) In the other direction there is no such limit.
//   * A keeper runs within 100 ms, also when its machine wakes.
//   * All clocks run at the same rate. A process that is not stopped handles a timer within 100 ms. A node whose
//   process
//     was stopped while its link broke may count as lost because of that: until its keeper kills them, or for a
//     reconnect window after it goes on, its workers may run beside those that took their place.
//   * A process that received SIGKILL executes nothing more, however long it takes to be reaped, unless the kernel
//   holds
//     it.
#pragma once

#include <array>
#include <map>
#include <optional>
#include <vector>

#include "tests/sim/plan.hpp"

namespace ddp::sim {

inline constexpr milliseconds kBreakSeenWithin{500};
inline constexpr milliseconds kKeeperWakesWithin{100};

enum class Way { Up, Down };  // to the coordinator, to the agent

using LinkId = int;

struct Link {
  int process = 0;  // the agent's process; -1: a liar
  int machine = 0;
  bool local = false;  // within the coordinator's process
  bool to_other_coordinator = false;
  int coordinator = 0;  // among all of the run
  int coordinators_machine = 0;
  int agent_id = 0;  // the number that the coordinator knows it by
  bool agent_open = true, coordinator_open = true;
  bool cut = false;
  std::array<bool, 2> vanishes = {false, false};  // by Way
  std::array<Time, 2> newest = {Time(), Time()};
};

class Network {
 public:
  explicit Network(const Plan& plan) : plan_(plan), random_(plan.seed, {2}) {}

  // `to` is the machine of its coordinator.
  LinkId open(Time now, int process, int machine, bool local, int to = 0);
  Link& link(LinkId id) { return links_[static_cast<std::size_t>(id)]; }
  const Link& link(LinkId id) const { return links_[static_cast<std::size_t>(id)]; }
  int links() const { return static_cast<int>(links_.size()); }

  // Returns when a message sent now arrives; nothing: never.
  std::optional<Time> arrival(Time now, LinkId link, Way way);
  Duration delay();
  // Lets messages between a machine and the coordinator arrive only after `until`, in the direction that `lost` names
  // or in both. The coordinator's own machine is cut off from all others.
  void block(int machine, Lost lost, Time until);
  // Returns the time from which on a connection can be made.
  Time open_since(int machine, int to = 0) const;

 private:
  Time blocked_until(int machine, int to, Way way) const;

  const Plan& plan_;
  Random random_;
  std::vector<Link> links_;
  std::array<std::map<int, Time>, 2> blocked_;
};

}  // namespace ddp::sim
