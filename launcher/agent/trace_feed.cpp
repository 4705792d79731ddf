// SPDX-License-Identifier: BSD-3-Clause
#include "launcher/agent/trace_feed.hpp"

#include <chrono>
#include <variant>

namespace ddp::launcher {
namespace {

constexpr std::chrono::seconds kForOwnPart{2};    // the coordinator waits for this node meanwhile
constexpr std::chrono::seconds kForAllParts{30};  // nobody waits but the user
constexpr int kFirstRoundTrips = 8;               // at once; then one with each heartbeat

}  // namespace

TraceFeed::TraceFeed(const LaunchConfig& config, const std::string& host, const rendezvous::AgentState& state,
                     bool coordinates, Log& log)
    : state_(state),
      coordinates_(coordinates),
      trace_({.path = config.trace_file,
              .job = config.job.id,
              .program = config.program.name,
              .host = host,
              .incarnation = state.incarnation,
              .coordinates = coordinates},
             [&log](const std::string& line) { log.warning("trace", line); }) {
  if (coordinates) return;
  log.info("trace", "this node's part of the trace is " + trace_.path() + " until the job ends; then it is in " +
                        config.trace_file + ", if the node that coordinates sees this folder");
}

bool TraceFeed::round_trip(const rendezvous::ClockReading& answer) {
  trace_.round_trip(answer.agent_ns, answer.coordinator_ns);
  return ++round_trips_ < kFirstRoundTrips;
}

void TraceFeed::note(const AgentEvent& event) {
  std::visit([this](const auto& e) { on(e); }, event);
}

void TraceFeed::on(const WorkersStarted& event) {
  for (std::size_t i = 0; i < event.pids.size(); ++i) {
    trace_.worker_started(base_rank_ + static_cast<int>(i), event.pids[i]);
  }
}

void TraceFeed::on(const MissingStarted& event) { trace_.worker_started(base_rank_ + event.local_rank, event.pid); }

void TraceFeed::on(const WorkerDying& event) {
  if (state_.phase == rendezvous::WorkersPhase::Running) failing_.insert(event.local_rank);
}

void TraceFeed::on(const WorkerExited& event) {
  const bool was_told_to_end = state_.phase != rendezvous::WorkersPhase::Running;
  const bool is_failure = failing_.erase(event.local_rank) > 0 || (!event.status.success() && !was_told_to_end);
  trace_.worker_ended(base_rank_ + event.local_rank, rendezvous::describe(event.status), is_failure);
}

void TraceFeed::on(const NeverStarted& event) {
  if (!event.why.empty()) trace_.note(event.why);
}

void TraceFeed::on(const AllGone&) { trace_.end_round(); }

void TraceFeed::note(const rendezvous::Directive& directive) {
  using Kind = rendezvous::Directive::Kind;
  if (directive.kind != Kind::Stop && directive.kind != Kind::Exit) return;
  const std::string what =
      (directive.kind == Kind::Stop ? "the round is stopped: " : "the job ends: ") + directive.reason;
  if (what == told_) return;
  told_ = what;
  trace_.note(what);
}

void TraceFeed::begin_round(const rendezvous::Assignment& assignment, bool some_live_on) {
  base_rank_ = assignment.base_rank;
  told_.clear();
  if (some_live_on) trace_.end_round();
  trace_.begin_round(state_.round, state_.epoch, assignment);
}

void TraceFeed::end_own_part() {
  if (!coordinates_) trace_.finish(kForOwnPart);
}

void TraceFeed::end_job() { trace_.finish(coordinates_ ? kForAllParts : kForOwnPart); }

}  // namespace ddp::launcher
