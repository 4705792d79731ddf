// SPDX-License-Identifier: BSD-3-Clause
// "mutant: NAME" names a statement for scripts/stress/mutants, which breaks it and checks that the simulator notices.
#include "rendezvous/coordinator/coordinator_core.hpp"

#include <algorithm>
#include <csignal>
#include <cstring>
#include <numeric>
#include <tuple>
#include <utility>

#include "rendezvous/link/failures.hpp"

namespace ddp::rendezvous {

namespace {

using std::chrono::milliseconds;

constexpr milliseconds kBetweenLooks{500};     // at who has fallen silent
constexpr milliseconds kOverslept{2000};       // between two steps: this process was stopped, not the others
constexpr std::chrono::seconds kFirstNews{2};  // most jobs are complete before
constexpr int kMaxSlots = 65536;
constexpr std::size_t kNamesInNews = 8;
constexpr char kSpare[] = "all places of this job are taken: this node waits as a spare";

std::string signal_name(int signal) { return std::string("SIG") + sigabbrev_np(signal); }

std::string in_seconds(milliseconds time) {
  if (time.count() % 1000 == 0) return std::to_string(time.count() / 1000) + " s";
  return std::to_string(time.count()) + " ms";
}

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
  // A crash makes its peers exit, or abort as PyTorch's workers do; so an abort counts only on the first one's node.
  const auto likelihood = [&](const WorkerFailure& f) {
    if (!f.already_exiting || f.status.signal == 0) return 0;
    if (f.status.signal != SIGABRT) return 2;  // mutant: crash
    return f.host == first.host ? 1 : 0;
  };
  return &*std::min_element(failures.begin(), failures.end(), [&](const auto& a, const auto& b) {  // mutant: cause
    return std::tuple(a.stopped_by_ddprun, -likelihood(a)) <
           std::tuple(b.stopped_by_ddprun, -likelihood(b));  // mutant: cause_order
  });
}

void CoordinatorCore::step(TimePoint now, const CoordinatorEvent& event, std::vector<CoordinatorAction>& actions) {
  now_ = now;
  actions_ = &actions;
  forgive_own_sleep();
  last_step_ = now;
  std::visit([this](const auto& e) { on(e); }, event);
  actions_ = nullptr;
}

std::optional<TimePoint> CoordinatorCore::wake_at() const {
  std::optional<TimePoint> soonest;
  for (const auto& time : {gather_wake_, next_look_, next_news_, farewell_until_}) {
    if (time && (!soonest || *time < *soonest)) soonest = time;
  }
  return soonest;
}

void CoordinatorCore::on(const CoordinatorTick&) {
  if (next_look_ && now_ >= *next_look_) {
    next_look_ = now_ + kBetweenLooks;
    look_for_lost();
  }
  if (next_news_ && now_ >= *next_news_) tell_news();
  if (farewell_until_ && now_ >= *farewell_until_) farewell();
  advance();
}

// ---- Nodes come and go ----

void CoordinatorCore::on(const AgentReported& event) {
  const auto known = nodes_.find(event.state.incarnation);
  if (known == nodes_.end()) {
    if (!event.state.left) welcome(event);
    return;
  }
  Node& node = known->second;
  if (event.agent < node.link) return;  // on a link that has been replaced
  const bool is_new_link = event.agent > node.link;
  node.unheard_since = is_new_link ? silent_since(node) : now_;
  if (is_new_link) {
    if (!node.cut) actions_->push_back(CloseLink{node.link});
    if (node.cut) --cut_;
    links_.erase(node.link);
    links_[event.agent] = event.state.incarnation;
    node.link = event.agent;
    node.cut.reset();
    node.address = event.address;
  }
  node.state = event.state;
  count(node);
  if (!node.state.left) word_from(node);  // a last word holds no node rank
  if (node.state.left) {
    const std::string why = node.state.stopped_because.empty() ? "" : ": " + node.state.stopped_because;
    return lose(event.state.incarnation, now_, "node " + named(node) + " left the job" + why);
  }
  if (is_new_link) send(node, node.directive);  // the link is level-triggered; mutant: new_link
  look_at(event.state.incarnation);
}

void CoordinatorCore::welcome(const AgentReported& event) {
  const AgentState& state = event.state;
  if (const std::string reason = why_not(state); !reason.empty()) return refuse(event.agent, reason);
  if (over() && state.incarnation != config_.own_incarnation) {
    actions_->push_back(SendDirective{event.agent, *exit_});
    return;
  }
  Node& node = nodes_[state.incarnation];
  links_[event.agent] = state.incarnation;
  node.state = state;
  node.address = event.address;
  node.link = event.agent;
  node.arrival = ++arrivals_;
  node.heard = now_;
  if (config_.job.node_ranks_given) {
    claim_rank(node);
    if (!nodes_.contains(state.incarnation)) return;
  }
  count(node);
  if (over()) return farewell();  // the last to come, and still the last to go
  if (!is_own(node) && !next_look_) next_look_ = now_ + kBetweenLooks;
  if (state.phase == WorkersPhase::Idle) {
    std::string why;
    if (!node.holder.empty()) {
      why = "node rank " + std::to_string(state.node_rank) + " is held by node " + named(nodes_.at(node.holder)) +
            ", which may be gone: waiting for a word from it";
    } else if (job_.phase != Phase::Gathering && present_ >= config_.job.max_nodes) {
      why = kSpare;
    }
    send(node, make(Directive::Kind::Wait, why));
  } else {  // was lost, and comes back with the workers of a round that is over
    Directive stop = make(Directive::Kind::Stop, "this node was lost; the job has gone on without it");
    stop.stop_signal = SIGKILL;  // the others may be running already; mutant: lost_stop
    send(node, stop);
  }
  look_at(event.state.incarnation);
}

std::string CoordinatorCore::why_not(const AgentState& state) const {
  const JobShape& theirs = state.job;
  const JobShape& ours = config_.job;
  const auto differ = [](const std::string& what, const std::string& there, const std::string& here) {
    return what + " is " + there + " on this host and " + here + " at the coordinator: give all hosts the same";
  };
  if (theirs.id != ours.id) return differ("--rdzv-id", "'" + theirs.id + "'", "'" + ours.id + "'");
  if (nnodes(theirs) != nnodes(ours)) return differ("--nnodes", nnodes(theirs), nnodes(ours));  // mutant: nnodes
  if (theirs.max_restarts != ours.max_restarts) {
    return differ("--max-restarts", std::to_string(theirs.max_restarts), std::to_string(ours.max_restarts));
  }
  if (theirs.node_ranks_given != ours.node_ranks_given) {
    const auto backend = [](const JobShape& job) { return job.node_ranks_given ? "static" : "c10d"; };
    return differ("--rdzv-backend", backend(theirs), backend(ours));
  }
  if (!state.epoch.empty() && state.epoch != config_.epoch) {
    return "the coordinator that this node served is gone, and another one has taken its place";
  }
  if (ours.node_ranks_given && (state.node_rank < 0 || state.node_rank >= ours.max_nodes)) {
    return "--node-rank " + std::to_string(state.node_rank) + " with --nnodes " + nnodes(ours) + ": give 0 to " +
           std::to_string(ours.max_nodes - 1);
  }
  const bool own_is_there = nodes_.contains(config_.own_incarnation);  // else it is about to come, with node rank 0
  if (ours.node_ranks_given && state.node_rank == 0 && !own_is_there && state.incarnation != config_.own_incarnation) {
    return "--node-rank 0 is the coordinator's node: give each host a --node-rank of its own";
  }
  if (state.slots < 1 || state.slots > kMaxSlots) {
    return std::to_string(state.slots) + " workers on one node: give 1 to " + std::to_string(kMaxSlots);
  }
  return "";
}

void CoordinatorCore::refuse(AgentId agent, const std::string& reason) {
  Directive exit = make(Directive::Kind::Exit, reason);
  exit.exit_code = 1;
  exit.lost_after = config_.lost_after;
  actions_->push_back(SendDirective{agent, std::move(exit)});
}

// A rank that is held may be claimed by a mistake, or by the replacement of a node whose death has not been noticed
// yet: the claim is refused as soon as the holder says a word.
void CoordinatorCore::claim_rank(Node& node) {
  const auto [holder, is_free] = holders_.emplace(node.state.node_rank, node.state.incarnation);
  if (is_free) return;  // mutant: held_rank
  node.holder = holder->second;
  ++challengers_;
  Node& held_by = nodes_.at(holder->second);
  if (is_own(held_by)) word_from(held_by);
}

void CoordinatorCore::word_from(Node& node) {
  node.heard = now_;
  if (challengers_ == 0 || !node.holder.empty()) return;
  for (auto challenger = nodes_.begin(); challenger != nodes_.end();) {
    const Node& other = (challenger++)->second;
    if (other.holder != node.state.incarnation) continue;  // mutant: challenger
    refuse(other.link, "node rank " + std::to_string(node.state.node_rank) + " is held by node " + named(node) +
                           " and claimed by node " + named(other) + ": give each host a --node-rank of its own");
    forget(Incarnation(other.state.incarnation));
  }
}

void CoordinatorCore::on(const AgentBeat& event) {
  const auto link = links_.find(event.agent);
  if (link == links_.end()) return;  // refused, lost, or on its way out
  word_from(nodes_.at(link->second));
  actions_->push_back(SendBeat{event.agent});
}

void CoordinatorCore::on(const AgentGone& event) {
  const auto link = links_.find(event.agent);
  if (link == links_.end()) return;  // it never said who it was, or has a newer link
  Node& node = nodes_.at(link->second);
  links_.erase(link);
  node.cut = now_;
  node.why_cut = event.why;
  ++cut_;
  count(node);
  if (is_own(node))
    return lose(Incarnation(node.state.incarnation), now_, "the agent on node " + named(node) + " is gone");
  if (!over()) {
    actions_->push_back(CoordinatorLogLine{"the link to node " + named(node) + " broke (" + event.why + "); waiting " +
                                           in_seconds(kReconnectWindow) + " for it to come back"});
  }
}

void CoordinatorCore::look_for_lost() {
  std::vector<std::tuple<Incarnation, TimePoint, std::string>> lost;
  for (const auto& [incarnation, node] : nodes_) {
    if (is_own(node)) continue;
    if (node.cut && now_ >= *node.cut + kReconnectWindow) {  // mutant: node_cut
      lost.emplace_back(incarnation, silent_since(node),
                        "node " + named(node) + " was lost: its link broke (" + node.why_cut +
                            ") and did not come back within " + in_seconds(kReconnectWindow));
    } else if (!node.cut && now_ >= node.heard + config_.lost_after) {  // mutant: node_silent
      lost.emplace_back(incarnation, silent_since(node),
                        "node " + named(node) + " was lost: no word from it for " + in_seconds(config_.lost_after));
    }
  }
  for (const auto& [incarnation, noticed, text] : lost) {
    if (nodes_.contains(incarnation)) lose(incarnation, noticed, text);  // what one loss brings about may let others go
  }
}

// A link that breaks long after its last word was of no use before.
TimePoint CoordinatorCore::silent_since(const Node& node) const {
  const bool fell_silent = !node.cut || *node.cut - node.heard >= config_.lost_after / 3;
  return fell_silent ? node.heard : *node.cut;
}

void CoordinatorCore::lose(const Incarnation& incarnation, TimePoint noticed, const std::string& text) {
  const Node node = nodes_.at(incarnation);
  if (!node.cut) actions_->push_back(CloseLink{node.link});
  forget(incarnation);
  if (over()) return farewell();
  const bool round_is_on = job_.phase == Phase::Opening || job_.phase == Phase::Running;
  // Whose workers have all succeeded is not needed any more, unless the round has to be repeated.
  const bool is_needed = node.seat >= 0 && !node.done && !node.leaving;
  if (is_needed) losses_.push_back({noticed, text});
  if (is_needed && round_is_on) {
    stop_round(SIGTERM, {.trigger = Trigger::Loss, .reason = text, .dead = ranks_of(node)});
  } else {
    actions_->push_back(CoordinatorLogLine{text});
  }
  advance();
}

void CoordinatorCore::forget(const Incarnation& incarnation) {
  Node& node = nodes_.at(incarnation);
  if (node.cut) --cut_;
  links_.erase(node.link);
  if (node.seat >= 0) {
    job_.seats[static_cast<std::size_t>(node.seat)].clear();
    --present_;
  }
  ready_ -= node.ready;
  spares_ -= node.spare;
  idle_ -= node.idle;
  succeeded_ -= node.done;
  if (!node.holder.empty()) --challengers_;
  const auto held = holders_.find(node.state.node_rank);
  const bool was_holder = held != holders_.end() && held->second == incarnation;
  nodes_.erase(incarnation);
  if (was_holder) holders_.erase(held);
  if (!was_holder || challengers_ == 0) return;
  std::vector<Node*> claims;
  for (auto& [other, claimant] : nodes_) {
    if (claimant.holder == incarnation) claims.push_back(&claimant);
  }
  std::sort(claims.begin(), claims.end(), [](const Node* a, const Node* b) { return a->arrival < b->arrival; });
  for (Node* claimant : claims) {
    claimant->holder.clear();
    --challengers_;
    claim_rank(*claimant);
    count(*claimant);
  }
}

// A node that was told to stop while the others go on.
void CoordinatorCore::let_go(Node& node) {
  Directive exit =
      make(Directive::Kind::Exit, signal_name(node.state.stop_signal) + " received: this node leaves the job");
  exit.exit_code = 128 + node.state.stop_signal;
  send(node, exit);
  forget(Incarnation(node.state.incarnation));
}

// While this process was stopped (a debugger, a suspended machine), what the nodes said lay unread.
void CoordinatorCore::forgive_own_sleep() {
  if (!last_step_ || !next_look_ || now_ - *last_step_ < kOverslept) return;
  const auto slept = now_ - *last_step_;
  for (auto& [incarnation, node] : nodes_) {
    node.heard += slept;  // mutant: slept
    if (node.cut) *node.cut += slept;
  }
  // What was seen before stays as far from all that.
  for (KnownFailure& known : failures_) known.seen += slept;
  for (Loss& loss : losses_) loss.noticed += slept;
}

void CoordinatorCore::count(Node& node) {
  const auto flip = [](bool& flag, int& counter, bool now) {
    counter += static_cast<int>(now) - static_cast<int>(flag);
    flag = now;
  };
  const AgentState& state = node.state;
  const bool is_idle = state.phase == WorkersPhase::Idle;
  const bool idle_here = is_idle && node.seat >= 0 && state.round == job_.round;
  const bool is_clean = is_idle && state.unkillable.empty();
  flip(node.ready, ready_, is_clean && !node.cut && !node.leaving && node.holder.empty());
  flip(node.spare, spares_, node.ready && node.seat < 0);
  flip(node.idle, idle_, idle_here);
  flip(node.done, succeeded_, idle_here && state.succeeded);
}

// ---- What a report means for the job ----

void CoordinatorCore::look_at(const Incarnation& incarnation) {
  if (nodes_.at(incarnation).state.stop_signal != 0) on_stop_signal(nodes_.at(incarnation));
  if (const auto node = nodes_.find(incarnation); node != nodes_.end()) on_round_report(node->second);
  advance();
}

void CoordinatorCore::on_stop_signal(Node& node) {
  const int signal = node.state.stop_signal;
  if (over() || node.leaving) return;
  if (job_.phase == Phase::Stopping && stop_.trigger == Trigger::Final) {
    if (signal == SIGKILL && !std::exchange(stop_.at_once, true)) send_stop(SIGKILL);  // mutant: second_signal
    return;
  }
  const auto others = std::count_if(nodes_.begin(), nodes_.end(), [&](const auto& entry) {
    const Node& other = entry.second;
    return &other != &node && !other.leaving && (other.seat >= 0 || other.spare);
  });
  const bool may_leave = elastic() && !is_own(node) && (node.seat < 0 || others >= config_.job.min_nodes);
  const bool has_workers = node.seat >= 0 && (job_.phase != Phase::Gathering);
  if (!may_leave) {
    const std::string reason = signal_name(signal) + " received on node " + named(node);
    stop_round(signal, {Trigger::Final, reason, 128 + signal});
  } else if (has_workers) {
    node.leaving = true;
    count(node);
    const std::string reason = "node " + named(node) + " leaves (" + signal_name(signal) + " received)";
    losses_.push_back({now_, reason});          // its workers may be killed before the others are told to stop
    if (job_.phase == Phase::Stopping) return;  // it may go once that is done
    stop_round(SIGTERM, {Trigger::Membership, reason});
  } else {
    let_go(node);
  }
}

void CoordinatorCore::on_round_report(const Node& node) {
  const AgentState& state = node.state;
  if (node.seat < 0 || state.round != job_.round) return;
  note_failures(node);
  note_own_stop(node);  // mutant: own_stop
  if (job_.phase != Phase::Opening && job_.phase != Phase::Running) return;
  const bool by_themselves = std::any_of(state.failures.begin(), state.failures.end(),
                                         [](const WorkerFailure& f) { return !f.stopped_by_ddprun; });
  if (!by_themselves && !state.stopped_because.empty()) {
    stop_round(SIGTERM, {.trigger = Trigger::Loss, .reason = losses_.back().text, .dead = ranks_of(node)});
  } else if (!state.failures.empty()) {
    std::vector<WorkerFailure> known;
    for (const KnownFailure& f : failures_) known.push_back(f.failure);
    stop_round(SIGTERM, {.trigger = Trigger::Failure, .reason = describe(*cause_of(known)), .dead = failed_ranks()});
  }
}

// Reports repeat what is known, and know more each time: the last words of a worker come after its death.
void CoordinatorCore::note_failures(const Node& node) {
  for (const WorkerFailure& failure : node.state.failures) {
    const auto [known, is_new] =
        failure_of_.emplace(std::pair(node.state.incarnation, failure.local_rank), failures_.size());
    if (is_new) {
      failures_.push_back({node.state.incarnation, now_, failure});
    } else {
      failures_[known->second].failure = failure;
    }
  }
}

// A node that killed its workers explains what its peers report, and theirs may come first.
void CoordinatorCore::note_own_stop(const Node& node) {
  if (node.state.stopped_because.empty()) return;
  const std::string text = "node " + named(node) + " stopped its workers: " + node.state.stopped_because;
  const bool is_known = std::any_of(losses_.begin(), losses_.end(), [&](const Loss& l) { return l.text == text; });
  if (!is_known) losses_.push_back({node.unheard_since, text});
}

std::vector<int> CoordinatorCore::ranks_of(const Node& node) const {
  std::vector<int> ranks(static_cast<std::size_t>(node.state.slots));
  std::iota(ranks.begin(), ranks.end(), node.base_rank);
  return ranks;
}

// Those that ddprun stopped were not dead before it did.
std::vector<int> CoordinatorCore::failed_ranks() const {
  std::vector<int> ranks;
  for (const KnownFailure& known : failures_) {
    if (!known.failure.stopped_by_ddprun) ranks.push_back(known.failure.rank);
  }
  std::sort(ranks.begin(), ranks.end());
  return ranks;
}

// Looks at where everybody is and takes the next step, if there is one.
void CoordinatorCore::advance() {
  switch (job_.phase) {
    case Phase::Gathering:
      return gather();
    case Phase::Opening:
    case Phase::Over:
      return;
    case Phase::Running:
      if (present_ == succeeded_ && present_ > 0) {  // mutant: all_succeeded
        finish(make(Directive::Kind::Exit, "all workers exited with code 0"));
      } else if (has_newcomer()) {
        stop_round(SIGTERM, {Trigger::Membership, newcomers_in_words() + " joined"});
      }
      return;
    case Phase::Stopping:
      if (present_ == idle_) after_stop();  // mutant: all_idle
      return;
  }
}

// A node that came late is taken in at once, unless the job is about to end: workers that have succeeded would have to
// run again.
bool CoordinatorCore::has_newcomer() const {
  return elastic() && spares_ > 0 && succeeded_ == 0 && present_ < config_.job.max_nodes;  // mutant: take_in
}

// ---- Rounds ----

void CoordinatorCore::gather() {
  const JobShape& job = config_.job;
  if (nodes_.empty()) return;
  if (!gather_until_) {  // the first node is here
    gathering_since_ = now_;
    gather_until_ = now_ + config_.join_timeout;  // mutant: join_timeout
  }
  if (!next_news_ && job.max_nodes > 1) next_news_ = now_ + kFirstNews;
  gather_wake_.reset();
  // Members of the last round whose link is broken are back in a moment, or lost.
  if (cut_ > 0 && job_.round > 0) return;
  const bool own_is_there = nodes_.contains(config_.own_incarnation);  // it may be the last to come
  if (own_is_there && ready_ >= job.max_nodes) return open_round();
  const bool enough = own_is_there && elastic() && ready_ >= job.min_nodes;
  if (enough && job_.round > 0) return open_round();  // who comes later starts another round
  if (!enough) {
    last_call_until_.reset();
    if (now_ >= *gather_until_) return give_up_gathering();
  } else if (!last_call_until_) {
    last_call_until_ = now_ + config_.last_call;
  }
  if (last_call_until_ && now_ >= *last_call_until_) return open_round();  // mutant: last_call
  gather_wake_ = last_call_until_ ? last_call_until_ : gather_until_;
}

void CoordinatorCore::give_up_gathering() {
  Directive exit = make(Directive::Kind::Exit, "");
  exit.exit_code = 1;
  const auto waited = std::chrono::duration_cast<milliseconds>(*gather_until_ - gathering_since_);
  if (job_.round == 0) {
    exit.reason =
        "not all nodes came within " + in_seconds(waited) + " (--rdzv-conf join_timeout): " + who_is_missing();
  } else {
    exit.reason = losses_.empty() ? job_.why_round : losses_.back().text;
    if (waited.count() > 0) {
      exit.reason += "; nobody took its place within " + in_seconds(waited) + " (--rdzv-conf join_timeout)";
    }
  }
  finish(exit);
}

// Members keep their node rank. Newcomers take those that have become free, then new ones; what is still free then is
// closed up. The coordinator's own node has 0.
std::vector<CoordinatorCore::Incarnation> CoordinatorCore::choose_seats() const {
  std::vector<const Node*> chosen;
  for (const auto& [incarnation, node] : nodes_) {
    if (node.ready) chosen.push_back(&node);
  }
  std::sort(chosen.begin(), chosen.end(), [this](const Node* a, const Node* b) {
    const auto order = [this](const Node& n) {
      return std::tuple(!is_own(n), n.seat < 0, n.seat < 0 ? n.arrival : n.seat);  // mutant: seat_order
    };
    return order(*a) < order(*b);
  });
  if (chosen.size() > static_cast<std::size_t>(config_.job.max_nodes)) {
    chosen.resize(static_cast<std::size_t>(config_.job.max_nodes));  // mutant: spares
  }
  std::vector<Incarnation> seats(config_.job.node_ranks_given ? chosen.size() : job_.seats.size());
  std::vector<Incarnation> newcomers;
  for (const Node* node : chosen) {
    if (config_.job.node_ranks_given) {
      seats[static_cast<std::size_t>(node->state.node_rank)] = node->state.incarnation;
    } else if (node->seat >= 0) {
      seats[static_cast<std::size_t>(node->seat)] = node->state.incarnation;
    } else {
      newcomers.push_back(node->state.incarnation);
    }
  }
  // A survivor that is not chosen is lost to this round: its seat was left empty above.
  auto newcomer = newcomers.begin();
  for (Incarnation& seat : seats) {
    if (seat.empty() && newcomer != newcomers.end()) seat = *newcomer++;  // mutant: free_seat
  }
  seats.insert(seats.end(), newcomer, newcomers.end());
  std::erase(seats, Incarnation());
  return seats;
}

void CoordinatorCore::open_round() {
  job_.seats = choose_seats();
  ++job_.round;  // mutant: next_round
  job_.phase = Phase::Opening;
  failures_.clear();
  failure_of_.clear();
  losses_.clear();
  stop_ = {};
  stop_gathering();

  for (auto& [incarnation, node] : nodes_) node.seat = -1;
  OpenStore open{job_.round, {}};
  for (std::size_t i = 0; i < job_.seats.size(); ++i) {
    Node& node = nodes_.at(job_.seats[i]);
    node.seat = static_cast<int>(i);
    if (!node.address.empty()) open.addresses.push_back(node.address);
    open.addresses.insert(open.addresses.end(), node.state.addresses.begin(), node.state.addresses.end());
  }
  present_ = static_cast<int>(job_.seats.size());
  for (auto& [incarnation, node] : nodes_) count(node);
  actions_->push_back(std::move(open));
}

void CoordinatorCore::stop_gathering() {
  gather_until_.reset();
  last_call_until_.reset();
  gather_wake_.reset();
  next_news_.reset();
}

void CoordinatorCore::on(const StoreOpened& event) {
  if (job_.phase != Phase::Opening || event.round != job_.round) return;  // the round was stopped meanwhile
  job_.phase = Phase::Running;
  Directive run = make(Directive::Kind::Run, "");
  run.cause = job_.cause;
  run.assignment = {.node_count = static_cast<int>(job_.seats.size()),
                    .restart_count = job_.restarts,
                    .max_restarts = config_.job.max_restarts,
                    .master_addr = event.address,
                    .master_port = event.port};
  std::map<std::string, int> workers_of_role, ranks_of_role;
  for (const Incarnation& seat : job_.seats) {
    const AgentState& state = nodes_.at(seat).state;
    run.assignment.world_size += state.slots;  // mutant: world_size
    workers_of_role[state.role] += state.slots;
  }
  if (job_.is_restart) {
    run.reason = job_.why_round;
  } else if (job_.round > 1) {
    run.reason = "round " + std::to_string(job_.round) + ": " + counted(run.assignment.node_count, "node") + ", " +
                 counted(run.assignment.world_size, "worker");
  }
  for (const Incarnation& seat : job_.seats) {
    Node& node = nodes_.at(seat);
    int& role_rank = ranks_of_role[node.state.role];
    node.base_rank = run.assignment.base_rank;
    run.assignment.base_role_rank = role_rank;
    run.assignment.role_world_size = workers_of_role[node.state.role];
    send(node, run);
    ++run.assignment.node_rank;                    // mutant: node_rank
    run.assignment.base_rank += node.state.slots;  // mutant: base_rank
    role_rank += node.state.slots;                 // mutant: role_rank
  }
  for (auto& [incarnation, node] : nodes_) {
    if (node.spare) send(node, make(Directive::Kind::Wait, kSpare));
  }
  advance();
}

void CoordinatorCore::on(const StoreFailed& event) {
  if (job_.phase != Phase::Opening || event.round != job_.round) return;
  Directive exit = make(Directive::Kind::Exit, "round " + std::to_string(event.round) + " has no store: " + event.why);
  exit.exit_code = 1;
  finish(exit);
}

void CoordinatorCore::stop_round(int signal, Stop stop) {
  stop_ = std::move(stop);
  if (stop_.trigger == Trigger::Failure || stop_.trigger == Trigger::Loss) {
    actions_->push_back(PublishFailure{stop_.reason, stop_.dead});
  }
  const bool nothing_runs = job_.phase == Phase::Gathering;
  if (nothing_runs) stop_gathering();
  job_.phase = Phase::Stopping;
  if (nothing_runs) return after_stop();
  send_stop(signal);
}

void CoordinatorCore::send_stop(int signal) {
  Directive directive = make(Directive::Kind::Stop, stop_.reason);
  directive.stop_signal = signal;
  for (const Incarnation& seat : job_.seats) {
    if (!seat.empty()) send(nodes_.at(seat), directive);
  }
}

// Every process of the round is reaped, and all is known: error files and last words have been read.
void CoordinatorCore::after_stop() {
  Directive exit = make(Directive::Kind::Exit, stop_.reason);
  exit.exit_code = stop_.exit_code;
  std::vector<WorkerFailure> failures;
  for (const KnownFailure& known : failures_) {
    failures.push_back(known.failure);
    const bool too_late = known.seen > failures_.front().seen + kCauseWindow;
    if (too_late) failures.back().already_exiting = false;
  }
  exit.failures = worth_telling(failures, nodes_.size());
  const bool unkillable = std::any_of(nodes_.begin(), nodes_.end(), [](const auto& entry) {
    return entry.second.seat >= 0 && !entry.second.state.unkillable.empty();
  });
  if (stop_.trigger == Trigger::Final) return finish(exit);

  std::optional<WorkerFailure> cause;
  if (stop_.trigger == Trigger::Failure) {
    const auto loss = std::find_if(losses_.begin(), losses_.end(), [&](const Loss& l) {
      return l.noticed <= failures_.front().seen + kCauseWindow;  // mutant: explained
    });
    if (loss == losses_.end()) {
      cause = *cause_of(failures);
      exit.reason = describe(*cause);
    } else {  // its peers could only fail
      stop_.trigger = Trigger::Loss;
      exit.reason = loss->text;
    }
  }
  if (cause) job_.cause = exit.cause = cause;
  exit.exit_code = cause ? cause->status.shell_code() : 1;  // mutant: exit_code
  const bool spends =
      stop_.trigger == Trigger::Failure || (stop_.trigger == Trigger::Loss && !elastic());  // mutant: spends
  if (unkillable) {                                                                         // mutant: unkillable
    exit.reason += "; not restarted, since not all processes could be killed";
    return finish(exit);
  }
  if (spends && job_.restarts == config_.job.max_restarts) return finish(exit);  // mutant: last_restart
  if (spends) {
    ++job_.restarts;  // mutant: count_restart
    // No report is printed of this one: what it said last has to do.
    exit.reason = "restart " + std::to_string(job_.restarts) + " of " + std::to_string(config_.job.max_restarts) +
                  ": " + (cause ? in_one_line(*cause) : exit.reason);
  }
  job_.is_restart = spends;
  next_round(exit.reason);
}

void CoordinatorCore::next_round(const std::string& why) {
  job_.phase = Phase::Gathering;
  job_.why_round = why;
  gathering_since_ = now_;
  gather_until_ = now_ + (config_.job.max_restarts == 0 ? milliseconds(0) : config_.join_timeout);
  for (auto node = nodes_.begin(); node != nodes_.end();) {
    Node& leaver = (node++)->second;
    if (leaver.leaving) let_go(leaver);  // mutant: leaver
  }
  gather();
}

// ---- The end ----

void CoordinatorCore::finish(Directive exit) {
  job_.phase = Phase::Over;
  exit_ = std::move(exit);
  stop_gathering();
  farewell_until_ = now_ + config_.lost_after;
  for (auto& [incarnation, node] : nodes_) {
    if (!is_own(node)) send(node, *exit_);  // mutant: exit_to_all
  }
  farewell();
}

// The coordinator's own agent leaves last: with it goes the store, and whoever has not heard of the end.
void CoordinatorCore::farewell() {
  const auto own = nodes_.find(config_.own_incarnation);
  const bool alone = nodes_.size() == (own == nodes_.end() ? 0U : 1U);
  if (own_was_told_ || own == nodes_.end() || (!alone && now_ < *farewell_until_)) return;  // mutant: farewell
  own_was_told_ = true;
  farewell_until_.reset();
  next_look_.reset();
  send(own->second, *exit_);
}

// ---- Words ----

void CoordinatorCore::tell_news() {
  next_news_ = now_ + kBetweenNews;
  const auto waited = std::chrono::duration_cast<std::chrono::seconds>(now_ - gathering_since_);
  const auto limit = std::chrono::duration_cast<milliseconds>(*gather_until_ - gathering_since_);
  const std::string how_long =
      last_call_until_
          ? "last call: starting in " + in_seconds(std::chrono::ceil<std::chrono::seconds>(*last_call_until_ - now_))
          : std::to_string(waited.count()) + " s of " + in_seconds(limit);
  const Directive news = make(Directive::Kind::Wait, "waiting for nodes: " + who_is_missing() + "; " + how_long);
  for (auto& [incarnation, node] : nodes_) {
    const bool was_told_to_stop = node.state.phase != WorkersPhase::Idle;  // has to hear that again, if its link breaks
    if (!node.cut && !was_told_to_stop) send(node, news);
  }
}

// "1 of 3 there (a); missing are node ranks 1, 2"
std::string CoordinatorCore::who_is_missing() const {
  const auto list = [](const std::vector<std::string>& names) {
    std::string text;
    for (std::size_t i = 0; i < names.size() && i < kNamesInNews; ++i) text += (i > 0 ? ", " : "") + names[i];
    if (names.size() > kNamesInNews) text += " and " + std::to_string(names.size() - kNamesInNews) + " more";
    return text;
  };
  std::vector<std::string> there, missing;
  for (const auto& [incarnation, node] : nodes_) {
    if (node.ready) there.push_back(named(node));
  }
  std::string text = std::to_string(there.size()) + " of " + (elastic() ? "at least " : "") +
                     std::to_string(config_.job.min_nodes) + " there (" + list(there) + ")";
  if (!config_.job.node_ranks_given) return text;
  for (int rank = 0; rank < config_.job.max_nodes; ++rank) {
    if (!holders_.contains(rank)) missing.push_back(std::to_string(rank));
  }
  return text + "; missing: node rank " + list(missing);
}

std::string CoordinatorCore::newcomers_in_words() const {
  std::string text;
  for (const auto& [incarnation, node] : nodes_) {
    if (node.spare) text += (text.empty() ? "node " : ", ") + named(node);
  }
  return text;
}

// "b (10.0.0.2)"
std::string CoordinatorCore::named(const Node& node) const {
  return node.state.host + (node.address.empty() ? "" : " (" + node.address + ")");
}

Directive CoordinatorCore::make(Directive::Kind kind, std::string reason) const {
  Directive directive;
  directive.kind = kind;
  directive.epoch = config_.epoch;
  directive.round = job_.round;
  directive.reason = std::move(reason);
  return directive;
}

void CoordinatorCore::send(Node& node, Directive directive) {
  directive.lost_after = is_own(node) ? milliseconds(0) : config_.lost_after;
  node.directive = directive;
  if (!node.cut) actions_->push_back(SendDirective{node.link, std::move(directive)});
}

}  // namespace ddp::rendezvous
