// SPDX-License-Identifier: BSD-3-Clause
// Decides when the next round begins: how long nodes are awaited, when enough of them are there, and when nodes that
// wait hear what is missing. A value inside the coordinator's core: (time, roster) in, answers out.
#pragma once

#include <chrono>
#include <optional>
#include <string>

#include "rendezvous/coordinator/core/coordinator_events.hpp"
#include "rendezvous/coordinator/core/job_record.hpp"

namespace ddp::rendezvous {

// Interval between "waiting for nodes" messages while nodes come. One that says nothing new follows after half the time
// that was waited so far, and after this at most.
inline constexpr std::chrono::seconds kBetweenWaitingMessages{5};
inline constexpr std::chrono::seconds kMostBetweenSame{60};
// The first one. Most jobs are complete by then.
inline constexpr std::chrono::seconds kFirstWaitingMessage{2};

class Gathering {
 public:
  enum class Next { Wait, Open, GiveUp };

  explicit Gathering(const CoordinatorConfig& config)
      : job_(config.job), join_timeout_(config.join_timeout), last_call_(config.last_call) {}

  // The round before is over. `waits`: nodes may take the join timeout to come back or be replaced.
  void begin(TimePoint now, bool waits);
  // Decides whether the round after `round` begins now. Called whenever something has changed, and at wake_at().
  Next next(TimePoint now, const Roster& roster, int round);
  // Nothing is decided before something changes.
  void rest() { wake_.reset(); }
  void stop();
  // After it the nodes have all of their time again.
  void forget() { until_.reset(); }

  bool has_begun() const { return until_.has_value(); }
  // Returns how long nodes are awaited.
  std::chrono::milliseconds limit() const {
    return std::chrono::duration_cast<std::chrono::milliseconds>(*until_ - since_);
  }
  const std::optional<TimePoint>& wake_at() const { return wake_; }
  const std::optional<TimePoint>& next_message() const { return next_message_; }
  // Returns what nodes that wait are to hear at next_message(); nothing: not yet.
  std::optional<std::string> message(TimePoint now, const Roster& roster);
  // Returns "1 of 3 there (a); missing: node ranks 1, 2".
  std::string describe_missing(const Roster& roster) const;

  void save(TimePoint now, JobRecord& record) const;
  void restore(TimePoint recorded, const JobRecord& record);

 private:
  bool elastic() const { return job_.min_nodes < job_.max_nodes; }

  JobShape job_;
  std::chrono::milliseconds join_timeout_, last_call_;
  TimePoint since_;
  std::optional<TimePoint> until_, last_call_until_, wake_, next_message_;
  std::string told_missing_;      // by the last "waiting for nodes" message; empty if there was none
  TimePoint tell_missing_again_;  // if nothing changes until then
};

}  // namespace ddp::rendezvous
