// SPDX-License-Identifier: BSD-3-Clause
// Checks the coordinator's decisions: rounds, ranks, the budget, causes, lost nodes, the end.
#include <algorithm>
#include <csignal>
#include <tuple>
#include <utility>

#include "tests/sim/promises/invariants.hpp"
#include "tests/sim/promises/look_up.hpp"

namespace ddp::sim {

using rendezvous::Assignment;
using rendezvous::Directive;
using rendezvous::kCauseWindow;
using rendezvous::kReconnectWindow;
using rendezvous::kStartAgain;

namespace {

// Whether an Exit is for one agent only, which is refused or released, and not for all at the end.
bool is_refusal(const Directive& exit) {
  return exit.why == Reason::OptionsDiffer || exit.why == Reason::RankIsHeld || exit.why == Reason::JobIsGone;
}
bool lets_go(const Directive& exit) { return exit.why == Reason::Released; }

// Whether an agent has the shape of the job. A --node-rank that is too high counts only if node ranks are given.
bool is_alike(const launcher::AgentConfig& config, const rendezvous::JobShape& job) {
  return config.job == job && (!job.node_ranks_given || config.node_rank < job.max_nodes);
}

}  // namespace

void Invariants::on_heard(const Process& from, LinkId link, const rendezvous::AgentState& state) {
  if (found(reported_, from.index).value_or(link) > link) return;  // the process has a newer link
  // When the job is over, the coordinator logs no lost nodes, and it looks for them only twice a second.
  const auto broke = found(broke_, from.index);
  const bool too_late = (broke && scene_.now >= *broke + window_of(from.index)) ||
                        scene_.now >= found(heard_, from.index).value_or(scene_.now) + scene_.plan.lost_after;
  if (scene_.coordinator->core.over() && too_late) perhaps_lost_.insert(from.index);
  if (!state.stopped_because.empty()) {
    perhaps_faulty_.insert(from.config.host);
    const bool is_new_link = found(reported_, from.index) != link;
    const bool was_silent = scene_.now - found(heard_, from.index).value_or(scene_.now) >= scene_.plan.lost_after / 3;
    if (!gathering_since_ && is_in_newest_round(from.index))
      lost_noticed_.emplace(from.index, is_new_link || was_silent ? silent_since(from.index) : scene_.now);
  }
  const bool is_crowd = known_.size() > 200;
  if (known_.count(from.index) == 0 && scene_.plan.job.node_ranks_given && !is_crowd) {
    const bool is_held = std::any_of(known_.begin(), known_.end(), [&](int known) {
      return scene_.process(known).config.node_rank == from.config.node_rank;
    });
    if (is_held) challengers_.insert(from.index);
  }
  if (!first_heard_) first_heard_ = scene_.now;
  heard_[from.index] = scene_.now;
  restored_.erase(from.index);
  states_[from.index] = state;
  reported_[from.index] = link;
  broke_.erase(from.index);
  if (state.left) known_.erase(from.index);
  if (!state.left && lost_at_.count(from.index) != 0 && known_.count(from.index) == 0) {
    coverage_.reached(Branch::LostNodeCameBack);
  }
}

void Invariants::on_beat(const Process& from, LinkId link) {
  if (found(reported_, from.index) == link) heard_[from.index] = scene_.now;
}

void Invariants::on_link_broke(const Process& of, LinkId link) {
  if (found(reported_, of.index) == link) broke_[of.index] = scene_.now;
}

void Invariants::on_sent(const Process& to, const Directive& directive) {
  const bool is_first_run = directive.kind == Directive::Kind::Run && directive.round == 1;
  promise(Promise::ReasonsAreGiven,
          directive.kind == Directive::Kind::Wait || is_first_run || !directive.reason.empty(),
          "none in a directive of round " + std::to_string(directive.round) + " to " + to.config.host);
  const bool is_own = to.index == scene_.coordinator->process;
  const bool was_lost = lost_at_.count(to.index) != 0 && known_.count(to.index) == 0;
  told_[to.index] = directive;
  if (directive.why == Reason::MakesRoom) coverage_.reached(Branch::FaultyWaits);
  const std::size_t members = rounds_.empty() ? 0 : rounds_.rbegin()->second.size();
  const std::size_t nodes = std::max<std::size_t>({members, known_.size(), 1});
  promise(Promise::FewMessages, directive.failures.size() <= std::max<std::size_t>(64, 8192 / nodes),
          "a directive has too many failures");
  if (directive.kind == Directive::Kind::Exit && is_own) own_was_told_ = true;
  if (directive.kind == Directive::Kind::Exit) return check_exit(to, directive);
  known_.insert(to.index);
  if (directive.kind == Directive::Kind::Run) check_run(to, directive);
  if (directive.kind == Directive::Kind::Stop) {
    promise(Promise::LostAreKilled, !was_lost || directive.stop_signal == SIGKILL, to.config.host);
    if (std::exchange(stop_reason_, directive.reason) != directive.reason) stopped_at_ = scene_.now;
    stop_why_ = directive.why;
    check_kept(to, directive);
    check_patience(directive);
    const bool for_newcomer = directive.why == Reason::NodeJoined && stopped_at_ == scene_.now &&
                              !stopping_since_;  // otherwise the Stop is repeated
    promise(Promise::SuccessIsKept, !for_newcomer || !(has_succeeded(to.index) || is_ending(to.index)), to.config.host);
    if (directive.stop_signal == SIGKILL && directive.why == Reason::StopSignal) coverage_.reached(Branch::StopAtOnce);
  }
  if (directive.kind == Directive::Kind::Wait && directive.why == Reason::Spare) coverage_.reached(Branch::SpareWaits);
}

// Checks a Stop because of a node: its workers end where the node leaves, and only there.
void Invariants::check_kept(const Process& to, const Directive& stop) const {
  const rendezvous::JobShape& job = scene_.plan.job;
  if (!job.survivors_stay || job.min_nodes == job.max_nodes || stop.stop_signal == SIGKILL) return;
  const bool is_takeover = stop.why == Reason::NewLeader;
  const bool is_change =
      is_takeover || stop.why == Reason::NodeJoined || stop.why == Reason::NodeLost || stop.why == Reason::NodeLeft;
  // A hang may be found in the same round, and would spend a restart.
  const bool a_hang_may_end_it =
      scene_.plan.on_hang == launcher::OnHang::Stop || is_takeover || restarts_in_window(rounded_) >= job.max_restarts;
  if (!is_change || (a_hang_may_end_it && newest_hang_ >= stop.round)) return;
  const bool leaves = found(states_, to.index).value_or(rendezvous::AgentState()).stop_signal != 0;
  const bool is_new = stopped_at_ == scene_.now && !stopping_since_ && !is_takeover;  // it may leave since
  promise(Promise::SurvivorsAreKept, leaves ? !stop.survivors_stay || !is_new : stop.survivors_stay,
          to.config.host + ": " + stop.reason);
}

void Invariants::check_patience(const Directive& end) const {
  if (end.why != Reason::NotReplaced || !gathering_since_) return;
  promise(Promise::JoinTimeoutIsKept, scene_.now >= *gathering_since_ + scene_.plan.join_timeout, end.reason);
}

// Checks that a job which waits for a further round has to.
void Invariants::check_goes_on() {
  const rendezvous::CoordinatorCore& core = scene_.coordinator->core;
  const bool gathers = core.phase() == rendezvous::CoordinatorCore::Phase::Gathering && core.round() > 0;
  if (!gathers) return gathering_since_.reset();
  if (!gathering_since_) gathering_since_ = scene_.now;
  int ready = 0;
  bool waits_for_link = false, waits_for_end = false;
  bool own_is_ready = false;  // if it is not, its keeper may be starting another agent
  for (const int process : known_) {
    const rendezvous::AgentState& state = states_.at(process);
    // Not each member was told to run: the round may have been stopped before its store was open.
    const rendezvous::Node* const node = core.roster().find(scene_.process(process).config.incarnation);
    const bool is_member = node && node->seat >= 0;
    const bool is_quiet = state.phase == rendezvous::WorkersPhase::Quiet;
    const bool is_still = is_quiet || state.phase == rendezvous::WorkersPhase::Idle;
    if (is_quiet) coverage_.reached(Branch::QuietInWait);
    waits_for_link = waits_for_link || broke_.contains(process);
    waits_for_end = waits_for_end || (!is_still && is_member);
    const bool is_ready = is_still && state.unkillable.empty() && state.stop_signal == 0;
    ready += is_ready;
    own_is_ready = own_is_ready || (is_ready && process == scene_.coordinator->process);
  }
  const rendezvous::JobShape& job = scene_.plan.job;
  const bool is_elastic = job.min_nodes < job.max_nodes;
  const bool waits = waits_for_link || waits_for_end || !own_is_ready;
  promise(Promise::GoesOnAtOnce, !is_elastic || waits || ready < job.min_nodes, std::to_string(ready) + " nodes wait");
}

void Invariants::on_not_sent(int agent, const Directive& directive) {
  if (directive.kind != Directive::Kind::Exit) return;
  for (const auto& [process, link] : reported_) {
    if (scene_.network.link(link).agent_id != agent) continue;
    known_.erase(process);
  }
}

void Invariants::check_run(const Process& to, const Directive& directive) {
  const Assignment& run = directive.assignment;
  Members& members = rounds_[directive.round];
  if (const auto told = found(members, to.index)) {
    return promise(Promise::RunIsRepeated, *told == run, to.config.host + ", round " + std::to_string(directive.round));
  }
  if (members.empty()) check_budget(directive.round, directive);
  members[to.index] = run;
  lost_by_cut_.erase(to.index);

  const Assignment& other = members.begin()->second;
  const auto agreed = [](const Assignment& a) {
    return std::tuple(a.world_size, a.node_count, a.restart_count, a.max_restarts, a.master_port);
  };
  const rendezvous::JobShape& job = scene_.plan.job;
  const std::string who = to.config.host + ", node rank " + std::to_string(run.node_rank) + " of " +
                          std::to_string(run.node_count) + " in round " + std::to_string(directive.round);
  promise(Promise::StrangersStayOut, to.role != Process::Role::ShapeDiffers || is_alike(to.config, job), who);
  promise(Promise::MembersAgree, agreed(run) == agreed(other), who);
  const bool is_coordinators = to.machine == scene_.coordinator->machine;
  promise(Promise::ZeroIsTheCoordinators, (run.node_rank == 0) == is_coordinators, who);
  promise(Promise::GivenRankIsKept, !job.node_ranks_given || run.node_rank == to.config.node_rank, who);
  promise(Promise::NodesWithinLimits, run.node_count >= job.min_nodes && run.node_count <= job.max_nodes, who);
  check_master_addr(to, run, other);
  check_ranks(members);
  check_role_ranks(members);
  if (directive.round == 1) check_order(members);
  check_room(members);
  if (challengers_.count(to.index) != 0) coverage_.reached(Branch::ChallengerBecomesHolder);
  const bool is_short = directive.round == 1 && run.node_count < job.max_nodes;
  if (is_short) coverage_.reached(Branch::LastCall);
  promise(Promise::LastCallIsKept, !is_short || scene_.now >= *first_heard_ + scene_.plan.last_call, who);
  const auto before = rounds_.find(directive.round - 1);
  if (before != rounds_.end() && !job.node_ranks_given) check_seats(before->second, members);
}

void Invariants::check_master_addr(const Process& to, const Assignment& run, const Assignment& other) const {
  const Plan& plan = scene_.plan;
  const std::string& address = run.master_addr;
  const std::string who = to.config.host + " has MASTER_ADDR '" + address + "'";
  promise(Promise::OneMasterAddr, address == other.master_addr, who);
  promise(Promise::OneMasterAddr, !address.empty() || addresses_differ_, who);
  if (address.empty()) return coverage_.reached(Branch::AddressesDiffer);
  if (address == arrived_at(plan, 1)) coverage_.reached(Branch::NumericAddress);
  if (run.node_count == 1) return;
  const bool is_spelled = address == to.config.endpoint_host && (!plan.is_loopback || to.machine == 0);
  const bool is_arrival = to.index == scene_.coordinator->process
                              ? address != "127.0.0.1"
                              : address == arrived_at(plan, to.machine) && !plan.is_translated;
  promise(Promise::OneMasterAddr, is_spelled || is_arrival, who);
}

// Checks the ranks of the members that have received theirs: a member whose link is broken receives them later.
void Invariants::check_ranks(const Members& members) const {
  const std::size_t size = members.size();
  if (size > 200 && size < static_cast<std::size_t>(members.begin()->second.node_count))
    return;                                  // in a crowd only once, at the end
  std::map<int, std::pair<int, int>> ranks;  // by node rank: its first rank, and the one after its last
  for (const auto& [process, run] : members) {
    const bool is_new =
        ranks.emplace(run.node_rank, std::pair(run.base_rank, run.base_rank + scene_.process(process).config.workers))
            .second;
    promise(Promise::RanksAreExact, is_new, "two nodes have node rank " + std::to_string(run.node_rank));
  }
  const Assignment& any = members.begin()->second;
  for (auto node = ranks.begin(); node != ranks.end(); ++node) {
    const auto& [rank, range] = *node;
    const auto next = std::next(node);
    const std::string who = "node rank " + std::to_string(rank) + " has ranks " + std::to_string(range.first) + " to " +
                            std::to_string(range.second - 1) + " of " + std::to_string(any.world_size);
    promise(Promise::RanksAreExact, rank >= 0 && rank < any.node_count && range.first >= rank, who);
    promise(Promise::RanksAreExact, rank != 0 || range.first == 0, who);
    promise(Promise::RanksAreExact, rank + 1 != any.node_count || range.second == any.world_size, who);
    promise(Promise::RanksAreExact, range.second <= any.world_size, who);
    if (next == ranks.end()) continue;
    const bool are_neighbours = next->first == rank + 1;
    promise(Promise::RanksAreExact,
            are_neighbours ? next->second.first == range.second : next->second.first > range.second, who);
  }
}

// Checks the ranks within each role, once all members have been told.
void Invariants::check_role_ranks(const Members& members) const {
  if (members.size() < static_cast<std::size_t>(members.begin()->second.node_count)) return;
  std::map<int, int> by_node_rank;  // processes
  for (const auto& [process, run] : members) by_node_rank[run.node_rank] = process;
  std::map<std::string, int> next;
  for (const auto& [node_rank, index] : by_node_rank) {
    const Process& process = scene_.process(index);
    int& rank = next[process.config.role];
    promise(Promise::RoleRanksAreExact, members.at(index).base_role_rank == rank, process.config.host);
    rank += process.config.workers;
  }
  for (const auto& [index, run] : members) {
    const Process& process = scene_.process(index);
    promise(Promise::RoleRanksAreExact, run.role_world_size == next[process.config.role], process.config.host);
  }
}

// Whether a node's rank may be another in the next round, since another node coordinates: that one has rank 0 then, and
// the one before gives it up.
bool Invariants::changes_for_takeover(int process, const Assignment& before) const {
  return scene_.plan.has_etcd && (process == scene_.coordinator->process || before.node_rank == 0);
}

void Invariants::check_seats(const Members& before, const Members& now) const {
  const bool none_closed = now.begin()->second.node_count >= before.begin()->second.node_count;
  if (!none_closed) coverage_.reached(Branch::SeatsCloseUp);
  for (const auto& [process, run] : now) {
    const auto old = found(before, process);
    if (!old) {
      if (run.node_rank < before.begin()->second.node_count) coverage_.reached(Branch::SpareTakesAPlace);
      continue;
    }
    if (lost_at_.count(process) != 0) continue;  // it came back as a new node
    if (changes_for_takeover(process, *old)) continue;
    const std::string who = scene_.process(process).config.host + " had node rank " + std::to_string(old->node_rank) +
                            " and has " + std::to_string(run.node_rank);
    promise(Promise::RanksStay, none_closed ? run.node_rank == old->node_rank : run.node_rank <= old->node_rank, who);
    for (const auto& [other, others_run] : now) {
      const auto others_old = found(before, other);
      if (!others_old || lost_at_.count(other) != 0 || changes_for_takeover(other, *others_old)) continue;
      promise(Promise::RanksStay, (old->node_rank < others_old->node_rank) == (run.node_rank < others_run.node_rank),
              who);
    }
  }
}

// Checks the order of a new job, once all members have been told.
void Invariants::check_order(const Members& members) const {
  if (scene_.plan.job.node_ranks_given) return;
  if (members.size() < static_cast<std::size_t>(members.begin()->second.node_count)) return;
  std::map<int, std::tuple<int, int, std::string>> by_node_rank;  // what is to be in order
  for (const auto& [index, run] : members) {
    const Process& process = scene_.process(index);
    by_node_rank[run.node_rank] = {process.config.wanted_rank, process.machine, process.config.host};
  }
  for (auto node = std::next(by_node_rank.begin()); node != by_node_rank.end(); ++node) {
    const auto next = std::next(node);
    promise(Promise::NewJobIsInOrder, next == by_node_rank.end() || node->second <= next->second,
            std::get<2>(node->second));
  }
}

// A reason names the node where a round's end began: "rank 5 on node h3 ...", "node h3 (10.1.3.1) was lost: ...".
void Invariants::note_first_cause(int round, const Directive& run) {
  const std::string& reason = run.reason;
  const bool names_it = run.why != Reason::None && run.why != Reason::Hang;
  const auto at = reason.find("node ");
  if (!names_it || at == std::string::npos) return;
  first_causes_[round] = reason.substr(at + 5, reason.find_first_of(" :", at + 5) - at - 5);
}

// The coordinator may count more: a loss that costs no restart has no reason that is heard.
void Invariants::check_room(const Members& members) const {
  const int limit = scene_.plan.job.exclude_after;
  if (limit == 0) return;
  const auto is_faulty = [&](const std::string& host) {
    const auto is_its = [&](const auto& cause) { return cause.second == host; };
    return std::count_if(first_causes_.begin(), first_causes_.end(), is_its) >= limit;
  };
  const bool one_waits =
      std::any_of(waited_.begin(), waited_.end(), [&](const std::string& host) { return !is_faulty(host); });
  for (const auto& [index, run] : members) {
    const std::string& host = scene_.process(index).config.host;
    const bool must = is_faulty(host) && run.node_rank != 0;
    if (must) coverage_.reached(Branch::FaultyRuns);
    promise(Promise::FaultyMakesRoom, !must || !one_waits, host);
  }
}

// Notes the nodes that had no place when the newest round was opened. One of which the coordinator may count more
// failures than were heard of does not count.
void Invariants::note_waiting() {
  waited_.clear();
  const rendezvous::CoordinatorCore& core = scene_.coordinator->core;
  for (const auto& [incarnation, node] : core.roster().nodes()) {
    if (core.roster().is_spare(node) && !perhaps_faulty_.contains(node.state.host)) waited_.insert(node.state.host);
  }
}

void Invariants::note_restart() {
  restarts_at_.push_back(scene_.now);
  promise(Promise::BudgetIsKept, restarts_in_window() <= scene_.plan.job.max_restarts, "");
}

int Invariants::restarts_in_window(milliseconds longer) const {
  const milliseconds length = scene_.plan.job.restart_window;
  const milliseconds window = length.count() == 0 ? length : length + longer;
  const Time decided = scene_.coordinator->over_since.value_or(scene_.now);  // a node may hear of it much later
  return static_cast<int>(std::count_if(restarts_at_.begin(), restarts_at_.end(),
                                        [&](Time time) { return window.count() == 0 || decided - time < window; }));
}

void Invariants::check_budget(int round, const Directive& run) {
  const int restarts = run.assignment.restart_count;
  const rendezvous::JobShape& job = scene_.plan.job;
  const std::string text = "round " + std::to_string(round) + " has restart count " + std::to_string(restarts) +
                           " of " + std::to_string(job.max_restarts);
  const bool is_within = job.restart_window.count() > 0 || restarts <= job.max_restarts;
  promise(Promise::BudgetIsKept, restarts >= 0 && is_within, text);
  if (round > 1) note_first_cause(round, run);
  if (job.min_nodes == job.max_nodes) promise(Promise::FixedCountsEach, restarts == round - 1, text);
  promise(Promise::BudgetIsKept, scene_.plan.on_hang != launcher::OnHang::Stop || run.why != Reason::Hang, run.reason);
  if (round > 1) {
    const bool restart = run.why != Reason::None;
    const bool loss = restart && run.why != Reason::WorkerFailed;
    coverage_.reached(loss && restart ? Branch::RestartAfterLoss
                      : restart       ? Branch::RestartAfterFailure
                                      : Branch::RoundAfterMembership);
    if (run.why == Reason::Hang) coverage_.reached(Branch::HangRestarts);
    if (stop_why_ == Reason::WorkerFailed && (loss || !restart)) coverage_.reached(Branch::LossExplainsFailure);
  }
  auto previous = rounds_.lower_bound(round);
  if (previous == rounds_.begin()) return lost_noticed_.clear();  // a loss before the first round explains nothing
  --previous;
  const int before = previous->second.begin()->second.restart_count;
  promise(Promise::BudgetIsKept, restarts >= before && restarts <= before + round - previous->first, text);
  const bool a_worker_failed = no_start_in_ >= previous->first ||
                               std::any_of(scene_.workers.begin(), scene_.workers.end(), [&](const Worker& w) {
                                 return w.round >= previous->first && !w.acts && !w.status.success() && w.root >= 0;
                               });
  const bool one_hung = newest_hang_ >= previous->first;
  const bool may_spend = job.min_nodes == job.max_nodes || a_worker_failed || loss_was_late(round - 1) || one_hung;
  promise(Promise::MembershipIsFree, restarts == before || may_spend,
          text + ", and no worker failed by itself: " + run.reason);
  if (run.cause && restarts > before) check_cause(*run.cause);
  lost_noticed_.clear();
}

bool Invariants::is_in_newest_round(int process) const {
  return !rounds_.empty() && rounds_.rbegin()->second.contains(process);
}

// Whether each loss of a round was noticed only after the cause window, counted from the first failure that was
// reported: then the coordinator cannot know that the loss explains the failure.
bool Invariants::loss_was_late(int round) const {
  Time first = Time::max();
  for (const Worker& worker : scene_.workers) {
    if (worker.round == round && worker.reported != 0) first = std::min(first, worker.reported_at);
  }
  return first != Time::max() && !lost_noticed_.empty() &&
         std::all_of(lost_noticed_.begin(), lost_noticed_.end(),
                     [&](const auto& lost) { return lost.second > first + kCauseWindow; });
}

void Invariants::check_exit(const Process& to, const Directive& exit) {
  if (is_refusal(exit) || lets_go(exit)) {
    known_.erase(to.index);
    if (lets_go(exit)) coverage_.reached(Branch::NodeLeaves);
    if (exit.why == Reason::RankIsHeld) coverage_.reached(Branch::ChallengerRefused);
    if (exit.why == Reason::OptionsDiffer) coverage_.reached(Branch::ShapeRefused);
    return;
  }
  promise(Promise::OneEnd, scene_.coordinator->core.over(), "an Exit before the end: " + exit.reason);
  if (the_end_) {
    return promise(Promise::OneEnd, exit.reason == the_end_->reason && exit.exit_code == the_end_->exit_code,
                   "first '" + the_end_->reason + "', now '" + exit.reason + "' to " + to.config.host);
  }
  the_end_ = exit;
  if (exit.exit_code == 0) check_success("the coordinator");
  if (exit.why == Reason::NodesMissing) {
    coverage_.reached(Branch::JoinTimeout);
    promise(Promise::JoinTimeoutIsKept, scene_.now >= *first_heard_ + scene_.plan.join_timeout, exit.reason);
  }
  if (exit.why == Reason::NotReplaced) coverage_.reached(Branch::NoReplacement);
  check_patience(exit);
  if (exit.why == Reason::Unkillable) coverage_.reached(Branch::UnkillableEndsJob);
  if (exit.why == Reason::StopSignal) coverage_.reached(Branch::UserStopsJob);
  if (exit.why == Reason::NoStore) coverage_.reached(Branch::StoreFailed);
  if (exit.exit_code == 0) coverage_.reached(Branch::AllSucceeded);
  if (exit.why == Reason::Hang && scene_.plan.on_hang == launcher::OnHang::Stop && scene_.plan.job.max_nodes > 1) {
    coverage_.reached(Branch::HangEnds);
    promise(Promise::BudgetIsKept, exit.exit_code == 1, exit.reason);
  }
  const bool are_nodes_missing = exit.why == Reason::NodesMissing || exit.why == Reason::NotReplaced;
  promise(Promise::CauseGivesCode, !are_nodes_missing || exit.exit_code == kStartAgain, exit.reason);
  if (!exit.cause) return;
  check_cause(*exit.cause);
  promise(Promise::CauseGivesCode, exit.exit_code == exit.cause->status.shell_code(), exit.reason);
  const bool is_used_up = restarts_in_window(rounded_) >= scene_.plan.job.max_restarts;
  promise(Promise::BudgetIsUsed, is_used_up || exit.why == Reason::Unkillable || exit.why == Reason::NeverRan,
          exit.reason);
  if (is_used_up) coverage_.reached(Branch::BudgetUsedUp);
}

// The coordinator cannot know everything, so these are allowed. Among workers that did not crash, or not as the first
// one on their node, only the order of the reports says which failed first. A worker that aborts on the node of the
// first failure may have done so by itself. A worker that hung looks alive until it is ended. What is reported after
// the cause window comes too late.
void Invariants::check_cause(const rendezvous::WorkerFailure& cause) const {
  if (cause.pid == 0) return;  // the worker could not be started
  const Worker& named_one = scene_.worker(cause.pid - 1000);
  promise(Promise::CauseIsFirst, named_one.why == Why::Own || named_one.why == Why::Peer,
          describe(named_one) + " was ended by ddprun");
  if (named_one.why == Why::Own) return;
  coverage_.reached(Branch::PeerReportedFirst);
  const Worker* first = &named_one;
  for (const Worker& worker : scene_.workers) {
    if (worker.round == named_one.round && worker.reported != 0 && worker.reported < first->reported) first = &worker;
  }
  const Time window_ends = first->reported_at + kCauseWindow;
  if (named_one.root < 0) {
    const bool none_is_lost = named_one.root == kLostNode && lost_noticed_.empty();
    return promise(Promise::CauseIsFirst, none_is_lost || loss_was_late(named_one.round),
                   describe(named_one) + " failed because of a loss, or of a peer that ddprun ended");
  }
  const Worker& root = scene_.worker(named_one.root);
  const bool hung = root.why != Why::Own || root.culprit;  // the watchdogs of its peers came first
  if (root.reported == 0 || root.reported_at > window_ends || hung) return;
  // A worker that could not be started there may have been the first.
  const bool began_it_there =
      no_start_in_ != root.round && std::none_of(scene_.workers.begin(), scene_.workers.end(), [&](const Worker& w) {
        return w.process == root.process && w.round == root.round && w.reported != 0 &&
               w.acted_until < root.acted_until;
      });
  const bool root_crashed = began_it_there && root.status.signal != 0 && root.status.signal != SIGABRT;
  const bool may_have_crashed = named_one.process == first->process && named_one.status.signal != 0;
  promise(Promise::CauseIsFirst, !root_crashed && (named_one.reported < root.reported || may_have_crashed),
          describe(named_one) + " failed because of " + describe(root));
}

void Invariants::on_said(const std::string& text) {
  const bool is_disbelieved = has(text, "it reported ") || has(text, "it went back to");
  promise(Promise::HonestAreBelieved, !is_disbelieved || has(text, ("(" + std::string(kLiarsAddress)).c_str()), text);
  if (has(text, "MASTER_ADDR is not the same")) addresses_differ_ = true;
  if (text == said_again_) return said_again_.clear();
  const bool is_lost = has(text, " was lost: ");
  if (!is_lost && !has(text, " left the job")) return;
  const Process* process = process_on(text.substr(5, text.find(' ', 5) - 5));
  if (!process) return;  // it is the coordinator's own
  if (is_lost) check_lost(*process, has(text, "its link broke"));
  perhaps_faulty_.insert(process->config.host);
  lost_at_[process->index] = scene_.now;
  if (is_lost) lost_in_[process->index] = scene_.coordinator->core.round();
  // The loss of a spare explains nothing, nor does one that comes after it was decided how the job goes on.
  if (!gathering_since_ && is_in_newest_round(process->index)) {
    lost_noticed_[process->index] = is_lost ? silent_since(process->index) : scene_.now;
  }
  known_.erase(process->index);
}

void Invariants::on_logged(const std::string& text) {
  if (!has(text, " was lost: ") || scene_.coordinator->core.over()) return;
  const Process* const process = process_on(text.substr(5, text.find(' ', 5) - 5));
  const auto round = process ? found(lost_in_, process->index) : std::nullopt;
  if (round) loss_told_[process->index] = *round;  // a newer one may have begun before this one was recorded
}

// Returns since when a process is silent, as far as the coordinator can know.
Time Invariants::silent_since(int process) const {
  const Time heard = found(heard_, process).value_or(Time());
  const Time broke = found(broke_, process).value_or(heard);
  return broke - heard >= scene_.plan.lost_after / 3 ? heard : broke;
}

void Invariants::check_lost(const Process& process, bool by_cut) {
  const std::string& host = process.config.host;
  const auto broke = found(broke_, process.index);
  const Duration window = scene_.plan.has_etcd ? rendezvous::acts_within(scene_.plan.lost_after) : kReconnectWindow;
  promise(Promise::LostNotTooEarly, !by_cut || (broke && scene_.now >= *broke + window), host);
  promise(Promise::LostNotTooEarly, by_cut || scene_.now >= heard_[process.index] + scene_.plan.lost_after, host);
  const Time calm_from = std::max(scene_.machine(process.machine).calm_from, scene_.network_calm_from);
  promise(Promise::LostOnlyInTrouble, !process.alive || scene_.now <= calm_from, host);
  coverage_.reached(by_cut ? Branch::LostByCut : Branch::LostBySilence);
  if (by_cut) lost_by_cut_.insert(process.index);
  for (const int id : scene_.alive) {
    const Worker& worker = scene_.worker(id);
    promise(Promise::LostNodeIsQuiet, worker.process != process.index || !acts_against_orders(worker),
            describe(worker));
  }
  const bool leftovers_act = process.alive && process.leftovers_act && could_kill(process);
  promise(Promise::LostNodeIsQuiet, !leftovers_act, host + ": what its workers left");
  if (newest_act(process) == Time() || !process.alive) return;
  auto& margin = by_cut ? coverage_.least_margin_cut : coverage_.least_margin_silence;
  const bool was_asleep = process.asleep || process.awake_since + scene_.plan.lost_after > scene_.now;
  if (!was_asleep) {
    margin = std::min(margin, std::chrono::duration_cast<milliseconds>(scene_.now - newest_act(process)));
  }
}

void Invariants::on_sent_off(const Process& to, const Directive& directive) {
  sent_off_[to.index] = directive;
  const bool is_the_end = directive.kind == Directive::Kind::Exit && !is_refusal(directive) && !lets_go(directive);
  if (is_the_end) sent_end_ = directive;
  if (directive.kind != Directive::Kind::Run) return;
  sent_round_ = std::max(sent_round_, directive.round);
  sent_restarts_ = std::max(sent_restarts_, directive.assignment.restart_count);
}

// Returns how long a link of this process that broke has to come back.
milliseconds Invariants::window_of(int process) const {
  const bool is_long = scene_.plan.has_etcd || restored_.contains(process);
  return is_long ? rendezvous::acts_within(scene_.plan.lost_after) : kReconnectWindow;
}

void Invariants::on_told_by(const Coordinator& coordinator) const {
  promise(Promise::OneHolderTells, !scene_.plan.has_etcd || scene_.etcd.holder == coordinator.index,
          "the one with epoch " + std::to_string(coordinator.epoch));
  // As long as it asks, it only lets nodes go that their users stop.
  promise(Promise::GoneIsGone, !coordinator.is_newcomer || coordinator.is_answered || coordinator.core.asks(),
          "the one with epoch " + std::to_string(coordinator.epoch));
}

void Invariants::on_epoch(const Directive& directive, int coordinator) {
  const auto [known, is_new] = epochs_.emplace(directive.epoch, coordinator);
  promise(Promise::OneForAnEpoch, known->second == coordinator, directive.epoch);
}

void Invariants::check_told(const rendezvous::JobRecord& record) const {
  using Phase = rendezvous::CoordinatorCore::Phase;
  const auto phase = static_cast<Phase>(record.phase);
  promise(Promise::ToldIsKept, record.round >= sent_round_,
          "round " + std::to_string(sent_round_) + " was announced, " + std::to_string(record.round) + " is known");
  promise(
      Promise::ToldIsKept, record.restarts >= sent_restarts_,
      std::to_string(sent_restarts_) + " restarts were announced, " + std::to_string(record.restarts) + " are known");
  promise(Promise::ToldIsKept, !sent_end_ || (record.exit && record.exit->reason == sent_end_->reason),
          sent_end_ ? sent_end_->reason : "");
  for (const auto& [process, round] : loss_told_) {
    const std::string& lost = scene_.process(process).config.incarnation;
    const bool is_member = round == record.round && !record.exit &&
                           std::any_of(record.members.begin(), record.members.end(),
                                       [&](const auto& member) { return member.incarnation == lost; });
    promise(Promise::ToldIsKept, !is_member, scene_.process(process).config.host + " was lost");
  }
  const bool may_run = phase == Phase::Opening || phase == Phase::Running;
  for (const auto& [process, told] : sent_off_) {
    const bool is_stop = told.kind == Directive::Kind::Stop && told.round == record.round &&
                         told.stop_signal != SIGKILL && told.why != Reason::Spare && told.why != Reason::MakesRoom;
    promise(Promise::ToldIsKept, !is_stop || !may_run, scene_.process(process).config.host + ": " + told.reason);
  }
}

// The new life knows what was recorded; what was decided after that is forgotten, and was told to nobody. Of the nodes
// it knows only those that have a seat, and they have to link again.
void Invariants::on_recovery(const std::optional<rendezvous::JobRecord>& left) {
  using Phase = rendezvous::CoordinatorCore::Phase;
  const rendezvous::JobRecord record = left.value_or(rendezvous::JobRecord());
  must_be_over_ = must_be_over_ || (!left && scene_.plan.has_etcd && is_begun());
  if (!must_be_over_) check_told(record);
  const auto phase = static_cast<Phase>(record.phase);
  known_.clear();
  for (const Process& process : scene_.processes) {
    for (const auto& member : record.members) {
      if (member.incarnation == process.config.incarnation) known_.insert(process.index);
    }
  }
  restored_ = known_;
  rounded_ += milliseconds(2);
  for (const int process : known_) {
    heard_[process] = broke_[process] = scene_.now;
    const auto lost_in = found(lost_in_, process);
    const bool came_back = lost_in && *lost_in < record.round;  // and has a seat of a later round
    if (!came_back) lost_at_.erase(process);                    // the loss was not recorded
    lost_noticed_.erase(process);
    states_[process].phase = rendezvous::WorkersPhase::Running;
  }
  rounds_.erase(rounds_.upper_bound(phase == Phase::Opening ? record.round - 1 : record.round), rounds_.end());
  first_causes_.erase(first_causes_.upper_bound(record.round), first_causes_.end());
  told_ = sent_off_;
  if (!record.exit) the_end_.reset();
  const auto own = found(sent_off_, scene_.coordinator->process);
  own_was_told_ = own && own->kind == Directive::Kind::Exit;
  // It has heard the end of one life, and the next may take it for a node that was lost: that does not keep it.
  own_was_told_before_ = own_was_told_ || heard_the_end_.contains(scene_.coordinator->process);
  stop_reason_ = record.stop.reason;
  stop_why_ = record.stop.why;
  said_again_ = phase == Phase::Stopping ? record.stop.reason : "";
  const auto restarts = static_cast<std::size_t>(record.restarts);
  restarts_at_.resize(std::min(restarts_at_.size(), restarts));
  // Those that were decided, and never told. With a window the record has only the newest.
  const std::size_t untold = std::min(restarts - restarts_at_.size(), record.spent.size());
  for (std::size_t i = record.spent.size() - untold; i < record.spent.size(); ++i) {
    restarts_at_.push_back(scene_.coordinator->kept_at - record.spent[i]);
  }
  restarts_seen_ = record.restarts;
  round_seen_ = record.round;
  gathering_since_.reset();
  if (record.gathers_since && record.round > 0) gathering_since_ = scene_.coordinator->kept_at - *record.gathers_since;
  challengers_.clear();
  stopping_since_.reset();
}

void Invariants::on_answered() {
  coverage_.reached(Branch::RecordIsOfLivingJob);
  for (auto& [process, when] : heard_) when = scene_.now;  // what the others had said lay unread
  for (const int process : restored_) broke_[process] = scene_.now;
}

void Invariants::on_store_lost(int clients) const {
  const bool goes_on = scene_.coordinator->core.phase() == rendezvous::CoordinatorCore::Phase::Running;
  promise(Promise::StoreIsMissed, goes_on == (clients == 0), std::to_string(clients) + " connections");
}

void Invariants::on_stepped() {
  const Coordinator& coordinator = *scene_.coordinator;
  const auto held = coordinator.core.held();
  const auto nodes = static_cast<std::size_t>(scene_.plan.job.max_nodes);
  promise(Promise::StateIsBounded, held.nodes <= nodes + rendezvous::kMaxSpares, std::to_string(held.nodes) + " nodes");
  promise(Promise::StateIsBounded,
          held.links <= coordinator.links.size() && held.silent_links <= coordinator.links.size(),
          std::to_string(held.links) + " and " + std::to_string(held.silent_links) + " links");
  promise(Promise::StateIsBounded, held.losses <= 8 * nodes, std::to_string(held.losses) + " losses");
  promise(Promise::OverForEver, coordinator.core.over() == coordinator.over_since.has_value(), "");
  promise(Promise::ToldIsKept, !must_be_over_ || coordinator.core.over(), "there is no record, and a job begins");
  if (coordinator.core.round() != round_seen_) note_waiting();
  round_seen_ = coordinator.core.round();
  if (coordinator.core.restarts() > restarts_seen_) note_restart();
  restarts_seen_ = coordinator.core.restarts();
  const bool stops = coordinator.core.phase() == rendezvous::CoordinatorCore::Phase::Stopping;
  if (!stops) stopping_since_.reset();
  if (stops && !stopping_since_) stopping_since_ = scene_.now;
  check_quiet();
  const bool is_crowd = scene_.processes.size() > 200;
  if (!is_crowd) check_goes_on();
  if (!coordinator.core.over() && !is_crowd) check_silent_are_lost();
  if (coordinator.core.phase() == rendezvous::CoordinatorCore::Phase::Running && !is_crowd) check_free_seats();
  if (coordinator.core.phase() == rendezvous::CoordinatorCore::Phase::Stopping && !is_crowd) check_second_signal();
  for (const int process : known_) {
    if (!coordinator.core.over() || is_crowd) break;
    const Process& node = scene_.process(process);
    const bool is_own =
        node.machine == coordinator.machine && node.role == Process::Role::Wanted;  // also one that is replaced
    const bool can_hear = !is_own && broke_.count(process) == 0;
    promise(Promise::EndIsTold, !can_hear || told_[process].kind == Directive::Kind::Exit,
            scene_.process(process).config.host);
  }
  const bool others_left = known_.size() == 1 && known_.count(coordinator.process) != 0;
  const bool own_has_link = std::any_of(coordinator.links.begin(), coordinator.links.end(), [&](const auto& link) {
    return link.second == found(reported_, coordinator.process);
  });
  const bool own_can_hear =
      scene_.process(coordinator.process).alive && own_has_link && broke_.count(coordinator.process) == 0;
  const bool is_due = coordinator.core.over() && others_left && perhaps_lost_.empty() && own_can_hear;
  promise(Promise::OwnAgentLeavesThen, !is_due || own_was_told_, "");
}

// Checks the second signal of the user who ends the job; one on a node that only leaves does not count.
void Invariants::check_second_signal() const {
  const bool is_second = std::any_of(known_.begin(), known_.end(), [&](int process) {
    const bool ends_job =
        has(stop_reason_ + " (", (" received on node " + scene_.process(process).config.host + " (").c_str());
    return ends_job && states_.at(process).stop_signal == SIGKILL && broke_.count(process) == 0;
  });
  const auto members = rounds_.find(scene_.coordinator->core.round());
  if (!is_second || members == rounds_.end()) return;
  for (const auto& [process, run] : members->second) {
    const bool can_hear = known_.count(process) != 0 && broke_.count(process) == 0 && lost_at_.count(process) == 0;
    promise(Promise::SecondSignalKills, !can_hear || told_.at(process).stop_signal == SIGKILL,
            scene_.process(process).config.host);
  }
}

bool Invariants::has_succeeded(int process) const {
  const auto state = states_.find(process);
  if (state == states_.end() || known_.count(process) == 0) return false;
  const bool is_done = state->second.phase == rendezvous::WorkersPhase::Idle && state->second.succeeded;
  return is_done && state->second.round == scene_.coordinator->core.round();
}

// Whether a worker of this process is about to end, as far as the coordinator knows.
bool Invariants::is_ending(int process) const {
  const auto state = states_.find(process);
  return state != states_.end() && state->second.is_ending && state->second.round == scene_.coordinator->core.round();
}

void Invariants::check_free_seats() const {
  const rendezvous::JobShape& job = scene_.plan.job;
  const auto round = rounds_.find(scene_.coordinator->core.round());
  if (job.min_nodes == job.max_nodes || round == rounds_.end()) return;
  const Members& members = round->second;
  int free = job.max_nodes - static_cast<int>(members.size());
  if (static_cast<int>(members.size()) < members.begin()->second.node_count) return;  // some have not been told
  for (const auto& [process, run] : members) {
    if (has_succeeded(process)) return;
    if (known_.contains(process) && is_ending(process)) return coverage_.reached(Branch::AboutToEnd);
    free += known_.count(process) == 0;
  }
  for (const int process : known_) {
    const rendezvous::AgentState& state = states_.at(process);
    const bool may_sit = state.phase == rendezvous::WorkersPhase::Idle && state.unkillable.empty() &&
                         state.stop_signal == 0 && broke_.count(process) == 0;
    const bool waits = members.count(process) == 0 && may_sit;
    promise(Promise::FreeSeatIsGiven, free <= 0 || !waits, scene_.process(process).config.host);
  }
}

void Invariants::check_silent_are_lost() const {
  const Runner& own = scene_.coordinators_process();
  if (own.asleep) return;
  for (const int index : known_) {
    const Process& process = scene_.process(index);
    const bool is_own = index == scene_.coordinator->process && !scene_.coordinator->is_apart;
    if (is_own || process.user_stopped) continue;  // a node that leaves is released
    const auto heard = found(heard_, index);
    const auto broke = found(broke_, index);
    if (!heard) continue;
    Time lost = std::max(*heard, own.awake_since) + scene_.plan.lost_after;
    if (broke) lost = std::max(*broke, own.awake_since) + window_of(index);
    promise(Promise::LostNotTooLate, scene_.now <= lost + seconds(3), process.config.host);
  }
}

}  // namespace ddp::sim
