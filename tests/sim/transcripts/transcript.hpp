// SPDX-License-Identifier: BSD-3-Clause
// Writes down what happens in a world, for people: each event with its time and the host or coordinator that it meets,
// and below it the actions that answer it. Heartbeats, and timers after which nothing is done, are left out.
//
//      5.412  coordinator  link 2 to h1 breaks (Connection reset by peer)
//                            logs: the link to node h1 (10.0.0.1) broke (Connection reset by peer); waiting 3 s ...
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "launcher/agent/agent_core.hpp"
#include "rendezvous/coordinator/core/coordinator_core.hpp"
#include "tests/sim/plan.hpp"

namespace ddp::sim {

class Transcript {
 public:
  enum class Resolution { Milliseconds, Microseconds };
  // Returns the host at the agent's end of a link.
  using HostOf = std::function<std::string(rendezvous::AgentId)>;

  // Leaves out what happens before `from`, counted from the beginning of the world.
  explicit Transcript(Resolution resolution, milliseconds from = {}) : resolution_(resolution), from_(from) {}

  // Adds what the world did, or what happened to a process without its core.
  void note(Time now, const std::string& who, const std::string& what);
  // Add a step of a core: an event and the actions that answer it.
  void step(Time now, const std::string& host, const launcher::AgentEvent& event,
            const std::vector<launcher::AgentAction>& actions);
  void step(Time now, const std::string& who, const rendezvous::CoordinatorEvent& event,
            const std::vector<rendezvous::CoordinatorAction>& actions, const HostOf& host_of);

  const std::vector<std::string>& lines() const { return lines_; }

 private:
  void add_step(Time now, const std::string& who, const std::string& event, const std::vector<std::string>& actions,
                bool is_routine);

  Resolution resolution_;
  milliseconds from_;
  std::vector<std::string> lines_;
};

}  // namespace ddp::sim
