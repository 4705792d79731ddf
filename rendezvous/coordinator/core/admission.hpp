// SPDX-License-Identifier: BSD-3-Clause
// Decides whether an agent is a node of this job: which reports cannot be true, and which agents are refused, with what
// words. Functions of the job, the roster and the report.
#pragma once

#include <optional>
#include <string>

#include "rendezvous/coordinator/core/coordinator_events.hpp"
#include "rendezvous/coordinator/core/job_record.hpp"
#include "rendezvous/coordinator/core/roster.hpp"

namespace ddp::rendezvous {

// Nodes beyond max_nodes that may wait at the same time.
inline constexpr std::size_t kMaxSpares = 1024;

// Which job a coordinator serves.
struct JobIdentity {
  JobShape job;
  std::string epoch;             // names this life of the coordinator
  bool epoch_is_number = false;  // as in CoordinatorConfig
  std::string instance;          // as in JobRecord
  std::optional<JobRecord::Before> before = {};

  // Whether a node has served a coordinator of another job that was here before.
  bool is_of_other(const AgentState& state) const;
  bool was_before(const AgentState& state) const {
    return before && !state.epoch.empty() && state.instance == before->instance;
  }
};

// Why a node is refused.
struct Refusal {
  Why why = Why::None;  // None: it is not
  std::string reason = {};
};
Refusal refusal_of(const JobIdentity& identity, const Roster& roster, const AgentState& state);

// Returns what in a report cannot be true, as far as accept() could not know; empty: nothing. An agent keeps what it
// was welcomed with, and learns of rounds from this coordinator only. `is_open`: the newest round has a store.
std::string why_not_believed(const JobIdentity& identity, const Roster& roster, int round, bool is_open,
                             const AgentReported& event);

}  // namespace ddp::rendezvous
