// SPDX-License-Identifier: BSD-3-Clause
#include "rendezvous/coordinator/coordinator_core.hpp"

#include <algorithm>
#include <csignal>
#include <numeric>
#include <set>
#include <tuple>
#include <utility>

#include "rendezvous/base/exit_code.hpp"
#include "rendezvous/base/text.hpp"
#include "rendezvous/link/accept.hpp"
#include "rendezvous/link/failures.hpp"
#include "rendezvous/net/addresses/numeric_address.hpp"
#include "rendezvous/net/silence.hpp"

namespace ddp::rendezvous {

namespace {

using std::chrono::milliseconds;

constexpr milliseconds kOverslept{2000};  // a longer time between two steps means that this process was stopped
constexpr std::size_t kMaxOwnStops = 4;   // reasons of one node for ending its workers, in one round
constexpr std::size_t kMaxFailureText = 2 * kMaxFailuresBytes;  // about the failures of one node
constexpr std::size_t kNamesShown = 8;
constexpr char kAllSucceeded[] = "all workers exited with code 0";
constexpr char kSpare[] =
    "all places of this job are taken: this node waits as a spare (a job of its own needs another --rdzv-id)";
constexpr char kMakesRoom[] =
    "this node was the first cause of too many failures (--exclude-after): it waits until no other spare is there";
constexpr std::size_t kMaxFirstCauses = 4096;  // nodes that are remembered

std::string counted(int number, const std::string& what) {
  return std::to_string(number) + " " + what + (number == 1 ? "" : "s");
}

std::string nnodes(const JobShape& job) {
  const std::string max = std::to_string(job.max_nodes);
  return job.min_nodes == job.max_nodes ? max : std::to_string(job.min_nodes) + ":" + max;
}

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

CoordinatorCore::CoordinatorCore(CoordinatorConfig config)
    : config_(std::move(config)),
      roster_({.own = config_.own_incarnation,
               .own_is_here = config_.own_is_here,
               .node_ranks_given = config_.job.node_ranks_given,
               .lost_after = config_.lost_after,
               .back_within = link_back_within()}),
      budget_(config_.job) {
  if (config_.epoch_is_number) instance_ = config_.node + "." + config_.epoch;
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
  const auto question_until = question_ ? std::optional(question_->until) : std::nullopt;
  for (const auto& time : {gather_wake_, next_silence_check_, next_link_check_, next_waiting_message_, shutdown_until_,
                           step_down_at_, overdue_at_, question_until}) {
    if (time && (!soonest || *time < *soonest)) soonest = time;
  }
  return soonest;
}

void CoordinatorCore::on(const CoordinatorTick&) {
  if (next_silence_check_ && now_ >= *next_silence_check_) {
    next_silence_check_ = now_ + kBetweenSilenceChecks;
    expire_silent_nodes();
  }
  if (next_link_check_ && now_ >= *next_link_check_) close_unheard_links();
  if (step_down_at_ && now_ >= *step_down_at_) step_down();
  if (overdue_at_ && now_ >= *overdue_at_) press_overdue();
  if (question_) return watch_question();
  if (next_waiting_message_ && now_ >= *next_waiting_message_) send_waiting_message();
  if (shutdown_until_ && now_ >= *shutdown_until_) finish_shutdown();
  advance();
}

// ---- Links ----

void CoordinatorCore::on(const AgentLinked& event) {
  if (event.address.empty()) return;  // from this process
  if (unheard_.size() >= config_.max_unheard_links) make_room_for_link();
  expect_report(event.agent, event.address, event.share);
}

void CoordinatorCore::expect_report(AgentId agent, const std::string& address, const std::string& share) {
  unheard_.emplace(agent, UnheardLink{now_ + kFirstReportWithin, address, share});
  if (!next_link_check_) next_link_check_ = now_ + kBetweenSilenceChecks;
}

void CoordinatorCore::make_room_for_link() {
  std::vector<OpenConnection> unheard;
  for (const auto& [agent, link] : unheard_) {
    unheard.push_back({.id = static_cast<std::uint64_t>(agent), .share = link.share});
  }
  for (const std::uint64_t chosen : choose_silent(std::move(unheard))) {
    const auto agent = static_cast<AgentId>(chosen);
    const bool was_refused = speakers_.contains(agent);
    actions_->push_back(CoordinatorLogLine{"agent link: closed the one from " + unheard_.at(agent).address + ": it " +
                                               (was_refused ? "was refused" : "said nothing after the handshake") +
                                               ", and its place was needed",
                                           true});
    close_link(agent);
  }
}

void CoordinatorCore::close_unheard_links() {
  for (auto entry = unheard_.begin(); entry != unheard_.end();) {
    const auto [agent, link] = *entry++;
    if (now_ < link.until) continue;
    const bool was_refused = speakers_.contains(agent);
    close_link(agent);
    if (was_refused) continue;
    actions_->push_back(CoordinatorLogLine{
        "agent link: closed " + link.address + ": no report within " + to_string(kFirstReportWithin), true});
  }
  next_link_check_.reset();
  if (!unheard_.empty()) next_link_check_ = now_ + kBetweenSilenceChecks;
}

void CoordinatorCore::close_link(AgentId agent) {
  actions_->push_back(CloseLink{agent});
  speakers_.erase(agent);
  unheard_.erase(agent);
}

// Returns what in a report cannot be true, as far as accept() could not know; empty: nothing. An agent keeps what it
// was welcomed with, and learns of rounds from this coordinator only.
std::string CoordinatorCore::why_not_believed(const AgentReported& event) const {
  const AgentState& state = event.state;
  const auto speaker = speakers_.find(event.agent);
  if (speaker != speakers_.end() && speaker->second != state.incarnation) return "it reported as two agents";
  if (config_.epoch_is_number && state.instance == instance_ && is_older_epoch(config_.epoch, state.epoch)) {
    return "it has obeyed a newer coordinator (epoch " + state.epoch + ", this one has " + config_.epoch + ")";
  }
  if (!is_of_other_coordinator(state) && state.round > job_.round && !state.epoch.empty()) {
    return "it reported round " + std::to_string(state.round) + ", the newest is " + std::to_string(job_.round);
  }
  const Node* const node = roster_.find(state.incarnation);
  if (!node) return "";
  const bool claims_own = config_.own_is_here ? event.agent != node->link : !event.address.empty();
  if (roster_.is_own(*node) && claims_own) return "it reported as the coordinator's own agent";
  const auto fixed = [](const AgentState& s) {
    return std::tie(s.job, s.node_rank, s.wanted_rank, s.slots, s.role, s.host, s.addresses, s.endpoint_host);
  };
  if (fixed(state) != fixed(node->state)) return "it reported another job, node rank, role, name or number of workers";
  if (is_of_other_coordinator(state)) return "it reported another epoch";
  if (event.agent >= node->link && state.round < node->state.round) {
    return "it went back to round " + std::to_string(state.round);
  }
  if (node->seat < 0 || state.round != job_.round) return "";
  if (job_.phase == Phase::Opening)
    return "it reported round " + std::to_string(state.round) + ", which is not open yet";
  for (const WorkerFailure& failure : state.failures) {
    if (failure.rank - failure.local_rank == node->base_rank) continue;
    return "it reported that rank " + std::to_string(failure.rank) + " failed, which is not its own";
  }
  return "";
}

void CoordinatorCore::disbelieve(const AgentReported& event, const std::string& why) {
  const bool is_nodes_link = roster_.on_link(event.agent) != nullptr;
  close_link(event.agent);
  if (is_nodes_link) return on(AgentGone{event.agent, why});
  const std::string who = describe(event.state.host, event.address);
  actions_->push_back(CoordinatorLogLine{"agent link: closed the one of node " + who + ": " + why, true});
  actions_->push_back(RecordNode{RecordNode::What::Refused, event.state.host, event.address, why});
}

// ---- Nodes come and go ----

void CoordinatorCore::on(const AgentReported& event) {
  if (const std::string why = why_not_believed(event); !why.empty()) return disbelieve(event, why);
  speakers_[event.agent] = event.state.incarnation;
  if (question_ && has_to_wait(event)) return;
  if (!config_.own_is_here && event.address.empty() && !event.state.left) take_place_of_own(event);
  const Node* const known = roster_.find(event.state.incarnation);
  if (!known) {
    if (!event.state.left) welcome(event);
    return;
  }
  if (event.agent < known->link) return;  // it came on a link that has been replaced
  unheard_.erase(event.agent);
  const bool is_new_link = event.agent > known->link;
  if (is_new_link && !known->cut) close_link(known->link);
  const TimePoint gone_since = roster_.gone_since(*known, now_);
  const Node& node = roster_.update(now_, event.agent, event.state, event.address, event.arrived_at);
  if (node.state.left) {  // it gives up its node rank, so it is not marked as heard
    const std::string why = node.state.stopped_because.empty() ? "" : ": " + node.state.stopped_because;
    const bool is_coordinators = roster_.is_own(node) && config_.epoch_is_number && !over();
    if (is_coordinators) own_leaves(event.agent);
    lose(node, gone_since, "node " + describe(node) + " left the job" + why);
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
    const std::string text = "node " + describe(*before) + " left the job: its agent was killed";
    lose(*before, roster_.gone_since(*before, now_), text);
  }
  roster_.set_own(event.state.incarnation);
  own_leaves_ = false;
  own_leaves_by_.reset();
  step_down_at_.reset();
  is_news_ = true;
  // After a takeover it may be known, and is the last to hear of the end.
  if (over() && roster_.has_own()) roster_.set_directive(roster_.own(), make(Directive::Kind::Wait, ""));
}

void CoordinatorCore::welcome(const AgentReported& event) {
  const AgentState& state = event.state;
  if (const std::string reason = why_refused(state); !reason.empty()) {
    refuse(event.agent, state, event.address, reason);
    if (!event.address.empty()) expect_report(event.agent, event.address);
    return;
  }
  unheard_.erase(event.agent);
  if (over() && state.incarnation != roster_.own()) {
    actions_->push_back(SendDirective{event.agent, *exit_});
    return;
  }
  const Node& node = roster_.add(now_, event.agent, state, event.address, event.arrived_at);
  record(RecordNode::What::Joined, node);
  if (!node.holder.empty() && config_.own_is_here && roster_.is_own(roster_.at(node.holder))) {
    mark_heard(roster_.at(node.holder));
    if (!roster_.contains(state.incarnation)) return;
  }
  if (over()) {  // the own agent came last, or again, and is still the last to leave
    own_was_told_ = false;
    finish_shutdown();
    if (own_was_told_) return;
  }
  const bool is_watched = !roster_.is_own(node) || !config_.own_is_here;
  if (is_watched && !next_silence_check_) next_silence_check_ = now_ + kBetweenSilenceChecks;
  if (state.phase == WorkersPhase::Idle) {
    std::string why;
    if (!node.holder.empty()) {
      why = "node rank " + std::to_string(state.node_rank) + " is held by node " + describe(roster_.at(node.holder)) +
            ", which may be gone: waiting for a word from it";
    } else if (job_.phase != Phase::Gathering && roster_.members() >= config_.job.max_nodes) {
      why = kSpare;
    }
    send(node, make(Directive::Kind::Wait, why));
  } else {  // it was lost, and comes back with the workers of a round that is over
    Directive stop = make(Directive::Kind::Stop, "this node was lost; the job has gone on without it");
    stop.stop_signal = SIGKILL;  // the others may be running already
    send(node, stop);
  }
  on_report(event.state.incarnation);
}

std::string CoordinatorCore::why_refused(const AgentState& state) const {
  const JobShape& theirs = state.job;
  const JobShape& ours = config_.job;
  const auto differ = [](const std::string& what, const std::string& there, const std::string& here) {
    return what + " is " + there + " on this host and " + here + " at the coordinator: give all hosts the same";
  };
  if (theirs.id != ours.id) {  // the right one is not told: without a secret, it is what a stranger has to know
    return "the coordinator's job has another --rdzv-id than '" + theirs.id +
           "' of this host (the coordinator's log shows both): give all hosts the same";
  }
  if (nnodes(theirs) != nnodes(ours)) return differ("--nnodes", nnodes(theirs), nnodes(ours));
  if (theirs.max_restarts != ours.max_restarts) {
    return differ("--max-restarts", std::to_string(theirs.max_restarts), std::to_string(ours.max_restarts));
  }
  if (theirs.node_ranks_given != ours.node_ranks_given) {
    const auto backend = [](const JobShape& job) { return job.node_ranks_given ? "static" : "c10d"; };
    return differ("--rdzv-backend", backend(theirs), backend(ours));
  }
  if (theirs.survivors_stay != ours.survivors_stay) {
    const auto choice = [this](const JobShape& job) {
      return !job.survivors_stay ? "restart" : elastic() ? "shrink" : "replace";
    };
    return differ("--on-failure", choice(theirs), choice(ours));
  }
  if (theirs.exclude_after != ours.exclude_after) {
    return differ("--exclude-after", std::to_string(theirs.exclude_after), std::to_string(ours.exclude_after));
  }
  if (theirs.restart_window != ours.restart_window) {
    return differ("--restart-window", to_string(theirs.restart_window), to_string(ours.restart_window));
  }
  if (was_in_job_before(state)) return "the job that this node was part of is over: " + before_->exit.reason;
  if (is_of_other_coordinator(state)) {
    return config_.epoch_is_number
               ? "the job that this node was part of is over, and another one has its --rdzv-id"
               : "the coordinator that this node served is gone, and another one has taken its place";
  }
  if (ours.node_ranks_given && (state.node_rank < 0 || state.node_rank >= ours.max_nodes)) {
    return "--node-rank " + std::to_string(state.node_rank) + " with --nnodes " + nnodes(ours) + ": give 0 to " +
           std::to_string(ours.max_nodes - 1);
  }
  const bool own_is_there = roster_.has_own();  // if not, it is about to come, with node rank 0
  if (ours.node_ranks_given && state.node_rank == 0 && !own_is_there && state.incarnation != roster_.own()) {
    return "--node-rank 0 is the coordinator's node: give each host a --node-rank of its own";
  }
  const std::size_t nodes = roster_.nodes().size();
  if (nodes >= static_cast<std::size_t>(ours.max_nodes) + kMaxSpares && state.incarnation != roster_.own()) {
    return std::to_string(nodes) + " nodes are there, more than enough for --nnodes " + nnodes(ours) +
           " and all spares: start this one later";
  }
  if (state.slots < 1 || state.slots > kMaxSlots) {
    return std::to_string(state.slots) + " workers on one node: give 1 to " + std::to_string(kMaxSlots);
  }
  return "";
}

// Whether a node has served a coordinator of another job that was here before.
bool CoordinatorCore::is_of_other_coordinator(const AgentState& state) const {
  if (state.epoch.empty()) return false;
  return config_.epoch_is_number ? state.instance != instance_ : state.epoch != config_.epoch;
}

bool CoordinatorCore::was_in_job_before(const AgentState& state) const {
  return before_ && !state.epoch.empty() && state.instance == before_->instance;
}

void CoordinatorCore::refuse(AgentId agent, const AgentState& state, const std::string& address,
                             const std::string& reason) {
  actions_->push_back(RecordNode{RecordNode::What::Refused, state.host, address, reason});
  if (state.job.id != config_.job.id) {
    const std::string ids = "'" + state.job.id + "', this job's '" + config_.job.id + "'";
    actions_->push_back(
        CoordinatorLogLine{"refused node " + describe(state.host, address) + ": its --rdzv-id is " + ids, true});
  }
  Directive exit = make(Directive::Kind::Exit, reason);
  exit.exit_code = exit_code({.is_lost = is_of_other_coordinator(state), .has_failed = true});
  if (was_in_job_before(state)) {
    exit.exit_code = before_->exit.exit_code;
    exit.round = before_->exit.round;
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
    refuse(other.link, other.state, other.address,
           "node rank " + std::to_string(node.state.node_rank) + " is held by node " + describe(node) +
               " and claimed by node " + describe(other) + ": give each host a --node-rank of its own");
    if (!other.cut) expect_report(other.link, other.address);
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
  if (own_leaves_by_ == event.agent) step_down();
  const bool was_refused = speakers_.erase(event.agent) > 0;
  if (const auto link = unheard_.extract(event.agent); link && !was_refused) {
    actions_->push_back(CoordinatorLogLine{
        "agent link: the one from " + link.mapped().address + " ended before a report: " + event.why, true});
  }
  const Node* const node = roster_.on_link(event.agent);
  if (!node) return;  // it never reported, or the node has a newer link
  roster_.mark_cut(node->state.incarnation, now_, event.why);
  if (roster_.is_own(*node) && config_.own_is_here) {
    lose(*node, now_, "the agent on node " + describe(*node) + " is gone");
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
    if (const Node* const node = roster_.find(expired.node)) lose(*node, expired.silent_since, why_lost(expired));
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

void CoordinatorCore::lose(const Node& lost, TimePoint noticed, const std::string& text) {
  record(RecordNode::What::Left, lost, text);
  if (!lost.cut) close_link(lost.link);
  // A node whose workers have all succeeded is not needed any more, unless the round has to be repeated.
  const bool is_needed = lost.seat >= 0 && !roster_.has_succeeded(lost) && !lost.leaving;
  // Once the job is over each node leaves: that is not worth a record of all others each time.
  is_news_ = is_news_ || (lost.seat >= 0 && !over());
  const bool ends_round = is_needed && (job_.phase == Phase::Opening || job_.phase == Phase::Running);
  const std::vector<int> ranks = ends_round ? ranks_of(lost) : std::vector<int>();
  const std::string name = describe(lost);
  is_end_missed_ = is_end_missed_ || (over() && !lost.state.left);
  roster_.remove(lost.state.incarnation);
  if (over()) return finish_shutdown();
  if (is_needed) losses_.push_back({.noticed = noticed, .text = text, .name = name});
  if (ends_round) {
    stop_round(SIGTERM, {.trigger = Trigger::Loss, .reason = text, .dead = ranks});
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
  Directive exit = make(Directive::Kind::Exit, signal_name(signal) + " received: this node leaves the job");
  exit.exit_code = exit_code({.signal = signal});
  return exit;
}

// Its processes are dead when it has left, so nothing of this node is in the way of the next round.
void CoordinatorCore::own_leaves(AgentId link) {
  own_leaves_ = true;
  own_leaves_by_ = link;
  step_down_at_ = now_ + config_.lost_after;
  roster_.set_own(Incarnation());
}

void CoordinatorCore::step_down() {
  own_leaves_by_.reset();
  step_down_at_.reset();
  actions_->push_back(StepDown{});
}

// While this process was stopped (by a debugger, or with its machine), what the nodes sent lay unread: that time does
// not count as their silence.
void CoordinatorCore::forgive_own_sleep() {
  const bool looks_at_clock = next_silence_check_ || next_link_check_;
  if (!last_step_ || !looks_at_clock || now_ - *last_step_ < kOverslept) return;
  const auto slept = now_ - *last_step_;
  roster_.forgive_sleep(slept);
  for (auto& [agent, link] : unheard_) link.until += slept;
  if (question_) question_->until += slept;
  // What was noticed before the sleep keeps its distance from what is noticed after it.
  for (KnownFailure& known : failures_) known.seen += slept;
  for (Loss& loss : losses_) loss.noticed += slept;
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
  if (job_.phase == Phase::Stopping && stop_.trigger == Trigger::Final) {
    if (signal == SIGKILL && !std::exchange(stop_.at_once, true)) send_stop(SIGKILL);
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
    const std::string reason = signal_name(signal) + " received on node " + describe(node);
    stop_round(signal, {Trigger::Final, reason, exit_code({.signal = signal})});
  } else if (has_workers) {
    roster_.mark_leaving(node.state.incarnation);
    is_news_ = true;
    const std::string reason = "node " + describe(node) + " leaves (" + signal_name(signal) + " received)";
    losses_.push_back({.noticed = now_, .text = reason});  // its workers may die before the others get the stop
    if (job_.phase == Phase::Stopping) return;             // it is released once the round is stopped
    stop_round(SIGTERM, {Trigger::Membership, reason});
  } else {
    release(node);
  }
}

void CoordinatorCore::on_round_report(const Node& node) {
  const AgentState& state = node.state;
  if (node.seat < 0 || state.round != job_.round) return;
  note_failures(node);
  note_own_stop(node);
  // A node that tells of a hang only now may have made an end of what was to be a restart.
  if (job_.phase == Phase::Stopping && stop_.keeps_survivors && !survivors_stay()) send_stop(SIGTERM);
  if (job_.phase != Phase::Opening && job_.phase != Phase::Running) return;
  const bool by_themselves = std::any_of(state.failures.begin(), state.failures.end(),
                                         [](const WorkerFailure& f) { return !f.stopped_by_ddprun; });
  if (!by_themselves && !state.stopped_because.empty()) {
    stop_round(SIGTERM, {.trigger = Trigger::Loss, .reason = losses_.back().text, .dead = ranks_of(node)});
  } else if (!state.failures.empty()) {
    std::vector<WorkerFailure> known;
    for (const KnownFailure& f : failures_) known.push_back(f.failure);
    const WorkerFailure& cause = *cause_of(known);
    stop_round(SIGTERM,
               {.trigger = Trigger::Failure, .reason = describe(cause), .dead = failed_ranks(), .cause = cause});
  }
}

// Adds the failures of a report. Reports repeat failures that are known, with more about them each time: what a worker
// printed last is reported after its death.
void CoordinatorCore::note_failures(const Node& node) {
  std::size_t& text = failure_text_[node.state.incarnation];
  for (const WorkerFailure& failure : node.state.failures) {
    const auto [known, is_new] =
        failure_of_.emplace(std::pair(node.state.incarnation, failure.local_rank), failures_.size());
    if (is_new) failures_.push_back({node.state.incarnation, describe(node), now_, {}});
    WorkerFailure& noted = failures_[known->second].failure;
    text -= text_bytes(noted);
    noted = failure;
    if (text + text_bytes(noted) > kMaxFailureText) forget_text(noted);  // reports may name other failures each time
    text += text_bytes(noted);
  }
}

// A node that killed its workers explains the failures that its peers report, even if their reports come first.
void CoordinatorCore::note_own_stop(const Node& node) {
  if (node.state.stopped_because.empty()) return;
  const std::string text = "node " + describe(node) + " stopped its workers: " + node.state.stopped_because;
  std::size_t earlier = 0;
  for (const Loss& loss : losses_) {
    if (loss.text == text) return;
    if (loss.stopped_itself == node.state.incarnation) ++earlier;
  }
  if (earlier >= kMaxOwnStops) return;
  const bool is_at_fault = node.state.hang == Hang::None;  // every node reports a hang, not only the late one
  losses_.push_back({node.unheard_since, text, node.state.incarnation, node.state.hang,
                     is_at_fault ? describe(node) : std::string()});
}

std::vector<int> CoordinatorCore::ranks_of(const Node& node) const {
  std::vector<int> ranks(static_cast<std::size_t>(node.state.slots));
  std::iota(ranks.begin(), ranks.end(), node.base_rank);
  return ranks;
}

// Returns the ranks that failed by themselves: those that ddprun stopped were alive until then.
std::vector<int> CoordinatorCore::failed_ranks() const {
  std::vector<int> ranks;
  for (const KnownFailure& known : failures_) {
    if (!known.failure.stopped_by_ddprun) ranks.push_back(known.failure.rank);
  }
  std::sort(ranks.begin(), ranks.end());
  return ranks;
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
        finish(make(Directive::Kind::Exit, kAllSucceeded));
      } else if (has_newcomer()) {
        stop_round(SIGTERM, {Trigger::Membership, describe_newcomers() + " joined"});
      }
      return;
    case Phase::Stopping:
      // Quiet workers were told to end when the round was stopped. A restart that has left its window since then
      // changes nothing of that.
      if (roster_.quiet() > 0 && !stop_.keeps_survivors) return;
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

// ---- Rounds ----

void CoordinatorCore::gather() {
  const JobShape& job = config_.job;
  gather_wake_.reset();
  if (roster_.nodes().empty() || own_leaves_) return;
  if (!gather_until_) {  // the first node is here
    gathering_since_ = now_;
    gather_until_ = now_ + config_.join_timeout;
    is_news_ = true;
  }
  if (!next_waiting_message_ && job.max_nodes > 1) next_waiting_message_ = now_ + kFirstWaitingMessage;
  // A member of the last round whose link is broken will be back in a moment, or lost.
  if (roster_.has_broken_link() && job_.round > 0) return;
  // One that was quiet and died will be idle, or has others in the places of its dead.
  if (roster_.members() > roster_.idle()) return;
  const bool own_is_there = own_is_ready();  // it may be the last to come
  if (own_is_there && roster_.ready() >= job.max_nodes) return open_round();
  const bool enough = own_is_there && elastic() && roster_.ready() >= job.min_nodes;
  if (enough && job_.round > 0) return open_round();  // a node that comes later starts another round
  if (!enough) {
    last_call_until_.reset();
    if (now_ >= *gather_until_) return give_up_gathering();
  } else if (!last_call_until_) {
    last_call_until_ = now_ + config_.last_call;
  }
  if (last_call_until_ && now_ >= *last_call_until_) return open_round();
  gather_wake_ = last_call_until_ ? last_call_until_ : gather_until_;
}

bool CoordinatorCore::own_is_ready() const {
  const Node* const own = roster_.find(roster_.own());
  return own && roster_.is_ready(*own);
}

void CoordinatorCore::give_up_gathering() {
  Directive exit = make(Directive::Kind::Exit, "");
  exit.exit_code = exit_code({.is_lost = true});
  const auto waited = std::chrono::duration_cast<milliseconds>(*gather_until_ - gathering_since_);
  if (job_.round == 0) {
    exit.reason =
        "not all nodes came within " + to_string(waited) + " (--rdzv-conf join_timeout): " + describe_missing();
  } else {
    exit.reason = losses_.empty() ? job_.why_round : losses_.back().text;
    if (waited.count() > 0) {
      exit.reason += "; nobody took its place within " + to_string(waited) + " (--rdzv-conf join_timeout)";
    }
  }
  end(exit);
}

// Returns the members of the next round by node rank. Members of the last round keep their rank. Newcomers take the
// ranks that have become free, then new ones, in the order of config_.seat_order; ranks that are still free then are
// closed up. The coordinator's own node has 0, also after a takeover. If there are more nodes than places, those that
// came first have one; --exclude-after puts nodes behind all others.
std::vector<Incarnation> CoordinatorCore::choose_seats() const {
  std::vector<const Node*> chosen;
  for (const auto& [incarnation, node] : roster_.nodes()) {
    if (roster_.is_ready(node)) chosen.push_back(&node);
  }
  std::sort(chosen.begin(), chosen.end(), [this](const Node* a, const Node* b) {
    const auto order = [this](const Node& n) {
      const bool is_member = n.seat >= 0;
      return std::tuple(!roster_.is_own(n), makes_room(n), !is_member, is_member ? n.seat : n.arrival);
    };
    return order(*a) < order(*b);
  });
  if (chosen.size() > static_cast<std::size_t>(config_.job.max_nodes)) {
    chosen.resize(static_cast<std::size_t>(config_.job.max_nodes));
  }
  std::vector<Incarnation> seats(config_.job.node_ranks_given ? chosen.size() : roster_.seats().size());
  std::vector<const Node*> newcomers;
  for (const Node* node : chosen) {
    if (config_.job.node_ranks_given) {
      seats[static_cast<std::size_t>(node->state.node_rank)] = node->state.incarnation;
    } else if (node->seat >= 0) {
      seats[static_cast<std::size_t>(node->seat)] = node->state.incarnation;
    } else {
      newcomers.push_back(node);
    }
  }
  const auto goes_first = [this](const Node* a, const Node* b) {
    const bool own_a = roster_.is_own(*a), own_b = roster_.is_own(*b);
    return own_a != own_b ? own_a : config_.seat_order(a->state, b->state);
  };
  std::stable_sort(newcomers.begin(), newcomers.end(), goes_first);
  if (!config_.job.node_ranks_given) give_first_seat_to_own(seats, newcomers);
  // Newcomers take the seats that were left empty above: those of lost nodes and of members that are not ready.
  auto newcomer = newcomers.begin();
  for (Incarnation& seat : seats) {
    if (seat.empty() && newcomer != newcomers.end()) seat = (*newcomer++)->state.incarnation;
  }
  for (; newcomer != newcomers.end(); ++newcomer) seats.push_back((*newcomer)->state.incarnation);
  std::erase(seats, Incarnation());
  return seats;
}

// After a takeover another node may have had the first seat: it gets the one that the coordinator's node had, or the
// first that is free.
void CoordinatorCore::give_first_seat_to_own(std::vector<Incarnation>& seats,
                                             std::vector<const Node*>& newcomers) const {
  if (seats.empty() || seats.front() == roster_.own()) return;
  const auto own = std::find(seats.begin(), seats.end(), roster_.own());
  if (own != seats.end()) return std::iter_swap(seats.begin(), own);
  const auto is_own = [this](const Node* node) { return roster_.is_own(*node); };
  const auto coming = std::find_if(newcomers.begin(), newcomers.end(), is_own);
  if (seats.front().empty() || coming == newcomers.end()) return;
  std::iter_swap(newcomers.begin(), coming);
  newcomers.front() = &roster_.at(std::exchange(seats.front(), roster_.own()));
}

void CoordinatorCore::open_round() {
  ++job_.round;
  roster_.begin_round(job_.round, choose_seats());
  job_.phase = Phase::Opening;
  failures_.clear();
  failure_of_.clear();
  failure_text_.clear();
  losses_.clear();
  stop_ = {};
  stop_gathering();

  if (job_.round == 1) name_nodes_without_place();
  is_news_ = true;
  ask_for_store();
}

void CoordinatorCore::ask_for_store() {
  OpenStore open{job_.round, {}};
  for (const Incarnation& seat : roster_.seats()) {
    if (seat.empty()) continue;  // lost since another life of this coordinator has chosen it
    const Node& node = roster_.at(seat);
    if (!node.address.empty()) open.addresses.push_back(node.address);
    open.addresses.insert(open.addresses.end(), node.state.addresses.begin(), node.state.addresses.end());
  }
  actions_->push_back(std::move(open));
}

// Says which nodes the user's file of the network lacks: they come last.
void CoordinatorCore::name_nodes_without_place() {
  std::vector<std::string> without;
  for (const Incarnation& seat : roster_.seats()) {
    const Node& node = roster_.at(seat);
    if (!roster_.is_own(node) && config_.seat_order.lacks(node.state.host)) without.push_back(describe(node));
  }
  if (without.empty()) return;
  actions_->push_back(CoordinatorLogLine{"the file of --topology does not name " + list_of(without, kNamesShown) +
                                         ": ranks there come after those of all other nodes"});
}

void CoordinatorCore::stop_gathering() {
  gather_until_.reset();
  last_call_until_.reset();
  gather_wake_.reset();
  next_waiting_message_.reset();
  told_missing_.clear();
}

void CoordinatorCore::on(const StoreOpened& event) {
  if (job_.phase != Phase::Opening || event.round != job_.round) return;  // the round was stopped meanwhile
  job_.phase = Phase::Running;
  Directive run = make(Directive::Kind::Run, "");
  run.cause = job_.cause;
  if (has_window()) run.restarts_left = std::max(config_.job.max_restarts - budget_used(), 0);
  run.assignment = {.node_count = static_cast<int>(roster_.seats().size()),
                    .restart_count = job_.restarts,
                    .max_restarts = config_.job.max_restarts,
                    .master_addr = event.address.empty() ? choose_master_addr() : event.address,
                    .master_port = event.port};
  std::map<std::string, int> workers_of_role, ranks_of_role;
  for (const Incarnation& seat : roster_.seats()) {
    const AgentState& state = roster_.at(seat).state;
    run.assignment.world_size += state.slots;
    workers_of_role[state.role] += state.slots;
  }
  if (job_.is_restart) {
    run.reason = job_.why_round;
  } else if (job_.round > 1) {
    run.reason = "round " + std::to_string(job_.round) + ": " + counted(run.assignment.node_count, "node") + ", " +
                 counted(run.assignment.world_size, "worker");
  }
  run.reason += std::exchange(job_.who_makes_room, "");
  is_news_ = true;
  run_ = run;
  for (const Incarnation& seat : roster_.seats()) {
    const Node& node = roster_.at(seat);
    int& role_rank = ranks_of_role[node.state.role];
    roster_.set_base_rank(seat, run.assignment.base_rank);
    run.assignment.base_role_rank = role_rank;
    run.assignment.role_world_size = workers_of_role[node.state.role];
    send(node, run);
    ++run.assignment.node_rank;
    run.assignment.base_rank += node.state.slots;
    role_rank += node.state.slots;
  }
  for (const auto& [incarnation, node] : roster_.nodes()) {
    if (!roster_.is_spare(node)) continue;
    const bool is_quiet = node.state.phase == WorkersPhase::Quiet;  // its workers were members of the last round
    Directive directive =
        make(is_quiet ? Directive::Kind::Stop : Directive::Kind::Wait, makes_room(node) ? kMakesRoom : kSpare);
    if (is_quiet) directive.stop_signal = SIGTERM;
    send(node, directive);
  }
  advance();
}

// Returns an address of this machine by which all nodes of the round reach it: programs open ports of their own on it.
// The endpoint's host is one if all nodes spell it alike and it means on this machine the address at which they arrive
// (Debian gives a machine's own name 127.0.1.1); else that address, if there is but one; else the host, if its name
// stands for several. Empty: there is none, and the user is warned.
std::string CoordinatorCore::choose_master_addr() {
  const AgentState& own = roster_.at(roster_.own()).state;
  bool all_here = true, all_spell_it = true, all_direct = true;
  std::set<std::string> arrivals;  // this machine's addresses at which links of other machines arrived
  std::vector<std::string> ways;   // in which they came, for the user
  for (const Incarnation& seat : roster_.seats()) {
    const Node& node = roster_.at(seat);
    if (is_on_own_machine(node)) continue;
    const bool is_direct = node.state.coordinator_address == node.arrived_at;  // else the network translates addresses
    all_here = false;
    all_spell_it = all_spell_it && node.state.endpoint_host == own.endpoint_host;
    all_direct = all_direct && is_direct;
    arrivals.insert(node.arrived_at);
    ways.push_back(node.state.host + " by " + node.state.coordinator_address +
                   (is_direct ? "" : ", which is " + node.arrived_at + " here"));
  }
  const bool leads_here = !own.endpoint_host.empty() && !own.coordinator_address.empty();
  if (all_here) return leads_here ? own.endpoint_host : "127.0.0.1";
  const bool is_one = arrivals.size() == 1;
  if (leads_here && all_spell_it && is_one && *arrivals.begin() == own.coordinator_address) return own.endpoint_host;
  if (all_direct && is_one) return *arrivals.begin();
  if (leads_here && all_spell_it && !is_loopback(own.coordinator_address)) return own.endpoint_host;
  const std::string warning =
      "MASTER_ADDR is not the same on all nodes, since they reach this one in different ways (" +
      list_of(ways, kNamesShown) +
      "): a port that rank 0 opens on it may be out of reach for others; give all nodes the same --rdzv-endpoint, or "
      "this one --local-addr with an address that all of them reach";
  if (std::exchange(addresses_differ_, warning) != warning) actions_->push_back(CoordinatorLogLine{warning});
  return "";
}

// Whether a node is on the coordinator's machine, so that it reaches each of its addresses.
bool CoordinatorCore::is_on_own_machine(const Node& node) const {
  const AgentState& own = roster_.at(roster_.own()).state;
  return node.state.host == own.host && node.state.addresses == own.addresses;
}

void CoordinatorCore::on(const StoreFailed& event) {
  if (job_.phase != Phase::Opening || event.round != job_.round) return;
  Directive exit = make(Directive::Kind::Exit, "round " + std::to_string(event.round) + " has no store: " + event.why);
  exit.exit_code = exit_code({.has_failed = true});
  end(exit);
}

void CoordinatorCore::stop_round(int signal, Stop stop) {
  stop_ = std::move(stop);
  const bool is_failure = stop_.trigger == Trigger::Failure || stop_.trigger == Trigger::Loss;
  // Workers that wait for one another see no other sign that they are to leave their groups.
  if (is_failure || survivors_stay()) actions_->push_back(PublishFailure{stop_.reason, stop_.dead});
  const bool nothing_runs = job_.phase == Phase::Gathering && roster_.quiet() == 0;
  if (job_.phase == Phase::Gathering) stop_gathering();
  job_.phase = Phase::Stopping;
  is_news_ = true;
  if (nothing_runs) return after_stop();
  send_stop(signal);
}

void CoordinatorCore::send_stop(int signal) {
  stop_.signal = signal;
  const bool is_pressed = overdue_at_ && overdue_ != Overdue::Name;  // then this is a stop with SIGKILL
  if (config_.stops_within.count() > 0 && !is_pressed) {
    overdue_ = Overdue::Name;
    overdue_at_ = now_ + config_.stops_within;
  }
  is_news_ = true;
  Directive directive = make(Directive::Kind::Stop, stop_.reason);
  directive.stop_signal = signal;
  directive.cause = stop_.cause;
  stop_.keeps_survivors = survivors_stay();
  for (const Incarnation& seat : roster_.seats()) {
    if (seat.empty()) continue;
    const Node& node = roster_.at(seat);
    directive.survivors_stay = stop_.keeps_survivors && !node.leaving;
    send(node, directive);
  }
}

// A node may hang in its kernel, or lie. First a line names the nodes that do not stop, then they are to kill their
// workers, and then they count as lost.
void CoordinatorCore::press_overdue() {
  overdue_at_.reset();
  if (job_.phase != Phase::Stopping) return;
  std::vector<Incarnation> late;
  std::vector<std::string> names;
  for (const Incarnation& seat : roster_.seats()) {
    if (seat.empty() || roster_.is_idle(roster_.at(seat))) continue;
    late.push_back(seat);
    names.push_back("node " + describe(roster_.at(seat)));
  }
  if (late.empty()) return;
  if (overdue_ == Overdue::Name) {
    actions_->push_back(CoordinatorLogLine{"waiting for " + list_of(names, kNamesShown) + " to stop workers of round " +
                                           std::to_string(job_.round)});
    overdue_ = Overdue::Kill;
    overdue_at_ = now_ + 2 * config_.stops_within;
  } else if (overdue_ == Overdue::Kill) {
    overdue_ = Overdue::Lose;
    overdue_at_ = now_ + kLostAfterKill;
    send_stop(SIGKILL);
  } else {
    for (const Incarnation& one : late) {
      if (one == roster_.own()) continue;  // this node's agent ends with its coordinator
      const Node& node = roster_.at(one);
      lose(node, now_, "node " + describe(node) + " was lost: it did not stop its workers");
    }
  }
}

// Whether workers that can go on in another round are to live, since there will most likely be one. While a round is
// being stopped the answer stays the same, unless a node tells of a hang.
bool CoordinatorCore::survivors_stay() const {
  if (!config_.job.survivors_stay || stop_.trigger == Trigger::Final || hang_of_round() == Hang::End) return false;
  return !spends_restart() || budget_used() < config_.job.max_restarts;
}

// Whether the round that follows this stop counts as a restart.
bool CoordinatorCore::spends_restart() const {
  const bool is_hang = hang_of_round() != Hang::None;
  return stop_.trigger == Trigger::Failure || (stop_.trigger == Trigger::Loss && (!elastic() || is_hang));
}

// Decides how the job goes on when no process of the round acts any more, and all is known: error files and last lines
// have been read.
void CoordinatorCore::after_stop() {
  Directive exit = make(Directive::Kind::Exit, stop_.reason);
  exit.exit_code = stop_.exit_code;
  std::vector<WorkerFailure> failures;
  for (const KnownFailure& known : failures_) {
    failures.push_back(known.failure);
    const bool too_late = known.seen > failures_.front().seen + kCauseWindow;
    if (too_late) failures.back().already_exiting = false;
  }
  // Nodes of the round that are lost may come back and hear it as well.
  exit.failures = worth_telling(failures, std::max(roster_.nodes().size(), roster_.seats().size()));
  const bool unkillable = std::any_of(roster_.nodes().begin(), roster_.nodes().end(), [](const auto& entry) {
    return entry.second.seat >= 0 && !entry.second.state.unkillable.empty();
  });
  if (stop_.trigger == Trigger::Final) {
    exit.cause = stop_.cause;
    return finish(exit);
  }
  // The round was over before its store was lost, or its coordinator.
  const bool are_all_there = roster_.members() > 0 && roster_.members() == static_cast<int>(roster_.seats().size());
  if (stop_.trigger == Trigger::Loss && are_all_there && roster_.members() == roster_.succeeded()) {
    return finish(make(Directive::Kind::Exit, kAllSucceeded));
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
      exit.reason = loss->text;
    }
  }
  if (cause) job_.cause = exit.cause = cause;
  const bool is_loss = stop_.trigger == Trigger::Loss && hang_of_round() == Hang::None;
  exit.exit_code = exit_code({.is_lost = is_loss, .first = cause ? cause->status : ExitStatus(), .has_failed = true});
  const bool spends = spends_restart();
  if (unkillable) {
    exit.reason += "; not restarted, since not all processes could be killed";
    return end(exit);
  }
  if (cause && cause->never_ran) {
    exit.reason += "; not restarted, since the program cannot run there";
    return end(exit);
  }
  if (hang_of_round() == Hang::End) return end(exit);
  if (spends && budget_used() >= config_.job.max_restarts) return end(exit);
  const std::string at_fault = name_at_fault(cause, exit.reason);
  if (spends) {
    spend_restart();
    // A restart prints no failure report, so the line has the worker's last message.
    exit.reason = "restart " + describe_budget() + ": " + (cause ? describe_with_message(*cause) : exit.reason);
  }
  count_first_cause(at_fault);
  job_.is_restart = spends;
  next_round(exit.reason);
}

// Whether a node has ended the round because its workers stood still, and what is to follow.
Hang CoordinatorCore::hang_of_round() const {
  Hang hang = Hang::None;
  if (stop_.trigger != Trigger::Loss) return hang;
  for (const Loss& loss : losses_) hang = std::max(hang, loss.hang);
  return hang;
}

void CoordinatorCore::spend_restart() {
  ++job_.restarts;
  budget_.spend(now_);
}

// Returns "2 of 3" or, with a window, "7, 2 of 3 within 1 h".
std::string CoordinatorCore::describe_budget() const {
  const std::string of = " of " + std::to_string(config_.job.max_restarts);
  if (!has_window()) return std::to_string(job_.restarts) + of;
  return std::to_string(job_.restarts) + ", " + std::to_string(budget_used()) + of + " within " +
         to_string(config_.job.restart_window);
}

// Returns the name of the node where the end of the round began; empty: none is known.
std::string CoordinatorCore::name_at_fault(const std::optional<WorkerFailure>& cause, const std::string& loss) const {
  if (cause) {
    const auto failed = [&](const KnownFailure& known) { return known.failure.rank == cause->rank; };
    return std::find_if(failures_.begin(), failures_.end(), failed)->name;
  }
  const auto lost = std::find_if(losses_.begin(), losses_.end(), [&](const Loss& l) { return l.text == loss; });
  return lost == losses_.end() ? "" : lost->name;
}

// Counts a node as the first cause of a round's end, and has it told with the next round if it was that too often.
void CoordinatorCore::count_first_cause(const std::string& name) {
  const int limit = config_.job.exclude_after;
  if (limit == 0 || name.empty()) return;
  if (first_causes_.size() >= kMaxFirstCauses)
    std::erase_if(first_causes_, [](const auto& n) { return n.second == 1; });
  if (++first_causes_[name] != limit) return;
  const Node* const own = roster_.find(roster_.own());
  const std::string what = own && describe(*own) == name ? "coordinates, so it cannot make room"
                                                         : "makes room for any other node from now on";
  job_.who_makes_room =
      "; node " + name + " was the first cause of " + counted(limit, "failure") + " (--exclude-after) and " + what;
}

// Whether a node has a place only as long as no other node wants it.
bool CoordinatorCore::makes_room(const Node& node) const {
  if (config_.job.exclude_after == 0 || roster_.is_own(node)) return false;
  return times_first_cause(node) >= config_.job.exclude_after;
}

// The coordinator's own node has a name without an address. What it was the cause of while it coordinated counts on
// when another node does.
int CoordinatorCore::times_first_cause(const Node& node) const {
  const auto count_of = [this](const std::string& name) {
    const auto count = first_causes_.find(name);
    return count == first_causes_.end() ? 0 : count->second;
  };
  const Node* const own = roster_.find(roster_.own());
  const bool has_coordinated = !node.address.empty() && !(own && own->state.host == node.state.host);
  return count_of(describe(node)) + (has_coordinated ? count_of(node.state.host) : 0);
}

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
                 .restarts = job_.restarts,
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

void CoordinatorCore::next_round(const std::string& why) {
  job_.phase = Phase::Gathering;
  job_.why_round = why;
  is_news_ = true;
  gathering_since_ = now_;
  for (auto node = roster_.nodes().begin(); node != roster_.nodes().end();) {
    const Node& leaver = (node++)->second;
    if (leaver.leaving) release(leaver);
  }
  const bool waits = config_.job.max_restarts > 0 || config_.job.survivors_stay || own_leaves_;
  gather_until_ = now_ + (waits ? config_.join_timeout : milliseconds(0));
  gather();
}

// ---- The end ----

// Ends the job, workers that wait for another round first.
void CoordinatorCore::end(const Directive& exit) {
  if (roster_.quiet() == 0) return finish(exit);
  stop_gathering();
  job_.phase = Phase::Stopping;
  stop_ = {.trigger = Trigger::Final, .reason = exit.reason, .exit_code = exit.exit_code, .cause = exit.cause};
  send_stop(SIGTERM);
}

void CoordinatorCore::finish(Directive exit) {
  job_.phase = Phase::Over;
  exit_ = std::move(exit);
  is_news_ = true;
  stop_gathering();
  over_since_ = now_;
  for (const auto& [incarnation, node] : roster_.nodes()) {
    if (!roster_.is_own(node)) send(node, *exit_);
  }
  finish_shutdown();
}

// Tells the coordinator's own agent to leave, once it is the last one or has waited long enough. With it goes the
// store; a node that has not heard of the end by then never will.
void CoordinatorCore::finish_shutdown() {
  const Node* const own = roster_.find(roster_.own());
  shutdown_until_.reset();
  if (config_.epoch_is_number && own_was_told_ && !own && !std::exchange(is_done_, true)) {
    actions_->push_back(JobDone{!is_end_missed_ && roster_.nodes().empty()});
  }
  if (own_was_told_ || !own) return;
  shutdown_until_ = std::max(now_, over_since_ + config_.stays_over_for);
  for (const auto& [incarnation, node] : roster_.nodes()) {
    if (!roster_.is_own(node)) shutdown_until_ = std::max(*shutdown_until_, awaited_until(node));
  }
  if (now_ < *shutdown_until_) return;
  own_was_told_ = true;
  shutdown_until_.reset();
  next_silence_check_.reset();
  send(*own, *exit_);
}

// Returns how long the end of the job waits for a node to leave. One whose workers succeeded has nothing left to do, so
// it answers at once; if it has been silent for long enough already, it is most likely dead. One that is no member of
// the round has had no workers, and may be anybody: whatever it says, the end does not wait until it has left.
TimePoint CoordinatorCore::awaited_until(const Node& node) const {
  const TimePoint latest = over_since_ + config_.lost_after;
  if (node.seat < 0 && !node.cut) return std::min(latest, over_since_ + kAnswerToEnd);
  if (!roster_.has_succeeded(node)) return latest;
  return std::min(latest, std::max(node.heard + config_.lost_after / 5, over_since_ + kAnswerToEnd));
}

// Workers that have a connection to the store wait for answers that it would have given, and PyTorch's never connect
// again. Others need it no longer, or do not need it yet and find the new one.
void CoordinatorCore::on(const StoreLost& event) {
  const std::string store = "the store is gone: " + event.why;
  switch (job_.phase) {
    case Phase::Opening:
      return ask_for_store();
    case Phase::Running:
      if (event.clients > 0) {
        const std::string reason = store + ", and " + counted(event.clients, "connection") + " of workers with it";
        losses_.push_back({.noticed = now_, .text = reason});
        return stop_round(SIGTERM, {.trigger = Trigger::Loss, .reason = reason});
      }
      ask_for_store();  // so that it admits the nodes of this round
      actions_->push_back(
          CoordinatorLogLine{store + "; no worker had a connection to it, so the job goes on with an empty one"});
      return;
    default:
      actions_->push_back(CoordinatorLogLine{store + "; no round needs it now"});
  }
}

// ---- Messages ----

void CoordinatorCore::send_waiting_message() {
  next_waiting_message_ = now_ + kBetweenWaitingMessages;
  const std::string missing = describe_missing();
  if (missing == told_missing_ && !last_call_until_ && now_ < tell_missing_again_) return;
  told_missing_ = missing;
  tell_missing_again_ =
      now_ + std::clamp<TimePoint::duration>((now_ - gathering_since_) / 2, kBetweenWaitingMessages, kMostBetweenSame);
  const auto waited = std::chrono::duration_cast<std::chrono::seconds>(now_ - gathering_since_);
  const auto limit = std::chrono::duration_cast<milliseconds>(*gather_until_ - gathering_since_);
  const std::string how_long =
      last_call_until_
          ? "last call: starting in " + to_string(std::chrono::ceil<std::chrono::seconds>(*last_call_until_ - now_))
          : std::to_string(waited.count()) + " s of " + to_string(limit);
  const Directive wait = make(Directive::Kind::Wait, "waiting for nodes: " + missing + "; " + how_long);
  for (const auto& [incarnation, node] : roster_.nodes()) {
    const bool was_told_to_stop =
        node.state.phase == WorkersPhase::Running ||
        node.state.phase == WorkersPhase::Stopping;  // if its link breaks, it needs that directive again
    if (!node.cut && !was_told_to_stop) send(node, wait);
  }
}

// Returns "1 of 3 there (a); missing: node ranks 1, 2".
std::string CoordinatorCore::describe_missing() const {
  std::vector<std::string> there, missing;
  for (const auto& [incarnation, node] : roster_.nodes()) {
    if (roster_.is_ready(node)) there.push_back(describe(node));
  }
  std::string text = std::to_string(there.size()) + " of " + (elastic() ? "at least " : "") +
                     std::to_string(config_.job.min_nodes) + " there (" + list_of(there, kNamesShown) + ")";
  if (!config_.job.node_ranks_given) {
    if (!own_is_ready() && !there.empty()) text += "; missing: the agent of the coordinator's node";
    return text;
  }
  for (int rank = 0; rank < config_.job.max_nodes; ++rank) {
    if (!roster_.is_held(rank)) missing.push_back(std::to_string(rank));
  }
  return text + "; missing: node rank" + (missing.size() == 1 ? " " : "s ") + list_of(missing, kNamesShown);
}

std::string CoordinatorCore::describe_newcomers() const {
  std::string text;
  for (const auto& [incarnation, node] : roster_.nodes()) {
    if (roster_.is_spare(node)) text += (text.empty() ? "node " : ", ") + describe(node);
  }
  return text;
}

Directive CoordinatorCore::make(Directive::Kind kind, std::string reason) const {
  Directive directive;
  directive.kind = kind;
  directive.epoch = config_.epoch;
  directive.instance = instance_;
  directive.back_within = agents_back_within();
  directive.round = job_.round;
  directive.reason = std::move(reason);
  directive.can_look = true;
  return directive;
}

void CoordinatorCore::send(const Node& node, Directive directive) {
  // In a job of one node nobody would go on without it.
  const bool is_alone = roster_.is_own(node) && config_.own_is_here && config_.job.max_nodes == 1;
  directive.lost_after = is_alone ? milliseconds(0) : config_.lost_after;
  roster_.set_directive(node.state.incarnation, directive);
  if (!node.cut) actions_->push_back(SendDirective{node.link, std::move(directive)});
}

}  // namespace ddp::rendezvous
