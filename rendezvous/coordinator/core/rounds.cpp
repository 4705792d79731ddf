// SPDX-License-Identifier: BSD-3-Clause
// The rounds of the coordinator's core: one begins, is stopped, and is over. Nodes that come and go, reports and the
// end of the job are in coordinator_core.cpp.
#include <algorithm>
#include <csignal>
#include <utility>

#include "rendezvous/base/exit_code.hpp"
#include "rendezvous/base/text.hpp"
#include "rendezvous/coordinator/core/coordinator_core.hpp"

namespace ddp::rendezvous {

// ---- A round begins ----

void CoordinatorCore::gather() {
  gathering_.rest();
  if (roster_.nodes().empty() || own_leave_) return;
  is_news_ = is_news_ || !gathering_.has_begun();
  switch (gathering_.next(now_, roster_, job_.round)) {
    case Gathering::Next::Wait:
      return;
    case Gathering::Next::Open:
      return open_round();
    case Gathering::Next::GiveUp:
      return give_up_gathering();
  }
}

void CoordinatorCore::give_up_gathering() {
  const std::string waited = to_string(gathering_.limit()) + " (--rdzv-conf join_timeout)";
  if (job_.round == 0) {
    return end(make_exit({.why = Why::NodesMissing},
                         "not all nodes came within " + waited + ": " + gathering_.describe_missing(roster_)));
  }
  Directive exit = make_exit({.why = Why::NotReplaced}, "");
  round_end_.explain_wait(exit);
  if (gathering_.limit().count() > 0) {
    exit.why = Why::NotReplaced;
    exit.reason += "; nobody took its place within " + waited;
  }
  end(exit);
}

void CoordinatorCore::send_waiting_message() {
  const auto text = gathering_.message(now_, roster_);
  if (!text) return;
  const Directive wait = make(Directive::Kind::Wait, Why::NodesMissing, *text);
  for (const auto& [incarnation, node] : roster_.nodes()) {
    const bool was_told_to_stop =
        node.state.phase == WorkersPhase::Running ||
        node.state.phase == WorkersPhase::Stopping;  // if its link breaks, it needs that directive again
    if (!node.cut && !was_told_to_stop) send(node, wait);
  }
}

void CoordinatorCore::open_round() {
  ++job_.round;
  roster_.begin_round(job_.round, choose_seats(roster_, config_.job, config_.seat_order, [this](const Node& node) {
                        return round_end_.makes_room(roster_, node);
                      }));
  job_.phase = Phase::Opening;
  round_end_.begin_round();
  gathering_.stop();
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

void CoordinatorCore::on(const StoreOpened& event) {
  if (job_.phase != Phase::Opening || event.round != job_.round) return;  // the round was stopped meanwhile
  if (!event.why_not.empty()) {
    return end(
        make_exit({.why = Why::NoStore}, "round " + std::to_string(event.round) + " has no store: " + event.why_not));
  }
  job_.phase = Phase::Running;
  const std::vector<Assignment> places =
      assign_ranks(roster_, {.restart_count = restarts(),
                             .max_restarts = config_.job.max_restarts,
                             .master_addr = event.address.empty() ? master_addr() : event.address,
                             .master_port = event.port});
  Directive run = make(Directive::Kind::Run, Why::None, "");
  if (job_.round > 1) {
    run.reason = "round " + std::to_string(job_.round) + ": " + counted(places.front().node_count, "node") + ", " +
                 counted(places.front().world_size, "worker");
  }
  round_end_.explain_round(now_, run);
  is_news_ = true;
  for (std::size_t rank = 0; rank < places.size(); ++rank) {
    const Incarnation& seat = roster_.seats()[rank];
    run.assignment = places[rank];
    if (rank == 0) run_ = run;
    roster_.set_base_rank(seat, run.assignment.base_rank);
    send(roster_.at(seat), run);
  }
  for (const auto& [incarnation, node] : roster_.nodes()) {
    if (!roster_.is_spare(node)) continue;
    const bool is_quiet = node.state.phase == WorkersPhase::Quiet;  // its workers were members of the last round
    const bool makes_room = round_end_.makes_room(roster_, node);
    Directive directive = make(is_quiet ? Directive::Kind::Stop : Directive::Kind::Wait,
                               makes_room ? Why::MakesRoom : Why::Spare, makes_room ? kMakesRoom : kSpare);
    if (is_quiet) directive.stop_signal = SIGTERM;
    send(node, directive);
  }
  advance();
}

// Returns the address that all nodes have in common; without one, the user is warned once.
std::string CoordinatorCore::master_addr() {
  const MasterAddr chosen = choose_master_addr(roster_);
  const bool is_new = !chosen.warning.empty() && std::exchange(addresses_differ_, chosen.warning) != chosen.warning;
  if (is_new) actions_->push_back(CoordinatorLogLine{chosen.warning});
  return chosen.address;
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
        round_end_.note_loss(now_, Why::StoreLost, reason);
        return stop_round(SIGTERM, {.trigger = Trigger::Loss, .why = Why::StoreLost, .reason = reason});
      }
      ask_for_store();  // so that it admits the nodes of this round
      actions_->push_back(
          CoordinatorLogLine{store + "; no worker had a connection to it, so the job goes on with an empty one"});
      return;
    default:
      actions_->push_back(CoordinatorLogLine{store + "; no round needs it now"});
  }
}

// ---- A round ends ----

std::string CoordinatorCore::describe_newcomers() const {
  std::string text;
  for (const auto& [incarnation, node] : roster_.nodes()) {
    if (roster_.is_spare(node)) text += (text.empty() ? "node " : ", ") + describe(node);
  }
  return text;
}

void CoordinatorCore::stop_round(int signal, RoundEnd::Stop stop) {
  round_end_.stop() = std::move(stop);
  publish_failure();
  const bool nothing_runs = job_.phase == Phase::Gathering && roster_.quiet() == 0;
  if (job_.phase == Phase::Gathering) gathering_.stop();
  job_.phase = Phase::Stopping;
  is_news_ = true;
  if (nothing_runs) return after_stop();
  send_stop(signal);
}

// Workers that wait for one another see no other sign that they are to leave their groups.
void CoordinatorCore::publish_failure() {
  const RoundEnd::Stop& stop = round_end_.stop();
  if (round_end_.is_failure() || round_end_.survivors_stay(now_))
    actions_->push_back(PublishFailure{stop.reason, stop.dead});
}

void CoordinatorCore::send_stop(int signal) {
  RoundEnd::Stop& stop = round_end_.stop();
  stop.signal = signal;
  const bool is_pressed = overdue_at_ && overdue_ != Overdue::Name;  // then this is a stop with SIGKILL
  if (config_.stops_within.count() > 0 && !is_pressed) {
    overdue_ = Overdue::Name;
    overdue_at_ = now_ + config_.stops_within;
  }
  is_news_ = true;
  Directive directive = make(Directive::Kind::Stop, stop.why, stop.reason);
  directive.stop_signal = signal;
  directive.cause = stop.cause;
  stop.keeps_survivors = round_end_.survivors_stay(now_);
  for (const Incarnation& seat : roster_.seats()) {
    if (seat.empty()) continue;
    const Node& node = roster_.at(seat);
    directive.survivors_stay = stop.keeps_survivors && !node.leaving;
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
      lose(node, now_, Why::NodeLost, "node " + describe(node) + " was lost: it did not stop its workers");
    }
  }
}

// The round is over: no process of it acts any more.
void CoordinatorCore::after_stop() {
  Directive exit = make(Directive::Kind::Exit, Why::None, "");
  if (!round_end_.goes_on(now_, roster_, exit)) return end(exit);
  job_.phase = Phase::Gathering;
  is_news_ = true;
  for (auto node = roster_.nodes().begin(); node != roster_.nodes().end();) {
    const Node& leaver = (node++)->second;
    if (leaver.leaving) release(leaver);
  }
  gathering_.begin(now_, config_.job.max_restarts > 0 || config_.job.survivors_stay || own_leave_);
  gather();
}

}  // namespace ddp::rendezvous
