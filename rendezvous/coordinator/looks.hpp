// SPDX-License-Identifier: BSD-3-Clause
// Passes questions about the running job on to its agents, and their answers back to the agent that asked. It decides
// nothing about the job, and costs nothing while nobody asks. A value inside the coordinator's driver: messages go in,
// messages come out.
//
// Invariants: each question ends with one LookEnd, when all nodes have answered, are gone, or the time is over; a node
// answers once, and only for itself; at most kMostLooks questions are open.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "rendezvous/coordinator/core/roster.hpp"
#include "rendezvous/link/messages.hpp"

namespace ddp::rendezvous {

inline constexpr std::size_t kMostLooks = 64, kMostLooksOfNode = 8;

class Looks {
 public:
  struct Send {
    AgentId agent = 0;
    std::variant<LookRequest, LookAnswer, LookEnd> message;
  };
  // The agents that can answer, by link, with their incarnations.
  using Asked = std::map<AgentId, std::string>;

  // Asks all of them, and later ends with `facts`.
  std::vector<Send> begin(TimePoint now, AgentId asker, const LookRequest& request, JobFacts facts, const Asked& asked);
  std::vector<Send> answer(AgentId from, LookAnswer answer);
  // A link broke: its node answers no more, and its own questions are over.
  std::vector<Send> gone(AgentId agent);
  // Ends what has taken too long.
  std::vector<Send> expire(TimePoint now);
  // Returns when to call expire(); nothing: nobody looks.
  std::optional<TimePoint> wake_at() const;

 private:
  struct Look {
    AgentId asker = 0;
    std::int64_t asked_as = 0;  // the asker's number
    TimePoint until;
    std::map<AgentId, std::string> awaited;
    JobFacts facts;
  };

  static Send end(Look look);

  std::map<std::int64_t, Look> looks_;  // by the number that the agents are given
  std::int64_t next_number_ = kOwnerNumber + 1;
};

}  // namespace ddp::rendezvous
