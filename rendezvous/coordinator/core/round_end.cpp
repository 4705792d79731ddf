// SPDX-License-Identifier: BSD-3-Clause
#include "rendezvous/coordinator/core/round_end.hpp"

#include <algorithm>
#include <csignal>
#include <numeric>
#include <tuple>

#include "rendezvous/base/exit_code.hpp"
#include "rendezvous/base/text.hpp"
#include "rendezvous/link/failures.hpp"

namespace ddp::rendezvous {

namespace {

using std::chrono::milliseconds;

constexpr std::size_t kMaxOwnStops = 4;  // reasons of one node for ending its workers, in one round
constexpr std::size_t kMaxFailureText = 2 * kMaxFailuresBytes;  // about the failures of one node
constexpr std::size_t kMaxFirstCauses = 4096;                   // nodes that are remembered

}  // namespace

const WorkerFailure* cause_of(const std::vector<WorkerFailure>& failures) {
  if (failures.empty()) return nullptr;
  const WorkerFailure& first = failures.front();
  // A crash makes its peers exit, or abort as PyTorch's workers do. So an abort counts as a crash only on the node of
  // the first failure.
  const auto likelihood = [&](const WorkerFailure& f) {
    if (!f.already_exiting || f.status.signal == 0) return 0;
    if (f.status.signal != SIGABRT) return 2;
    return f.host == first.host ? 1 : 0;
  };
  const auto order = [&](const WorkerFailure& f) { return std::tuple(f.stopped_by_ddprun, -likelihood(f)); };
  const auto is_likelier = [&](const auto& a, const auto& b) { return order(a) < order(b); };
  const auto cause = std::min_element(failures.begin(), failures.end(), is_likelier);
  // Failures of one node may be noticed in another order than they happened. Clocks of two nodes are not compared.
  return &*std::min_element(cause, failures.end(), [&](const auto& a, const auto& b) {
    const bool are_alike = order(a) == order(*cause) && a.host == cause->host;
    return are_alike && a.time < b.time;
  });
}

std::vector<int> ranks_of(const Node& node) {
  std::vector<int> ranks(static_cast<std::size_t>(node.state.slots));
  std::iota(ranks.begin(), ranks.end(), node.base_rank);
  return ranks;
}

// ---- What is known of the round ----

void RoundEnd::begin_round() {
  failures_.clear();
  failure_of_.clear();
  failure_text_.clear();
  losses_.clear();
  stop_ = {};
}

void RoundEnd::note_report(TimePoint now, const Node& node) {
  note_failures(now, node);
  note_own_stop(node);
}

std::optional<RoundEnd::Stop> RoundEnd::stop_for(const Node& node) const {
  const AgentState& state = node.state;
  const bool by_themselves = std::any_of(state.failures.begin(), state.failures.end(),
                                         [](const WorkerFailure& f) { return !f.stopped_by_ddprun; });
  if (!by_themselves && !state.stopped_because.empty()) {
    const Loss& loss = losses_.back();
    return Stop{.trigger = Trigger::Loss, .why = loss.why, .reason = loss.text, .dead = ranks_of(node)};
  }
  if (state.failures.empty()) return std::nullopt;
  std::vector<WorkerFailure> known;
  for (const KnownFailure& f : failures_) known.push_back(f.failure);
  const WorkerFailure& cause = *cause_of(known);
  return Stop{.trigger = Trigger::Failure,
              .why = Why::WorkerFailed,
              .reason = describe(cause),
              .dead = failed_ranks(),
              .cause = cause};
}

// Adds the failures of a report. Reports repeat failures that are known, with more about them each time: what a worker
// printed last is reported after its death.
void RoundEnd::note_failures(TimePoint now, const Node& node) {
  std::size_t& text = failure_text_[node.state.incarnation];
  for (const WorkerFailure& failure : node.state.failures) {
    const auto [known, is_new] =
        failure_of_.emplace(std::pair(node.state.incarnation, failure.local_rank), failures_.size());
    if (is_new) failures_.push_back({node.state.incarnation, describe(node), now, {}});
    WorkerFailure& noted = failures_[known->second].failure;
    text -= text_bytes(noted);
    noted = failure;
    if (text + text_bytes(noted) > kMaxFailureText) forget_text(noted);  // reports may name other failures each time
    text += text_bytes(noted);
  }
}

// A node that killed its workers explains the failures that its peers report, even if their reports come first.
void RoundEnd::note_own_stop(const Node& node) {
  if (node.state.stopped_because.empty()) return;
  const std::string text = "node " + describe(node) + " stopped its workers: " + node.state.stopped_because;
  std::size_t earlier = 0;
  for (const Loss& loss : losses_) {
    if (loss.text == text) return;
    if (loss.stopped_itself == node.state.incarnation) ++earlier;
  }
  if (earlier >= kMaxOwnStops) return;
  const bool is_at_fault = node.state.hang == Hang::None;  // every node reports a hang, not only the late one
  losses_.push_back({.noticed = node.unheard_since,
                     .why = is_at_fault ? Why::NodeStopped : Why::Hang,
                     .text = text,
                     .name = is_at_fault ? describe(node) : std::string(),
                     .stopped_itself = node.state.incarnation,
                     .hang = node.state.hang});
}

void RoundEnd::note_loss(TimePoint noticed, Why why, const std::string& text, const std::string& name) {
  losses_.push_back({.noticed = noticed, .why = why, .text = text, .name = name});
}

void RoundEnd::forgive_sleep(TimePoint::duration slept) {
  for (KnownFailure& known : failures_) known.seen += slept;
  for (Loss& loss : losses_) loss.noticed += slept;
}

// Returns the ranks that failed by themselves: those that ddprun stopped were alive until then.
std::vector<int> RoundEnd::failed_ranks() const {
  std::vector<int> ranks;
  for (const KnownFailure& known : failures_) {
    if (!known.failure.stopped_by_ddprun) ranks.push_back(known.failure.rank);
  }
  std::sort(ranks.begin(), ranks.end());
  return ranks;
}

// Whether a node has ended the round because its workers stood still, and what is to follow.
Hang RoundEnd::hang_of_round() const {
  Hang hang = Hang::None;
  if (stop_.trigger != Trigger::Loss) return hang;
  for (const Loss& loss : losses_) hang = std::max(hang, loss.hang);
  return hang;
}

// ---- What follows ----

bool RoundEnd::survivors_stay(TimePoint now) const {
  if (!job_.survivors_stay || stop_.trigger == Trigger::Final || hang_of_round() == Hang::End) return false;
  return !spends_restart() || budget_used(now) < job_.max_restarts;
}

// Whether the round that follows this stop counts as a restart.
bool RoundEnd::spends_restart() const {
  const bool is_hang = hang_of_round() != Hang::None;
  return stop_.trigger == Trigger::Failure || (stop_.trigger == Trigger::Loss && (!elastic() || is_hang));
}

// Returns the failures as they are compared: what came after the cause window was not dying before.
std::vector<WorkerFailure> RoundEnd::failures_in_window() const {
  std::vector<WorkerFailure> failures;
  for (const KnownFailure& known : failures_) {
    failures.push_back(known.failure);
    const bool too_late = known.seen > failures_.front().seen + kCauseWindow;
    if (too_late) failures.back().already_exiting = false;
  }
  return failures;
}

bool RoundEnd::goes_on(TimePoint now, const Roster& roster, Directive& exit) {
  exit.why = stop_.why;
  exit.reason = stop_.reason;
  // The round was over before its store was lost, or its coordinator.
  const bool are_all_there = roster.members() > 0 && roster.members() == static_cast<int>(roster.seats().size());
  if (stop_.trigger == Trigger::Loss && are_all_there && roster.members() == roster.succeeded()) {
    exit.why = Why::Succeeded;
    exit.reason = kAllSucceeded;
    return false;
  }
  const std::vector<WorkerFailure> failures = failures_in_window();
  // Nodes of the round that are lost may come back and hear it as well.
  exit.failures = worth_telling(failures, std::max(roster.nodes().size(), roster.seats().size()));
  if (stop_.trigger == Trigger::Final) {
    exit.exit_code = stop_.exit_code;
    exit.cause = stop_.cause;
    return false;
  }

  std::optional<WorkerFailure> cause;
  if (stop_.trigger == Trigger::Failure) {
    const auto loss = std::find_if(losses_.begin(), losses_.end(),
                                   [&](const Loss& l) { return l.noticed <= failures_.front().seen + kCauseWindow; });
    if (loss == losses_.end()) {
      cause = *cause_of(failures);
      exit.reason = describe(*cause);
    } else {  // a lost node explains the failures of its peers
      stop_.trigger = Trigger::Loss;
      exit.why = loss->why;
      exit.reason = loss->text;
    }
  }
  if (cause) cause_ = exit.cause = cause;
  const bool is_loss = stop_.trigger == Trigger::Loss && hang_of_round() == Hang::None;
  exit.exit_code =
      exit_code({.why = is_loss ? Why::NodeLost : Why::Failed, .first = cause ? cause->status : ExitStatus()});
  const bool spends = spends_restart();
  const bool unkillable = std::any_of(roster.nodes().begin(), roster.nodes().end(), [](const auto& entry) {
    return entry.second.seat >= 0 && !entry.second.state.unkillable.empty();
  });
  if (unkillable) {
    exit.why = Why::Unkillable;
    exit.reason += "; not restarted, since not all processes could be killed";
    return false;
  }
  if (cause && cause->never_ran) {
    exit.why = Why::NeverRan;
    exit.reason += "; not restarted, since the program cannot run there";
    return false;
  }
  if (hang_of_round() == Hang::End) return false;
  if (spends && budget_used(now) >= job_.max_restarts) return false;
  const std::string at_fault = name_at_fault(cause, exit.reason);
  if (spends) {
    spend_restart(now);
    // A restart prints no failure report, so the line has the worker's last message.
    exit.reason = "restart " + describe_budget(now) + ": " + (cause ? describe_with_message(*cause) : exit.reason);
  }
  count_first_cause(roster, at_fault);
  is_restart_ = spends;
  why_ = exit.why;
  why_round_ = exit.reason;
  return true;
}

void RoundEnd::explain_wait(Directive& exit) const {
  exit.why = losses_.empty() ? why_ : losses_.back().why;
  exit.reason = losses_.empty() ? why_round_ : losses_.back().text;
}

void RoundEnd::explain_round(TimePoint now, Directive& run) {
  run.cause = cause_;
  if (has_window()) run.restarts_left = std::max(job_.max_restarts - budget_used(now), 0);
  if (is_restart_) {
    run.why = why_;
    run.reason = why_round_;
  }
  run.reason += std::exchange(who_makes_room_, "");
}

void RoundEnd::spend_restart(TimePoint now) {
  ++restarts_;
  budget_.spend(now);
}

// Returns "2 of 3" or, with a window, "7, 2 of 3 within 1 h".
std::string RoundEnd::describe_budget(TimePoint now) const {
  const std::string of = " of " + std::to_string(job_.max_restarts);
  if (!has_window()) return std::to_string(restarts_) + of;
  return std::to_string(restarts_) + ", " + std::to_string(budget_used(now)) + of + " within " +
         to_string(job_.restart_window);
}

// ---- Nodes that fail too often ----

// Returns the name of the node where the end of the round began; empty: none is known.
std::string RoundEnd::name_at_fault(const std::optional<WorkerFailure>& cause, const std::string& loss) const {
  if (cause) {
    const auto failed = [&](const KnownFailure& known) { return known.failure.rank == cause->rank; };
    return std::find_if(failures_.begin(), failures_.end(), failed)->name;
  }
  const auto lost = std::find_if(losses_.begin(), losses_.end(), [&](const Loss& l) { return l.text == loss; });
  return lost == losses_.end() ? "" : lost->name;
}

// Counts a node as the first cause of a round's end, and has it told with the next round if it was that too often.
void RoundEnd::count_first_cause(const Roster& roster, const std::string& name) {
  const int limit = job_.exclude_after;
  if (limit == 0 || name.empty()) return;
  if (first_causes_.size() >= kMaxFirstCauses)
    std::erase_if(first_causes_, [](const auto& n) { return n.second == 1; });
  if (++first_causes_[name] != limit) return;
  const Node* const own = roster.find(roster.own());
  const std::string what = own && describe(*own) == name ? "coordinates, so it cannot make room"
                                                         : "makes room for any other node from now on";
  who_makes_room_ =
      "; node " + name + " was the first cause of " + counted(limit, "failure") + " (--exclude-after) and " + what;
}

bool RoundEnd::makes_room(const Roster& roster, const Node& node) const {
  if (job_.exclude_after == 0 || roster.is_own(node)) return false;
  return times_first_cause(roster, node) >= job_.exclude_after;
}

// The coordinator's own node has a name without an address. Failures that were charged to it while it coordinated still
// count after another node has taken over.
int RoundEnd::times_first_cause(const Roster& roster, const Node& node) const {
  const auto count_of = [this](const std::string& name) {
    const auto count = first_causes_.find(name);
    return count == first_causes_.end() ? 0 : count->second;
  };
  const Node* const own = roster.find(roster.own());
  const bool has_coordinated = !node.address.empty() && !(own && own->state.host == node.state.host);
  return count_of(describe(node)) + (has_coordinated ? count_of(node.state.host) : 0);
}

// ---- Another life of the coordinator ----

void RoundEnd::save(TimePoint now, JobRecord& record) const {
  const auto age = [now](TimePoint time) { return std::chrono::duration_cast<milliseconds>(now - time); };
  record.restarts = restarts_;
  record.cause = cause_;
  record.is_restart = is_restart_;
  record.why = why_;
  record.why_round = why_round_;
  record.who_makes_room = who_makes_room_;
  record.stop = {static_cast<int>(stop_.trigger),
                 stop_.why,
                 stop_.reason,
                 stop_.exit_code,
                 stop_.at_once,
                 stop_.signal,
                 stop_.dead,
                 stop_.cause};
  for (const KnownFailure& f : failures_) record.failures.push_back({f.node, f.name, age(f.seen), f.failure});
  for (const Loss& l : losses_) {
    record.losses.push_back({age(l.noticed), l.text, l.stopped_itself, static_cast<int>(l.hang), l.name, l.why});
  }
  for (const TimePoint time : budget_.spent()) record.spent.push_back(has_window() ? age(time) : milliseconds(0));
  record.first_causes = first_causes_;
}

void RoundEnd::restore(TimePoint recorded, const JobRecord& record) {
  restarts_ = record.restarts;
  cause_ = record.cause;
  is_restart_ = record.is_restart;
  why_ = record.why;
  why_round_ = record.why_round;
  who_makes_room_ = record.who_makes_room;
  for (const milliseconds age : record.spent) budget_.spend(recorded - age);
  first_causes_ = record.first_causes;
  const JobRecord::Stop& stop = record.stop;
  stop_ = {.trigger = static_cast<Trigger>(stop.trigger),
           .why = stop.why,
           .reason = stop.reason,
           .dead = stop.dead,
           .cause = stop.cause,
           .exit_code = stop.exit_code,
           .at_once = stop.at_once,
           .signal = stop.signal};
  for (const JobRecord::Failure& f : record.failures) {
    failure_of_.emplace(std::pair(f.node, f.failure.local_rank), failures_.size());
    failure_text_[f.node] += text_bytes(f.failure);
    failures_.push_back({f.node, f.name, recorded - f.seen, f.failure});
  }
  for (const JobRecord::Loss& l : record.losses) {
    losses_.push_back({recorded - l.noticed, l.why, l.text, l.name, l.stopped_itself, static_cast<Hang>(l.hang)});
  }
}

}  // namespace ddp::rendezvous
