// SPDX-License-Identifier: BSD-3-Clause
// When a message arrives, if it does. Knows links and ways, not what is sent: the world schedules and delivers.
//
// What the deadlines of the two cores rest on, and this network keeps to:
//   * A link is a TCP connection: in order, nothing twice. Two links are in no order to each other.
//   * A link that breaks for the coordinator breaks for its agent at most kNewsOfBreak later. (A reset from a firewall
//     in between, told to the coordinator's side only, would break this: the node's lease then runs to 2/3 lost_after,
//     the coordinator's patience for kReconnectWindow.) The other way round anything goes.
//   * All clocks run at the same rate. A process that is not stopped handles a timer within 100 ms. One that was
//     stopped may have been given up: for a reconnect window its workers may run beside those that took their place.
//   * What SIGKILL has reached executes nothing more, however long it takes to be reaped; unless the kernel holds it.
#pragma once

#include <array>
#include <map>
#include <optional>
#include <vector>

#include "tests/sim/plan.hpp"

namespace ddp::sim {

inline constexpr milliseconds kNewsOfBreak{500};

enum class Way { Up, Down };  // to the coordinator, to the agent

using LinkId = int;

struct Link {
  int process = 0;  // the agent's
  int machine = 0;
  bool local = false;  // within the coordinator's process
  bool to_other_coordinator = false;
  int agent_id = 0;  // as the coordinator calls it
  bool agent_open = true, coordinator_open = true;
  bool cut = false;
  std::array<bool, 2> vanishes = {false, false};  // by Way
  std::array<Time, 2> newest = {Time(), Time()};
};

class Network {
 public:
  explicit Network(const Plan& plan) : plan_(plan), random_(plan.seed, {2}) {}

  LinkId open(Time now, int process, int machine, bool local);
  Link& link(LinkId id) { return links_[static_cast<std::size_t>(id)]; }
  const Link& link(LinkId id) const { return links_[static_cast<std::size_t>(id)]; }
  int links() const { return static_cast<int>(links_.size()); }

  // When what is sent now arrives; nothing: never.
  std::optional<Time> arrival(Time now, LinkId link, Way way);
  Duration delay();
  // A machine cannot be reached, or cannot reach the coordinator, until then. Machine 0: nobody can reach it.
  void block(int machine, Lost lost, Time until);
  // Since when a connection can be made.
  Time open_since(int machine) const;

 private:
  Time blocked_until(int machine, Way way) const;

  const Plan& plan_;
  Random random_;
  std::vector<Link> links_;
  std::array<std::map<int, Time>, 2> blocked_;
};

}  // namespace ddp::sim
