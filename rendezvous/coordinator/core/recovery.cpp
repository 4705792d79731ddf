// SPDX-License-Identifier: BSD-3-Clause
// What the coordinator's core keeps for another life of itself, and how that one begins with it, on this node or on
// another one. The rest of the core is in coordinator_core.cpp; the record's bytes are in job_record.hpp.
#include <chrono>
#include <csignal>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "rendezvous/base/exit_code.hpp"
#include "rendezvous/base/text.hpp"
#include "rendezvous/coordinator/core/coordinator_core.hpp"

namespace ddp::rendezvous {

using std::chrono::milliseconds;

JobRecord CoordinatorCore::record() const {
  const auto age = [this](TimePoint time) { return std::chrono::duration_cast<milliseconds>(now_ - time); };
  JobRecord record;
  record.phase = static_cast<int>(job_.phase);
  record.round = job_.round;
  gathering_.save(now_, record);
  round_end_.save(now_, record);
  if (job_.phase == Phase::Running) record.run = run_;
  if (end_) record.exit = end_->exit;
  record.own = roster_.own();
  record.instance = identity_.instance;
  record.node = config_.node;
  record.host = config_.host;
  record.before = identity_.before;
  for (const Incarnation& seat : roster_.seats()) {
    JobRecord::Member& member = record.members.emplace_back();
    if (seat.empty()) continue;
    const Node& node = roster_.at(seat);
    const AgentState& state = node.state;
    member = {.incarnation = seat,
              .host = state.host,
              .address = node.address,
              .arrived_at = node.arrived_at,
              .endpoint_host = state.endpoint_host,
              .coordinator_address = state.coordinator_address,
              .role = state.role,
              .addresses = state.addresses,
              .node_rank = state.node_rank,
              .wanted_rank = state.wanted_rank,
              .slots = state.slots,
              .base_rank = node.base_rank,
              .base_role_rank = node.directive.assignment.base_role_rank,
              .role_world_size = node.directive.assignment.role_world_size,
              .can_look = state.can_look,
              .leaving = node.leaving,
              .heard = age(node.heard)};
  }
  return record;
}

void CoordinatorCore::on(const Recovered& event) {
  // A node that was part of a job that is over helps to end it; for another one the next job begins.
  const bool is_new_here = config_.epoch_is_number && config_.own_epoch.empty();
  const bool is_over = event.record && event.record->exit;
  if (!event.record || (is_over && is_new_here)) return begin_job(event.record);
  const bool is_newcomer = is_new_here && event.record->node != config_.node;
  if (is_newcomer && event.record->round > 0) return ask_whether_it_lives(event);
  go_on(event);
  if (is_newcomer) gathering_.forget();  // there was no round, so the nodes have all of their time again
}

// Goes on where another life of this coordinator was killed. The agents link again and report; until then their nodes
// count as nodes whose links broke just now, and have as long as their workers may act. These run on meanwhile.
void CoordinatorCore::go_on(const Recovered& event) {
  const JobRecord& record = *event.record;
  const TimePoint recorded = now_ - event.age;
  job_ = {.phase = static_cast<Phase>(record.phase), .round = record.round};
  gathering_.restore(recorded, record);
  round_end_.restore(recorded, record);
  identity_.before = record.before;
  identity_.instance = record.instance;
  const bool is_takeover = record.node != config_.node;
  roster_.set_own(is_takeover ? Incarnation() : record.own);
  restore_members(record, recorded);
  run_ = record.run;
  if (record.exit) end_ = {.exit = *record.exit, .since = now_, .is_missed = true};  // the record has no spares
  for (Directive* const told : {run_ ? &*run_ : nullptr, end_ ? &end_->exit : nullptr}) {
    if (!told) continue;
    const Directive made = make(told->kind, Why::None, "");
    told->epoch = made.epoch;
    told->instance = made.instance;
    told->back_within = made.back_within;
    told->can_look = made.can_look;
  }
  next_silence_check_ = now_ + kBetweenSilenceChecks;
  const bool runs = job_.phase == Phase::Opening || job_.phase == Phase::Running;
  if (!is_takeover || !runs) tell_again(record);
  if (is_takeover) take_over(record);
}

// Begins a job where nothing is to go on: there is no record, or the job that left it has ended.
void CoordinatorCore::begin_job(const std::optional<JobRecord>& left) {
  is_news_ = true;
  if (left) identity_.before = JobRecord::Before{left->instance, *left->exit};
  if (left || config_.own_epoch.empty()) return;
  finish(make_exit({.why = Why::JobIsGone},
                   "the record of the job that this node was part of is gone, so nobody knows how to go on"));
}

// ---- A record that may be of a job that is gone ----

// A node that is new in the job finds its record, and nobody coordinates. If all nodes of that job were killed, this is
// the next job with its --rdzv-id, and begins with nothing of it. If one of them lives, it links within this time, or
// its workers are dead. Until then no new node is answered, since an agent that has obeyed serves one job only.
void CoordinatorCore::ask_whether_it_lives(const Recovered& event) {
  question_ = {.left = event,
               .since = now_,
               .until = now_ + acts_within(config_.lost_after),
               .tell_at = now_ + kFirstWaitingMessage,
               .newcomers = {}};
  next_silence_check_ = now_ + kBetweenSilenceChecks;  // a time without any step would count as sleep
}

// Returns whether the report is dealt with: it is kept until the question is answered, or answers it, or its node goes.
bool CoordinatorCore::has_to_wait(const AgentReported& event) {
  const AgentState& state = event.state;
  if (!state.epoch.empty()) {
    const bool lives = state.instance == question_->left.record->instance && !state.left;
    if (!lives) return state.left;
    answer_question(true);
    on(event);
    return true;
  }
  question_->newcomers.erase(event.agent);
  if (state.left) return true;
  if (state.stop_signal != 0) {
    actions_->push_back(SendDirective{event.agent, let_go(state.stop_signal)});
    if (event.address.empty()) own_leaves(event.agent);
    return true;
  }
  const bool is_full = question_->newcomers.size() >= static_cast<std::size_t>(config_.job.max_nodes) + kMaxSpares;
  if (is_full && !event.address.empty()) return true;  // its link is closed in a moment
  links_.has_node(event.agent);
  question_->newcomers.emplace(event.agent, event);
  return true;
}

void CoordinatorCore::watch_question() {
  if (now_ >= question_->until) return answer_question(false);
  if (!question_->tell_at || now_ < *question_->tell_at) return;
  question_->tell_at.reset();
  actions_->push_back(
      CoordinatorLogLine{"there is the record of a job with this --rdzv-id which nobody has ended, the newest round " +
                         std::to_string(question_->left.record->round) + " of node " + question_->left.record->host +
                         ": waiting " + to_string(acts_within(config_.lost_after)) + " for one of its nodes"});
}

void CoordinatorCore::answer_question(bool lives) {
  Question asked = *std::exchange(question_, std::nullopt);
  if (lives) {
    asked.left.age += std::chrono::duration_cast<milliseconds>(now_ - asked.since);
    go_on(asked.left);
  } else {
    begin_after(*asked.left.record);
  }
  for (const auto& [agent, report] : asked.newcomers) on(report);
}

void CoordinatorCore::begin_after(const JobRecord& gone) {
  is_news_ = true;
  Directive exit = make_exit({.why = Why::JobIsGone},
                             "none of its nodes has answered within " + to_string(acts_within(config_.lost_after)));
  exit.round = gone.round;
  identity_.before = JobRecord::Before{gone.instance, exit};
  actions_->push_back(
      CoordinatorLogLine{"a new job begins: the one before with this --rdzv-id was not ended, and " + exit.reason});
}

// ---- The job goes on ----

// The coordinator of another node is gone, and with it the round's store: the round ends. Its node may live on.
void CoordinatorCore::take_over(const JobRecord& record) {
  is_news_ = true;
  const bool has_left = record.own.empty() && record.round > 0;  // or was killed before an agent of its own had come
  const std::string reason = "node " + record.host + ", which coordinated, " +
                             (has_left ? "is gone" : "was lost or could not go on") + "; node " + config_.host +
                             " coordinates now";
  const bool runs = job_.phase == Phase::Opening || job_.phase == Phase::Running;
  if (!runs) return actions_->push_back(CoordinatorLogLine{reason});
  round_end_.note_loss(now_, Why::NewLeader, reason);
  stop_round(SIGTERM, {.trigger = Trigger::Loss, .why = Why::NewLeader, .reason = reason});
}

void CoordinatorCore::restore_members(const JobRecord& record, TimePoint recorded) {
  std::vector<Node> members;
  for (const JobRecord::Member& member : record.members) {
    Node& node = members.emplace_back();
    node.address = member.address;
    node.arrived_at = member.arrived_at;
    node.leaving = member.leaving;
    node.base_rank = member.base_rank;
    node.heard = node.unheard_since = recorded - member.heard;
    node.state = state_of(member);
    // Its seat is its rank, whatever the record says: two nodes of one rank would be taken for rivals.
    if (config_.job.node_ranks_given) node.state.node_rank = static_cast<int>(members.size()) - 1;
    node.state.job = config_.job;
    node.state.epoch = config_.epoch;
  }
  roster_.restore(now_, record.round, members,
                  record.node == config_.node ? "the coordinator was killed and started again"
                                              : "another node coordinates since then");
}

// Says once more what the other life may have said, or not: nobody minds a repetition. The nodes hear it when they are
// back.
void CoordinatorCore::tell_again(const JobRecord& record) {
  for (std::size_t i = 0; i < record.members.size(); ++i) {
    const JobRecord::Member& member = record.members[i];
    if (member.incarnation.empty()) continue;
    Directive directive = make(Directive::Kind::Wait, Why::None, "");
    if (over() && member.incarnation != roster_.own()) directive = end_->exit;
    if (job_.phase == Phase::Running) directive = run_for(member, i, *run_);
    send(roster_.at(member.incarnation), directive);
  }
  if (job_.phase == Phase::Opening) return ask_for_store();
  if (over()) return finish_shutdown();
  if (job_.phase != Phase::Stopping) return;
  publish_failure();
  send_stop(round_end_.stop().signal);
}

}  // namespace ddp::rendezvous
