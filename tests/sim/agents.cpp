// SPDX-License-Identifier: BSD-3-Clause
// Drives an agent: does what launcher/agent/agent.cpp and rendezvous/link/client.hpp do.
#include <algorithm>
#include <csignal>

#include "tests/sim/world.hpp"

namespace ddp::sim {

using namespace launcher;
using rendezvous::Assignment;

namespace {

constexpr milliseconds kShortestWait{50}, kLongestWait{1000};
constexpr seconds kTryLimit{5};

}  // namespace

void World::handle(Process& process, const AgentEvent& event) {
  process.waiting.push_back(event);
  if (process.waiting.size() > 1) return;
  for (; !process.waiting.empty(); process.waiting.pop_front()) step(process, process.waiting.front());
}

void World::step(Process& process, const AgentEvent& event) {
  scene_.now = now();
  if (!process.alive) return;
  mark(10 + static_cast<int>(event.index()), process.index, static_cast<int>(process.core.phase()));
  coverage_.event(event, process.core.phase());
  std::vector<AgentAction> actions = std::exchange(agent_actions_, {});
  const std::string epoch = scene_.plan.has_etcd ? process.core.state().epoch : "";
  const bool was_revoking = process.core.phase() == AgentCore::Phase::Revoking;
  process.core.step(now(), event, actions);
  // Workers that were to stay, and now are to end, have their grace from then on.
  if (was_revoking && process.core.phase() == AgentCore::Phase::Stopping) process.stop_told = now();
  if (scene_.plan.has_etcd) invariants_.on_obeyed(process, event, epoch, actions);
  if (transcript_) transcript_->step(now(), process.config.host, event, actions);
  for (const AgentAction& action : actions) {
    mark(30 + static_cast<int>(action.index()), process.index);
    std::visit([&](const auto& a) { carry_out(process, a); }, action);
  }
  actions.clear();
  agent_actions_ = std::move(actions);
  invariants_.on_stepped(process);
  const auto phase = process.core.state().phase;
  if (phase == rendezvous::WorkersPhase::Idle || phase == rendezvous::WorkersPhase::Quiet) process.stop_told.reset();
  set_timer(process);
}

void World::set_timer(Process& process) {
  if (!process.alive) return;
  const auto wake_at = process.core.wake_at();
  if (wake_at == process.timer) return;
  process.timer = wake_at;
  if (!wake_at) return;
  const Time rings = *wake_at <= now() ? now() : *wake_at + lateness(tick_random_);
  deliver_at(rings, process.index, [this, index = process.index, wake_at] {
    Process& late = scene_.process(index);
    if (late.timer != wake_at) return;  // it was set to another time meanwhile
    late.timer.reset();
    late.ticks_at_once = late.last_tick == now() ? late.ticks_at_once + 1 : 0;
    late.last_tick = now();
    invariants_.on_tick(late.ticks_at_once);
    handle(late, Tick{});
  });
}

// ---- Workers ----

void World::carry_out(Process& process, const StartWorkers& action) {
  invariants_.on_start(process, action.assignment);
  process.stop_told.reset();
  process.importing = spawn_random_.percent(3);  // as with --preload: a stop before the workers exist cancels the start
  const Duration takes = process.importing           ? spawn_random_.between(Duration(0), seconds(10))
                         : spawn_random_.percent(90) ? spawn_random_.between(Duration(0), milliseconds(20))
                                                     : spawn_random_.between(Duration(0), milliseconds(1500));
  process.spawning = true;
  process.cleared = false;
  process.workers.clear();
  deliver_at(now() + takes, process.index,
             [this, index = process.index, assignment = action.assignment, start = ++process.starts,
              round = process.core.state().round] {
               Process& starter = scene_.process(index);
               if (starter.spawning && starter.starts == start) spawned(starter, round, assignment);
             });
}

void World::stop_the_start(Process& process) {
  if (!std::exchange(process.importing, false)) return;  // the workers exist in a moment, and are signalled then
  process.spawning = false;
  process.cleared = true;
  handle(process, NeverStarted{});
}

void World::spawned(Process& process, int round, const Assignment& assignment) {
  process.spawning = process.importing = false;
  if (std::exchange(process.spawn_fails, false)) {
    coverage_.reached(Branch::SpawnFailed);
    process.cleared = true;
    invariants_.on_spawn_failed();
    return handle(process, NeverStarted{"no more processes"});
  }
  if (process.core.phase() != AgentCore::Phase::Starting) coverage_.reached(Branch::StopMetTheStart);
  WorkersStarted event;
  for (int local = 0; local < process.config.workers; ++local) {
    event.pids.push_back(start_worker(process, local, round, assignment).pid());
  }
  handle(process, event);
  invariants_.on_started(process);
}

void World::carry_out(Process& process, const SignalWorkers& action) {
  if (process.spawning) return stop_the_start(process);
  for (const int id : process.workers) {
    invariants_.on_ended(process, scene_.worker(id));
    signal(scene_.worker(id), action.signal);
  }
}

void World::carry_out(Process& process, const KillDescendants&) {
  if (process.spawning) return stop_the_start(process);
  for (const int id : process.workers) kill(scene_.worker(id), Why::Ddprun);
  if (std::exchange(process.leftovers_act, false)) clear(process);
}

// What was left is killed when the last worker's leftovers are.
void World::carry_out(Process&, const KillLeftovers&) {}

void World::carry_out(Process& process, const ClearDescendants&) {
  process.leftovers_act = process.core.phase() == AgentCore::Phase::Lingering && spawn_random_.percent(10);
  if (!process.leftovers_act) return clear(process);
  coverage_.reached(Branch::LeftoversIgnoreTerm);
}

void World::clear(Process& process) {
  Duration takes = spawn_random_.between(Duration(0), milliseconds(spawn_random_.percent(10) ? 1000 : 20));
  if (process.leftover_stuck) takes += *std::exchange(process.leftover_stuck, std::nullopt);
  deliver_at(now() + takes, process.index, [this, index = process.index] {
    Process& cleared = scene_.process(index);
    cleared.cleared = true;
    AllGone event;
    for (const int id : cleared.workers) event.words.push_back(words_of(scene_.worker(id)));
    handle(cleared, event);
  });
}

std::vector<int> World::exiting_workers(const Process& process) const {
  std::vector<int> exiting;
  for (const int id : process.workers) {
    const Worker& worker = scene_.worker(id);
    if (!worker.acts && !worker.reaped) exiting.push_back(worker.local);
  }
  return exiting;
}

// ---- The link ----

void World::carry_out(Process& process, const SendReport& action) {
  ++process.reports_sent;
  invariants_.on_report(process, action.state);
  if (!process.up) return;
  const LinkId link = process.link;
  const auto time = scene_.network.arrival(now(), link, Way::Up);
  if (!time) return note(process.config.host, [] { return "(its report is lost in the network)"; });
  queue_.at(*time, [this, link, state = action.state] { report_arrives(link, state); });
}

void World::carry_out(Process& process, const SendHeartbeat&) {
  if (!process.up) return;
  const LinkId link = process.link;
  if (const auto time = scene_.network.arrival(now(), link, Way::Up)) {
    queue_.at(*time, [this, link] { beat_arrives(link); });
  }
}

void World::carry_out(Process& process, const SetDeadman& action) {
  process.deadman = action.at;
  if (!action.at) return;
  queue_.at(*action.at + lateness(keeper_random_),
            [this, index = process.index, at = *action.at] { keeper_looks(index, at); });
}

// The keeper runs while the agent is stopped, but not while the machine is.
void World::keeper_looks(int index, Time deadman) {
  scene_.now = now();
  Process& process = scene_.process(index);
  if (!process.alive || process.deadman != deadman) return;  // the agent has set another time
  const Time frozen = scene_.machine(process.machine).frozen_until;
  if (frozen > now()) {
    return queue_.at(frozen + keeper_random_.between(Duration(0), kKeeperWakesWithin),
                     [this, index, deadman] { keeper_looks(index, deadman); });
  }
  process.deadman.reset();
  mark(7, index);
  note(process.config.host, [] { return "its keeper kills all processes below it, since its agent does not run"; });
  coverage_.reached(Branch::KeeperKilled);
  for (const int id : process.workers) kill(scene_.worker(id), Why::Ddprun);
  if (std::exchange(process.leftovers_act, false)) clear(process);
}

void World::carry_out(Process& process, const Reconnect& action) {
  coverage_.reached(Branch::LinkGivenUp);
  if (!process.up) return;
  close_agents_end(process.link);
  deliver_at(now(), process.index, [this, index = process.index, why = action.why] {
    handle(scene_.process(index), LinkDown{why});
    connect(scene_.process(index));
  });
}

// Makes a link of an agent to the coordinator on its machine.
LinkId World::open_within(Process& process) {
  Coordinator& coordinator = *scene_.coordinator;
  const LinkId id = scene_.network.open(now(), process.index, process.machine, true, process.machine);
  scene_.network.link(id).coordinator = coordinator.index;
  scene_.network.link(id).agent_id = scene_.next_agent;
  coordinator.links[scene_.next_agent++] = id;
  return id;
}

void World::connect_within(Process& process) {
  const LinkId link = open_within(process);
  const Duration takes =
      spawn_random_.percent(80) ? Duration(0) : spawn_random_.between(Duration(0), milliseconds(500));
  deliver_at(now() + takes, process.index,
             [this, index = process.index, link] { link_up(scene_.process(index), link); });
}

// Whether an agent reaches the coordinator without a network: both are on one machine.
bool World::is_within(const Process& process) const {
  return scene_.coordinator && scene_.coordinator->is_apart && process.machine == scene_.coordinator->machine &&
         process.role == Process::Role::Wanted;
}

// What is sent while no coordinator runs waits for the next one.
void World::try_within(Process& process, int number) {
  if (!process.alive || process.tries != number) return;
  if (!is_within(process)) return connect(process);
  if (!scene_.coordinator->alive || other_coordinator_) {
    return queue_.at(now() + milliseconds(20),
                     [this, index = process.index, number] { try_within(scene_.process(index), number); });
  }
  const LinkId id = open_within(process);
  const Duration takes =
      spawn_random_.percent(80) ? Duration(0) : spawn_random_.between(Duration(0), milliseconds(100));
  deliver_at(now() + takes, process.index, [this, index = process.index, number, id] {
    if (scene_.process(index).tries != number) return close_agents_end(id);
    if (!scene_.network.link(id).agent_open) return connect(scene_.process(index));
    link_up(scene_.process(index), id);
  });
}

void World::connect(Process& process) {
  ++process.tries;
  if (is_within(process)) {
    return queue_.at(now() + milliseconds(1), [this, index = process.index, number = process.tries] {
      try_within(scene_.process(index), number);
    });
  }
  queue_.at(now() + process.wait, [this, index = process.index, number = process.tries] {
    try_link(scene_.process(index), number, now() + kTryLimit);
  });
  process.wait = std::min<Duration>(2 * process.wait, kLongestWait);  // it is short again once the coordinator answers
}

void World::try_link(Process& process, int number, Time give_up) {
  if (!process.alive || process.tries != number) return;
  const auto again_at = [this, index = process.index, number, give_up](Time time) {
    queue_.at(time, [this, index, number, give_up] { try_link(scene_.process(index), number, give_up); });
  };
  const auto fail_at = [this, index = process.index, number](Time time, const std::string& why) {
    deliver_at(time, index, [this, index, number, why] {
      if (scene_.process(index).tries == number) try_failed(scene_.process(index), why);
    });
  };
  choose_target(process);
  if (is_within(process) && scene_.plan.has_etcd) return connect(process);
  if (scene_.plan.has_etcd && process.target < 0) return fail_at(now() + milliseconds(20), "no node coordinates yet");
  const Coordinator* const target =
      process.target < 0 ? scene_.coordinator : &scene_.coordinators[static_cast<std::size_t>(process.target)];
  const int to = target ? target->machine : 0;
  const bool is_powered = !scene_.machines.empty() && scene_.machine(to).powered;
  const bool is_coming = target && !target->alive && target->comes_back_after > Duration(0) && !scene_.plan.has_etcd;
  const bool listens = other_coordinator_ || is_coming || (target && target->alive);
  if (!is_powered || now() >= give_up) return fail_at(std::max(give_up, now()), "Connection timed out");
  if (const Time open = scene_.network.open_since(process.machine, to); open > now())
    return again_at(std::min(open, give_up));
  if (!listens) return fail_at(now() + scene_.network.delay(), "Connection refused");
  if (!other_coordinator_ && is_coming) return again_at(std::min(now() + milliseconds(20), give_up));
  const bool answers =
      other_coordinator_ || !(target->is_apart ? target->asleep : scene_.coordinators_process().asleep);
  if (!answers) return again_at(std::min(now() + milliseconds(200), give_up));
  queue_.at(now() + scene_.network.delay(),
            [this, index = process.index, number] { accept(scene_.process(index), number); });
  fail_at(give_up + seconds(1), "Connection timed out");
}

void World::try_failed(Process& process, const std::string& why) {
  ++process.tries;
  process.wait = std::min<Duration>(2 * process.wait, kLongestWait);
  queue_.at(now() + process.wait, [this, index = process.index, number = process.tries] {
    try_link(scene_.process(index), number, now() + kTryLimit);
  });
  handle(process, LinkFailed{why});
}

// Does the coordinator's part of a handshake.
void World::accept(Process& process, int number) {
  if (!process.alive || process.tries != number) return;
  if (scene_.plan.has_etcd && is_within(process)) return connect(process);
  const Time answered = now() + scene_.network.delay();
  if (process.role == Process::Role::SecretDiffers) {
    return deliver_at(answered, process.index, [this, index = process.index, number] {
      if (scene_.process(index).tries != number) return;
      ++scene_.process(index).tries;
      coverage_.reached(Branch::SecretRefused);
      handle(scene_.process(index), LinkRefused{"its secret differs"});
    });
  }
  Coordinator* const target =
      process.target < 0 ? scene_.coordinator : &scene_.coordinators[static_cast<std::size_t>(process.target)];
  const bool listens = target && target->alive;
  if (!listens && !other_coordinator_) return;  // the attempt ends at its time limit
  const LinkId id = scene_.network.open(now(), process.index, process.machine, false, target ? target->machine : 0);
  Link& link = scene_.network.link(id);
  link.to_other_coordinator = other_coordinator_;
  if (!other_coordinator_) {
    link.coordinator = target->index;
    link.agent_id = scene_.next_agent++;
    target->links[link.agent_id] = id;
    deliver_to(*target, [this, target, id] {
      const Link& linked = scene_.network.link(id);
      if (!linked.coordinator_open) return;
      handle(*target, rendezvous::AgentLinked{linked.agent_id, address_of(linked.machine)});
    });
  }
  deliver_at(answered, process.index, [this, index = process.index, number, id] {
    if (scene_.process(index).tries != number) return close_agents_end(id);
    if (!scene_.network.link(id).agent_open) return try_failed(scene_.process(index), "closed by the coordinator");
    link_up(scene_.process(index), id);
  });
}

void World::link_up(Process& process, LinkId link) {
  if (process.link >= 0 && scene_.network.link(process.link).coordinator_open)
    coverage_.reached(Branch::NewLinkOvertook);
  process.link = link;
  process.up = true;
  ++process.tries;
  ++process.links_made;
  if (scene_.machine(process.machine).links_die_until > now()) cut(link);
  handle(process, LinkUp{coordinator_address(scene_.plan, process.machine)});
}

void World::close_agents_end(LinkId id) {
  Link& link = scene_.network.link(id);
  if (!link.agent_open) return;
  link.agent_open = false;
  Process& process = scene_.process(link.process);
  if (process.link == id) process.up = false;
  if (const auto time = scene_.network.arrival(now(), id, Way::Up)) {
    queue_.at(*time, [this, id] { break_coordinators_end(id, "closed by the agent"); });
  }
}

void World::break_agents_end(LinkId id, const std::string& why) {
  if (Liar* const liar = liar_on(id)) liar->link = -1;
  if (scene_.network.link(id).process < 0) return;
  deliver(scene_.network.link(id).process, [this, id, why] {
    Link& link = scene_.network.link(id);
    Process& process = scene_.process(link.process);
    if (!link.agent_open) return;
    link.agent_open = false;
    if (process.link != id) return;
    process.up = false;
    handle(process, LinkDown{why});
    if (process.alive) connect(process);
  });
}

void World::directive_arrives(LinkId id, const rendezvous::Directive& directive) {
  deliver(scene_.network.link(id).process, [this, id, directive] {
    Process& process = scene_.process(scene_.network.link(id).process);
    if (!scene_.network.link(id).agent_open) return;
    process.wait = kShortestWait;
    invariants_.on_message(directive);
    invariants_.on_told(process, directive);
    const bool same_epoch = scene_.counts(process, directive);
    if (scene_.plan.has_etcd && same_epoch) invariants_.on_epoch(directive, scene_.network.link(id).coordinator);
    if (same_epoch) process.newest_round_told = std::max(process.newest_round_told, directive.round);
    DirectiveArrived event{directive, {}};
    if (directive.kind == rendezvous::Directive::Kind::Stop) {
      event.exiting = exiting_workers(process);
      if (same_epoch && !process.stop_told) process.stop_told = now();
    }
    handle(process, event);
    if (scene_.plan.has_etcd && process.role == Process::Role::Wanted) {
      scene_.machine(process.machine).newest_obeyed = process.core.state().epoch;
    }
    if (!process.alive) return;
    repeat_an_old_one(process, directive);
    if (scene_.plan.extra_ticks > 0 && tick_random_.percent(scene_.plan.extra_ticks)) handle(process, Tick{});
  });
}

// Delivers an older directive once more: the link is level-triggered, so this does no harm. With etcd it may be one of
// an older coordinator, which was stopped just before it sent this.
void World::repeat_an_old_one(Process& process, const rendezvous::Directive& directive) {
  if (scene_.plan.repeat_percent == 0 || directive.kind == rendezvous::Directive::Kind::Exit) return;
  if (!process.told.empty() && tick_random_.percent(scene_.plan.repeat_percent)) {
    const int which = tick_random_.below(static_cast<int>(process.told.size()));
    const rendezvous::Directive old = process.told[static_cast<std::size_t>(which)];
    if (!scene_.counts(process, old)) {
      disturb(process.machine, seconds(2));
      coverage_.reached(Branch::OlderIsFencedOff);
    }
    handle(process, DirectiveArrived{old, {}});
  }
  process.told.push_back(directive);
}

// ---- Log lines and the end ----

void World::carry_out(Process& process, const LogLine& action) {
  const auto says = [&](const char* words) { return action.text.find(words) != std::string::npos; };
  if (says("killing the workers of this node: it had lost")) {
    coverage_.reached(Branch::LeaseKill);
    invariants_.on_lease_kill(process);
  }
  if (says("the workers of this node are dead: ")) {
    coverage_.reached(Branch::DeadmanNoticed);
    invariants_.on_lease_kill(process);
  }
  if (says("the link to the coordinator is back")) coverage_.reached(Branch::LinkCameBack);
  if (says("the workers did not end within")) coverage_.reached(Branch::TermIgnored);
  if (says("cannot be killed")) coverage_.reached(Branch::Unkillable);
}

void World::carry_out(Process& process, const Leave& action) {
  process.left = action;
  invariants_.on_leave(process, action);
  end_process(process);
}

}  // namespace ddp::sim
