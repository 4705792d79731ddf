// SPDX-License-Identifier: BSD-3-Clause
// Decides why a round ends and what follows: which failure or loss counts, whether the next round is a restart, how
// else the job ends and with which exit code, and which nodes make room for others (--exclude-after). A value inside
// the coordinator's core: it knows the newest round's failures and losses, and what the job has spent.
#pragma once

#include <chrono>
#include <cstddef>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "rendezvous/coordinator/core/job_record.hpp"
#include "rendezvous/coordinator/core/roster.hpp"
#include "rendezvous/link/messages.hpp"
#include "rendezvous/link/restart_budget.hpp"

namespace ddp::rendezvous {

// A loss explains the round's failures if it is noticed no later than this after the first of them: a node that dies
// brings down workers of other nodes, and their reports may come before its link is seen to break.
inline constexpr std::chrono::seconds kCauseWindow{1};

inline constexpr char kAllSucceeded[] = "all workers exited with code 0";

enum class Trigger { Failure, Loss, Membership, Final };  // why a round is being stopped

class RoundEnd {
 public:
  struct Stop {
    Trigger trigger = Trigger::Final;
    Why why = Why::None;
    std::string reason;
    std::vector<int> dead = {};               // if Failure or Loss: the ranks that died
    std::optional<WorkerFailure> cause = {};  // if Failure: as far as it is known now
    int exit_code = 1;                        // if Final
    bool at_once = false;                     // with SIGKILL
    bool keeps_survivors = false;             // as the newest directive says
    int signal = 0;                           // as the newest directive says
  };

  explicit RoundEnd(const JobShape& job) : job_(job), budget_(job) {}

  void begin_round();
  // Takes in what a member of the round reports.
  void note_report(TimePoint now, const Node& node);
  // Returns why that report ends a round which runs; nothing: it does not.
  std::optional<Stop> stop_for(const Node& node) const;
  // `name` names the node at fault; empty: none is known.
  void note_loss(TimePoint noticed, Why why, const std::string& text, const std::string& name = {});
  // This process was stopped for this long: what was noticed before keeps its distance from what is noticed after.
  void forgive_sleep(TimePoint::duration slept);

  Stop& stop() { return stop_; }
  const Stop& stop() const { return stop_; }
  bool is_failure() const { return stop_.trigger == Trigger::Failure || stop_.trigger == Trigger::Loss; }
  // Whether workers that can go on in another round are to live, since there will most likely be one. While a round is
  // being stopped the answer stays the same, unless a node reports a hang.
  bool survivors_stay(TimePoint now) const;

  // Decides how the job goes on when no process of the round acts any more, and all is known: error files and last
  // lines have been read. Returns whether another round follows. If none does, `exit` gets how the job ends.
  bool goes_on(TimePoint now, const Roster& roster, Directive& exit);
  // Gives the reason for the end of a job that waits for nodes, none of which came: what the newest round ended with.
  void explain_wait(Directive& exit) const;
  // Tells the members of a new round about the one before.
  void explain_round(TimePoint now, Directive& run);

  // Whether a node has a seat only as long as no other node wants it.
  bool makes_room(const Roster& roster, const Node& node) const;

  int restarts() const { return restarts_; }
  int budget_used(TimePoint now) const { return has_window() ? budget_.used(now) : restarts_; }
  std::size_t failures() const { return failures_.size(); }
  std::size_t losses() const { return losses_.size(); }
  std::size_t first_causes() const { return first_causes_.size(); }

  void save(TimePoint now, JobRecord& record) const;
  void restore(TimePoint recorded, const JobRecord& record);

 private:
  struct KnownFailure {
    Incarnation node;
    std::string name;  // names the node, which may be gone by the time it matters
    TimePoint seen;
    WorkerFailure failure;
  };
  struct Loss {
    TimePoint noticed;
    Why why = Why::None;
    std::string text;
    std::string name = {};            // names the node, if it is at fault
    Incarnation stopped_itself = {};  // the node, if it is there and has ended its workers
    Hang hang = Hang::None;           // it has done so for a hang
  };

  void note_failures(TimePoint now, const Node& node);
  void note_own_stop(const Node& node);
  std::vector<WorkerFailure> failures_in_window() const;
  std::vector<int> failed_ranks() const;
  Hang hang_of_round() const;
  bool spends_restart() const;
  void spend_restart(TimePoint now);
  std::string describe_budget(TimePoint now) const;
  std::string name_at_fault(const std::optional<WorkerFailure>& cause, const std::string& loss) const;
  void count_first_cause(const Roster& roster, const std::string& name);
  int times_first_cause(const Roster& roster, const Node& node) const;
  bool has_window() const { return job_.restart_window.count() > 0; }
  bool elastic() const { return job_.min_nodes < job_.max_nodes; }

  JobShape job_;
  // About the newest round:
  std::vector<KnownFailure> failures_;                             // in order of arrival
  std::map<std::pair<Incarnation, int>, std::size_t> failure_of_;  // index in failures_ by node and local rank
  std::map<Incarnation, std::size_t> failure_text_;                // bytes of text in failures_, by node
  std::vector<Loss> losses_;                                       // members that it has lost
  Stop stop_;
  // About the job:
  int restarts_ = 0;
  RestartBudget budget_;
  std::map<std::string, int> first_causes_;  // how often a node, by name, was the first cause of the end of a round
  std::optional<WorkerFailure> cause_;       // what the newest restart is due to
  // About the newest round, or about the next one while it is prepared:
  bool is_restart_ = false;
  Why why_ = Why::None;         // the kind of why_round_
  std::string why_round_;       // why it is opened
  std::string who_makes_room_;  // for a spare, since the round before, and why; empty: no other node
};

// Returns the failure that explains the others; null: there is none. They are given in order of arrival. A failure that
// came by itself goes before one that ddprun caused; among workers that were dead or dying when the first failure was
// noticed, a signal goes before an exit code (a crash makes its peers exit, not the other way round); then the first
// failure, or an earlier failure of the same node.
const WorkerFailure* cause_of(const std::vector<WorkerFailure>& failures);

// Returns the ranks of a member of the round.
std::vector<int> ranks_of(const Node& node);

}  // namespace ddp::rendezvous
