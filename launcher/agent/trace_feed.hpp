// SPDX-License-Identifier: BSD-3-Clause
// Tells the trace (--trace) what happens on this node: from the events of AgentCore, before the core gets them, and
// from what its driver does.
#pragma once

#include <set>
#include <string>

#include "launcher/agent/agent_core.hpp"
#include "launcher/config/launch_config.hpp"
#include "launcher/output/log.hpp"
#include "launcher/output/trace/trace.hpp"
#include "rendezvous/base/descriptor.hpp"

namespace ddp::launcher {

class TraceFeed {
 public:
  // `state` is the core's. Throws rendezvous::Error if the file cannot be made.
  TraceFeed(const LaunchConfig& config, const std::string& host, const rendezvous::AgentState& state, bool coordinates,
            Log& log);

  void note(const AgentEvent& event);
  void note(const rendezvous::Directive& directive);
  void note(const std::string& line) { trace_.note(line); }
  // `some_live_on`: the round goes on with workers of the one before.
  void begin_round(const rendezvous::Assignment& assignment, bool some_live_on);
  // This node has left. The coordinator takes in the parts of all nodes once they have left.
  void end_own_part();
  void end_job();
  bool coordinates() const { return coordinates_; }

  // The coordinator has answered with its clock. Returns whether it is to be asked again at once.
  bool round_trip(const rendezvous::ClockReading& answer);
  // Throws rendezvous::Error.
  void read_from(int local_rank, const rendezvous::Descriptor& memory) {
    trace_.read_from(base_rank_ + local_rank, memory);
  }

 private:
  void on(const WorkersStarted& event);
  void on(const MissingStarted& event);
  void on(const WorkerDying& event);
  void on(const WorkerExited& event);
  void on(const NeverStarted& event);
  void on(const AllGone& event);
  template <typename Other>
  void on(const Other&) {}

  const rendezvous::AgentState& state_;
  const bool coordinates_;
  Trace trace_;
  int base_rank_ = 0;
  std::set<int> failing_;  // local ranks that were dying before anybody had told them to end
  int round_trips_ = 0;
  std::string told_;  // the newest note about a directive, which may be repeated
};

}  // namespace ddp::launcher
