// SPDX-License-Identifier: BSD-3-Clause
#include "rendezvous/coordinator/core/coordinator_core.hpp"

#include <algorithm>
#include <csignal>
#include <utility>

#include "rendezvous/base/exit_code.hpp"
#include "rendezvous/base/text.hpp"

namespace ddp::rendezvous {

using std::chrono::milliseconds;

namespace {

constexpr milliseconds kOverslept{2000};  // a longer time between two steps means that this process was stopped

}  // namespace

CoordinatorCore::CoordinatorCore(CoordinatorConfig config)
    : config_(std::move(config)),
      identity_{.job = config_.job, .epoch = config_.epoch, .epoch_is_number = config_.epoch_is_number},
      roster_({.own = config_.own_incarnation,
               .own_is_here = config_.own_is_here,
               .node_ranks_given = config_.job.node_ranks_given,
               .lost_after = config_.lost_after,
               .back_within = link_back_within()}),
      links_(config_.max_unheard_links),
      gathering_(config_),
      round_end_(config_.job) {
  if (config_.epoch_is_number) identity_.instance = config_.node + "." + config_.epoch;
}

// An agent whose link broke cannot know whether its coordinator is gone, and another one will take its place only when
// a lease has ended. So it keeps its workers for as long as after a silence.
milliseconds CoordinatorCore::agents_back_within() const {
  return config_.epoch_is_number ? std::max(kReconnectWindow, config_.lost_after) : kReconnectWindow;
}

// Returns how long a node has whose link broke. If it is not back then, none of its workers acts any more.
milliseconds CoordinatorCore::link_back_within() const {
  if (!config_.epoch_is_number) return kReconnectWindow;
  return acts_within(config_.lost_after);
}

void CoordinatorCore::step(TimePoint now, const CoordinatorEvent& event, std::vector<CoordinatorAction>& actions) {
  now_ = now;
  actions_ = &actions;
  is_news_ = false;
  const std::size_t first = actions.size();
  forgive_own_sleep();
  last_step_ = now;
  std::visit([this](const auto& e) { on(e); }, event);
  if (is_news_ && config_.keeps_record) {
    const auto before_all = actions.begin() + static_cast<std::ptrdiff_t>(first);
    actions.insert(before_all, Record{++records_, encode(record())});
  }
  actions_ = nullptr;
}

std::optional<TimePoint> CoordinatorCore::wake_at() const {
  std::optional<TimePoint> soonest;
  for (const auto& time :
       {gathering_.wake_at(), gathering_.next_message(), next_silence_check_, links_.next_check(), overdue_at_,
        end_ ? end_->own_leaves_at : std::nullopt, own_leave_ ? own_leave_->until : std::nullopt,
        question_ ? std::optional(question_->until) : std::nullopt, question_ ? question_->tell_at : std::nullopt}) {
    if (time && (!soonest || *time < *soonest)) soonest = time;
  }
  return soonest;
}

void CoordinatorCore::on(const CoordinatorTick&) {
  if (next_silence_check_ && now_ >= *next_silence_check_) {
    next_silence_check_ = now_ + kBetweenSilenceChecks;
    expire_silent_nodes();
  }
  if (links_.next_check() && now_ >= *links_.next_check()) links_.check(now_, *actions_);
  if (own_leave_ && own_leave_->until && now_ >= *own_leave_->until) step_down();
  if (overdue_at_ && now_ >= *overdue_at_) press_overdue();
  if (question_) return watch_question();
  if (gathering_.next_message() && now_ >= *gathering_.next_message()) send_waiting_message();
  if (end_ && end_->own_leaves_at && now_ >= *end_->own_leaves_at) finish_shutdown();
  advance();
}

// ---- Nodes come and go ----

std::string CoordinatorCore::why_not_believed(const AgentReported& event) const {
  if (links_.is_other_speaker(event.agent, event.state.incarnation)) return "it reported as two agents";
  return rendezvous::why_not_believed(identity_, roster_, job_.round, job_.phase != Phase::Opening, event);
}

void CoordinatorCore::disbelieve(const AgentReported& event, const std::string& why) {
  const bool is_nodes_link = roster_.on_link(event.agent) != nullptr;
  links_.close(event.agent, *actions_);
  if (is_nodes_link) return on(AgentGone{event.agent, why});
  const std::string who = describe(event.state.host, event.address);
  actions_->push_back(CoordinatorLogLine{"agent link: closed the one of node " + who + ": " + why, true});
  actions_->push_back(RecordNode{RecordNode::What::Refused, event.state.host, event.address, why});
}

void CoordinatorCore::on(const AgentReported& event) {
  if (const std::string why = why_not_believed(event); !why.empty()) return disbelieve(event, why);
  links_.note_speaker(event.agent, event.state.incarnation);
  if (question_ && has_to_wait(event)) return;
  if (!config_.own_is_here && event.address.empty() && !event.state.left) take_place_of_own(event);
  const Node* const known = roster_.find(event.state.incarnation);
  if (!known) {
    if (!event.state.left) welcome(event);
    return;
  }
  if (event.agent < known->link) return;  // it came on a link that has been replaced
  links_.has_node(event.agent);
  const bool is_new_link = event.agent > known->link;
  if (is_new_link && !known->cut) links_.close(known->link, *actions_);
  const TimePoint gone_since = roster_.gone_since(*known, now_);
  const Node& node = roster_.update(now_, event.agent, event.state, event.address, event.arrived_at);
  if (node.state.left) {  // it gives up its node rank, so it is not marked as heard
    const std::string why = node.state.stopped_because.empty() ? "" : ": " + node.state.stopped_because;
    const bool is_coordinators = roster_.is_own(node) && config_.epoch_is_number && !over();
    if (is_coordinators) own_leaves(event.agent);
    lose(node, gone_since, Why::NodeLeft, "node " + describe(node) + " left the job" + why);
    if (is_coordinators) step_down();  // no agent comes after one that has left by itself
    return advance();
  }
  mark_heard(node);
  if (is_new_link) send(node, node.directive);  // the link is level-triggered
  on_report(event.state.incarnation);
  if (over() && event.state.incarnation == roster_.own()) finish_shutdown();
}

// Another agent of this node is started only when nothing is left of the one before.
void CoordinatorCore::take_place_of_own(const AgentReported& event) {
  if (event.state.incarnation == roster_.own()) return;
  if (const Node* const before = roster_.find(roster_.own())) {
    lose(*before, roster_.gone_since(*before, now_), Why::NodeLeft,
         "node " + describe(*before) + " left the job: its agent was killed");
  }
  roster_.set_own(event.state.incarnation);
  own_leave_.reset();
  is_news_ = true;
  // After a takeover it may be known, and is the last to hear of the end.
  if (over() && roster_.has_own()) roster_.set_directive(roster_.own(), make(Directive::Kind::Wait, Why::None, ""));
}

void CoordinatorCore::welcome(const AgentReported& event) {
  const AgentState& state = event.state;
  if (const Refusal refusal = refusal_of(identity_, roster_, state); refusal.why != Why::None) {
    refuse(event.agent, state, event.address, refusal);
    if (!event.address.empty()) links_.expect_report(now_, event.agent, event.address);
    return;
  }
  links_.has_node(event.agent);
  if (over() && state.incarnation != roster_.own()) {
    actions_->push_back(SendDirective{event.agent, end_->exit});
    return;
  }
  const Node& node = roster_.add(now_, event.agent, state, event.address, event.arrived_at);
  record(RecordNode::What::Joined, node);
  if (!node.holder.empty() && config_.own_is_here && roster_.is_own(roster_.at(node.holder))) {
    mark_heard(roster_.at(node.holder));
    if (!roster_.contains(state.incarnation)) return;
  }
  if (over()) {  // the own agent came last, or again, and is still the last to leave
    end_->own_was_told = false;
    finish_shutdown();
    if (end_->own_was_told) return;
  }
  const bool is_watched = !roster_.is_own(node) || !config_.own_is_here;
  if (is_watched && !next_silence_check_) next_silence_check_ = now_ + kBetweenSilenceChecks;
  if (state.phase == WorkersPhase::Idle) {
    Directive wait = make(Directive::Kind::Wait, Why::None, "");
    if (!node.holder.empty()) {
      wait.why = Why::RankIsHeld;
      wait.reason = "node rank " + std::to_string(state.node_rank) + " is held by node " +
                    describe(roster_.at(node.holder)) + ", which may be gone: waiting for a word from it";
    } else if (job_.phase != Phase::Gathering && roster_.members() >= config_.job.max_nodes) {
      wait.why = Why::Spare;
      wait.reason = kSpare;
    }
    send(node, std::move(wait));
  } else {  // it was lost, and comes back with the workers of a round that is over
    Directive stop = make(Directive::Kind::Stop, Why::NodeLost, "this node was lost; the job has gone on without it");
    stop.stop_signal = SIGKILL;  // the others may be running already
    send(node, stop);
  }
  on_report(event.state.incarnation);
}

void CoordinatorCore::refuse(AgentId agent, const AgentState& state, const std::string& address,
                             const Refusal& refusal) {
  actions_->push_back(RecordNode{RecordNode::What::Refused, state.host, address, refusal.reason});
  if (state.job.id != config_.job.id) {
    const std::string ids = "'" + state.job.id + "', this job's '" + config_.job.id + "'";
    actions_->push_back(
        CoordinatorLogLine{"refused node " + describe(state.host, address) + ": its --rdzv-id is " + ids, true});
  }
  Directive exit = make(Directive::Kind::Exit, refusal.why, refusal.reason);
  exit.exit_code = exit_code({.why = identity_.is_of_other(state) ? Why::JobIsGone : Why::Failed});
  if (identity_.was_before(state)) {
    exit.exit_code = identity_.before->exit.exit_code;
    exit.round = identity_.before->exit.round;
  }
  exit.lost_after = config_.lost_after;
  actions_->push_back(SendDirective{agent, std::move(exit)});
}

// Notes that a node was heard, and refuses the nodes that claim its node rank. Such a claim may be a
// mistake, or come from the replacement of a node whose death was not noticed yet, so it had to wait
// until the holder was heard.
void CoordinatorCore::mark_heard(const Node& node) {
  roster_.mark_heard(node.state.incarnation, now_);
  if (over()) return;                               // every node, also a challenger, has heard how the job ended
  if (!node.state.stopped_because.empty()) return;  // it may be about to leave
  const std::vector<Incarnation> challengers = roster_.challengers_of(node.state.incarnation);
  if (challengers.empty()) return;
  const bool is_here = config_.own_is_here && roster_.is_own(node);
  if (!is_here && !roster_.is_heard_again(node.state.incarnation, now_)) return;
  for (const Incarnation& challenger : challengers) {
    const Node& other = roster_.at(challenger);
    refuse(
        other.link, other.state, other.address,
        {Why::RankIsHeld, "node rank " + std::to_string(node.state.node_rank) + " is held by node " + describe(node) +
                              " and claimed by node " + describe(other) + ": give each host a --node-rank of its own"});
    if (!other.cut) links_.expect_report(now_, other.link, other.address);
    roster_.remove(challenger);
  }
}

void CoordinatorCore::on(const AgentBeat& event) {
  const Node* const node = roster_.on_link(event.agent);
  if (!node) return;  // the node was refused, is lost, or was released
  mark_heard(*node);
  actions_->push_back(AnswerBeat{event.agent});
}

void CoordinatorCore::on(const AgentGone& event) {
  if (question_) question_->newcomers.erase(event.agent);
  if (own_leave_ && own_leave_->link == event.agent) step_down();
  links_.gone(event, *actions_);
  const Node* const node = roster_.on_link(event.agent);
  if (!node) return;  // it never reported, or the node has a newer link
  roster_.mark_cut(node->state.incarnation, now_, event.why);
  if (roster_.is_own(*node) && config_.own_is_here) {
    lose(*node, now_, Why::NodeLost, "the agent on node " + describe(*node) + " is gone");
    return advance();
  }
  if (!over()) {
    actions_->push_back(CoordinatorLogLine{"the link to node " + describe(*node) + " broke (" + event.why +
                                           "); waiting " + to_string(link_back_within()) + " for it to come back"});
  }
}

// The job goes on once all of them are gone: the next round must have none that is about to be lost.
void CoordinatorCore::expire_silent_nodes() {
  for (const Roster::Expired& expired : roster_.expired(now_)) {
    if (const Node* const node = roster_.find(expired.node)) {
      lose(*node, expired.silent_since, Why::NodeLost, why_lost(expired));
    }
  }
}

std::string CoordinatorCore::why_lost(const Roster::Expired& expired) const {
  const Node& node = roster_.at(expired.node);
  const std::string lost = "node " + describe(node) + " was lost: ";
  if (!expired.link_broke) return lost + "no word from it for " + to_string(config_.lost_after);
  return lost + "its link broke (" + node.why_cut + ") and did not come back within " +
         to_string(node.comes_back_within);
}

void CoordinatorCore::record(RecordNode::What what, const Node& node, const std::string& why) {
  if (!roster_.is_own(node)) actions_->push_back(RecordNode{what, node.state.host, node.address, why});
}

void CoordinatorCore::lose(const Node& lost, TimePoint noticed, Why why, const std::string& text) {
  record(RecordNode::What::Left, lost, text);
  if (!lost.cut) links_.close(lost.link, *actions_);
  // A node whose workers have all succeeded is not needed any more, unless the round has to be repeated.
  const bool is_needed = lost.seat >= 0 && !roster_.has_succeeded(lost) && !lost.leaving;
  // Once the job is over each node leaves: that is not worth a record of all others each time.
  is_news_ = is_news_ || (lost.seat >= 0 && !over());
  const bool ends_round = is_needed && (job_.phase == Phase::Opening || job_.phase == Phase::Running);
  const std::vector<int> ranks = ends_round ? ranks_of(lost) : std::vector<int>();
  const std::string name = describe(lost);
  if (over() && !lost.state.left) end_->is_missed = true;
  roster_.remove(lost.state.incarnation);
  if (over()) return finish_shutdown();
  if (is_needed) round_end_.note_loss(noticed, why, text, name);
  if (ends_round) {
    stop_round(SIGTERM, {.trigger = Trigger::Loss, .why = why, .reason = text, .dead = ranks});
  } else {
    actions_->push_back(CoordinatorLogLine{text});
  }
}

// Lets a node leave that its user has stopped, while the others go on.
void CoordinatorCore::release(const Node& node) {
  const int signal = node.state.stop_signal;
  record(RecordNode::What::Left, node,
         "node " + describe(node) + " left the job: " + signal_name(signal) + " received");
  is_news_ = is_news_ || node.seat >= 0 || roster_.is_own(node);
  send(node, let_go(signal));
  if (roster_.is_own(node)) own_leaves(node.link);
  roster_.remove(node.state.incarnation);
}

// Returns what a node hears that its user has stopped, and that the job does without.
Directive CoordinatorCore::let_go(int signal) const {
  return make_exit({.why = Why::Released, .signal = signal},
                   signal_name(signal) + " received: this node leaves the job");
}

// Its processes are dead when it has left, so nothing of this node is in the way of the next round.
void CoordinatorCore::own_leaves(AgentId link) {
  own_leave_ = {.link = link, .until = now_ + config_.lost_after};
  roster_.set_own(Incarnation());
}

void CoordinatorCore::step_down() {
  *own_leave_ = {};
  actions_->push_back(StepDown{});
}

// While this process was stopped (by a debugger, or with its machine), what the nodes sent lay unread: that time does
// not count as their silence.
void CoordinatorCore::forgive_own_sleep() {
  const bool looks_at_clock = next_silence_check_ || links_.next_check();
  if (!last_step_ || !looks_at_clock || now_ - *last_step_ < kOverslept) return;
  const auto slept = now_ - *last_step_;
  roster_.forgive_sleep(slept);
  links_.forgive_sleep(slept);
  round_end_.forgive_sleep(slept);
  if (question_) question_->until += slept;
}

// ---- What a report means for the job ----

void CoordinatorCore::on_report(const Incarnation& incarnation) {
  if (roster_.at(incarnation).state.stop_signal != 0) on_stop_signal(roster_.at(incarnation));
  if (const Node* const node = roster_.find(incarnation)) on_round_report(*node);
  advance();
}

void CoordinatorCore::on_stop_signal(const Node& node) {
  const int signal = node.state.stop_signal;
  if (over() || node.leaving) return;
  if (job_.phase == Phase::Stopping && round_end_.stop().trigger == Trigger::Final) {
    if (signal == SIGKILL && !std::exchange(round_end_.stop().at_once, true)) send_stop(SIGKILL);
    return;
  }
  const auto others = std::count_if(roster_.nodes().begin(), roster_.nodes().end(), [&](const auto& entry) {
    const Node& other = entry.second;
    return &other != &node && !other.leaving && (other.seat >= 0 || roster_.is_spare(other));
  });
  // The coordinator's own may leave where another node can coordinate, and is there.
  const bool is_bound = roster_.is_own(node) && (!config_.epoch_is_number || others == 0);
  const bool may_leave = elastic() && !is_bound && (node.seat < 0 || others >= config_.job.min_nodes);
  const bool has_workers = node.seat >= 0 && (job_.phase != Phase::Gathering);
  if (!may_leave) {
    stop_round(signal, {.trigger = Trigger::Final,
                        .why = Why::StopSignal,
                        .reason = signal_name(signal) + " received on node " + describe(node),
                        .exit_code = exit_code({.signal = signal})});
  } else if (has_workers) {
    roster_.mark_leaving(node.state.incarnation);
    is_news_ = true;
    const std::string reason = "node " + describe(node) + " leaves (" + signal_name(signal) + " received)";
    round_end_.note_loss(now_, Why::NodeLeft, reason);  // its workers may die before the others get the stop
    if (job_.phase == Phase::Stopping) return;          // it is released once the round is stopped
    stop_round(SIGTERM, {.trigger = Trigger::Membership, .why = Why::NodeLeft, .reason = reason});
  } else {
    release(node);
  }
}

void CoordinatorCore::on_round_report(const Node& node) {
  if (node.seat < 0 || node.state.round != job_.round) return;
  round_end_.note_report(now_, node);
  // A node that reports a hang only now may have made an end of what was to be a restart.
  const bool is_stopping = job_.phase == Phase::Stopping;
  if (is_stopping && round_end_.stop().keeps_survivors && !round_end_.survivors_stay(now_)) send_stop(SIGTERM);
  if (job_.phase != Phase::Opening && job_.phase != Phase::Running) return;
  if (auto stop = round_end_.stop_for(node)) stop_round(SIGTERM, std::move(*stop));
}

// Takes the next step of the job, if the state of the nodes allows one.
void CoordinatorCore::advance() {
  switch (job_.phase) {
    case Phase::Gathering:
      return gather();
    case Phase::Opening:
    case Phase::Over:
      return;
    case Phase::Running:
      if (roster_.members() == roster_.succeeded() && roster_.members() > 0) {
        finish(make_exit({.why = Why::Succeeded}, kAllSucceeded));
      } else if (has_newcomer()) {
        stop_round(
            SIGTERM,
            {.trigger = Trigger::Membership, .why = Why::NodeJoined, .reason = describe_newcomers() + " joined"});
      }
      return;
    case Phase::Stopping:
      // Quiet workers were told to end when the round was stopped. A restart that has left its window since then
      // changes nothing of that.
      if (roster_.quiet() > 0 && !round_end_.stop().keeps_survivors) return;
      if (roster_.members() == roster_.idle()) after_stop();
      return;
  }
}

// Whether a node that came late takes a free seat now. Not if the job is about to end: workers that have succeeded
// would have to run again, and those that could stay and can no longer would lose what they have.
bool CoordinatorCore::has_newcomer() const {
  const bool has_free_seat = roster_.members() < config_.job.max_nodes && roster_.ending() == 0;
  return elastic() && has_free_seat && roster_.spares() > 0 && roster_.succeeded() == 0;
}

// ---- The end ----

// Ends the job, workers that wait for another round first.
void CoordinatorCore::end(const Directive& exit) {
  if (roster_.quiet() == 0) return finish(exit);
  gathering_.stop();
  job_.phase = Phase::Stopping;
  round_end_.stop() = {.trigger = Trigger::Final,
                       .why = exit.why,
                       .reason = exit.reason,
                       .cause = exit.cause,
                       .exit_code = exit.exit_code};
  send_stop(SIGTERM);
}

void CoordinatorCore::finish(Directive exit) {
  job_.phase = Phase::Over;
  end_ = {.exit = std::move(exit), .since = now_};
  is_news_ = true;
  gathering_.stop();
  for (const auto& [incarnation, node] : roster_.nodes()) {
    if (!roster_.is_own(node)) send(node, end_->exit);
  }
  finish_shutdown();
}

// Tells the coordinator's own agent to leave, once it is the last one or has waited long enough. With it goes the
// store; a node that has not heard of the end by then never will.
void CoordinatorCore::finish_shutdown() {
  const Node* const own = roster_.find(roster_.own());
  std::optional<TimePoint>& until = end_->own_leaves_at;
  until.reset();
  if (config_.epoch_is_number && end_->own_was_told && !own && !std::exchange(end_->is_done, true)) {
    actions_->push_back(JobDone{!end_->is_missed && roster_.nodes().empty()});
  }
  if (end_->own_was_told || !own) return;
  until = std::max(now_, end_->since + config_.stays_over_for);
  for (const auto& [incarnation, node] : roster_.nodes()) {
    if (!roster_.is_own(node)) until = std::max(*until, awaited_until(node));
  }
  if (now_ < *until) return;
  end_->own_was_told = true;
  until.reset();
  next_silence_check_.reset();
  send(*own, end_->exit);
}

// Returns how long the end of the job waits for a node to leave. One whose workers succeeded has nothing left to do, so
// it answers at once; if it has been silent for long enough already, it is most likely dead. One that is no member of
// the round has had no workers, and may be anybody: whatever it says, the end does not wait until it has left.
TimePoint CoordinatorCore::awaited_until(const Node& node) const {
  const TimePoint latest = end_->since + config_.lost_after;
  if (node.seat < 0 && !node.cut) return std::min(latest, end_->since + kAnswerToEnd);
  if (!roster_.has_succeeded(node)) return latest;
  return std::min(latest, std::max(node.heard + config_.lost_after / 5, end_->since + kAnswerToEnd));
}

// ---- Messages ----

const char* CoordinatorCore::word_for(const Node& node) const {
  if (node.cut) return "cut off";
  if (node.leaving) return "leaving";
  switch (node.state.phase) {
    case WorkersPhase::Running:
      return "running";
    case WorkersPhase::Stopping:
      return "stopping";
    case WorkersPhase::Quiet:
      return "quiet";
    case WorkersPhase::Idle:
      break;
  }
  if (node.seat >= 0 && node.state.succeeded && node.state.round == job_.round) return "done";
  if (job_.phase == Phase::Over) return "idle";
  if (job_.phase != Phase::Running) return "waiting";
  return node.seat >= 0 ? "starting" : "spare";
}

JobFacts CoordinatorCore::facts() const {
  constexpr const char* kPhases[] = {"gathering", "opening", "running", "stopping", "over"};
  JobFacts facts{.phase = kPhases[static_cast<int>(job_.phase)],
                 .round = job_.round,
                 .restarts = restarts(),
                 .max_restarts = config_.job.max_restarts,
                 .min_nodes = config_.job.min_nodes,
                 .max_nodes = config_.job.max_nodes,
                 .coordinator = roster_.own(),
                 .nodes = {}};
  for (const auto& [incarnation, node] : roster_.nodes()) {
    facts.nodes.push_back({incarnation, node.state.host, node.address, word_for(node), node.seat,
                           node.seat >= 0 ? node.base_rank : 0, node.state.slots});
  }
  std::stable_sort(facts.nodes.begin(), facts.nodes.end(), [](const auto& a, const auto& b) {
    return static_cast<unsigned>(a.node_rank) < static_cast<unsigned>(b.node_rank);  // those without a seat last
  });
  if (facts.nodes.size() > kMaxNodesShown) facts.nodes.resize(kMaxNodesShown);
  return facts;
}

Directive CoordinatorCore::make(Directive::Kind kind, Why why, std::string reason) const {
  Directive directive;
  directive.kind = kind;
  directive.epoch = config_.epoch;
  directive.instance = identity_.instance;
  directive.back_within = agents_back_within();
  directive.round = job_.round;
  directive.why = why;
  directive.reason = std::move(reason);
  directive.can_look = true;
  return directive;
}

Directive CoordinatorCore::make_exit(const Outcome& outcome, std::string reason) const {
  Directive exit = make(Directive::Kind::Exit, outcome.why, std::move(reason));
  exit.exit_code = exit_code(outcome);
  return exit;
}

void CoordinatorCore::send(const Node& node, Directive directive) {
  // In a job of one node nobody would go on without it.
  const bool is_alone = roster_.is_own(node) && config_.own_is_here && config_.job.max_nodes == 1;
  directive.lost_after = is_alone ? milliseconds(0) : config_.lost_after;
  roster_.set_directive(node.state.incarnation, directive);
  if (!node.cut) actions_->push_back(SendDirective{node.link, std::move(directive)});
}

}  // namespace ddp::rendezvous
