// SPDX-License-Identifier: BSD-3-Clause
// Decides how long a link may stay open over which no node of the job has reported: a short time, and less where too
// many are open. A value inside the coordinator's core; what is to be done goes to the core's actions.
#pragma once

#include <chrono>
#include <cstddef>
#include <map>
#include <optional>
#include <string>

#include "rendezvous/coordinator/core/coordinator_events.hpp"

namespace ddp::rendezvous {

// Time for an agent to report over a new link, and to leave when it was refused; after it the link is closed.
inline constexpr std::chrono::seconds kFirstReportWithin{5};

class Links {
 public:
  explicit Links(std::size_t max_unheard) : max_unheard_(max_unheard) {}

  void opened(TimePoint now, const AgentLinked& event, CoordinatorActions& actions);
  // Gives a link without a node some time: for its first report, or to end after its agent was refused.
  void expect_report(TimePoint now, AgentId agent, const std::string& address, const std::string& share = {});
  // Whether another agent has reported over this link.
  bool is_other_speaker(AgentId agent, const Incarnation& incarnation) const;
  void note_speaker(AgentId agent, const Incarnation& incarnation) { speakers_[agent] = incarnation; }
  // A node has reported over this link, so that the roster watches it.
  void has_node(AgentId agent) { unheard_.erase(agent); }
  void close(AgentId agent, CoordinatorActions& actions);
  void gone(const AgentGone& event, CoordinatorActions& actions);
  // Closes the links whose time is over.
  void check(TimePoint now, CoordinatorActions& actions);
  const std::optional<TimePoint>& next_check() const { return next_check_; }
  // This process was stopped for this long, and what agents sent lay unread.
  void forgive_sleep(TimePoint::duration slept);

  std::size_t count() const { return speakers_.size(); }
  std::size_t unheard() const { return unheard_.size(); }

 private:
  struct Unheard {
    TimePoint until;  // when it is closed
    std::string address;
    std::string share;
  };

  void make_room(CoordinatorActions& actions);

  std::size_t max_unheard_;
  std::map<AgentId, Incarnation> speakers_;  // the agent that reports over each link
  std::map<AgentId, Unheard> unheard_;       // links without a node: nobody has reported, or the agent was refused
  std::optional<TimePoint> next_check_;
};

}  // namespace ddp::rendezvous
