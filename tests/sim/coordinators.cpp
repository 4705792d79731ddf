// SPDX-License-Identifier: BSD-3-Clause
// Drives the coordinator: does what rendezvous/coordinator/coordinator.cpp does.
#include <algorithm>

#include "tests/sim/world.hpp"

namespace ddp::sim {

using namespace rendezvous;

CoordinatorConfig World::coordinators_config(const Process& process) const {
  const Plan& plan = scene_.plan;
  const bool is_apart = plan.job.max_nodes > 1;
  CoordinatorConfig config = {.job = plan.job,
                              .epoch = "epoch",
                              .own_incarnation = is_apart ? "" : process.config.incarnation,
                              .own_is_here = !is_apart,
                              .keeps_record = is_apart,
                              .join_timeout = plan.join_timeout,
                              .last_call = plan.last_call,
                              .lost_after = plan.lost_after,
                              .stops_within = plan.shutdown_timeout + seconds(30)};
  if (!plan.has_etcd) return config;
  const MachineState& machine = scene_.machine(process.machine);
  config.epoch = std::to_string(scene_.etcd.epoch);
  config.epoch_is_number = true;
  config.host = "h" + std::to_string(process.machine);
  config.node = config.host + "-" + std::to_string(machine.keepers);
  config.own_epoch = machine.newest_obeyed;
  return config;
}

// Adds the coordinator of an agent's node, which is the newest then.
Coordinator& World::add_coordinator(const Process& process) {
  const auto index = static_cast<int>(scene_.coordinators.size());
  scene_.coordinator = &scene_.coordinators.emplace_back(coordinators_config(process), index, process.machine,
                                                         process.index, scene_.plan.job.max_nodes > 1);
  return *scene_.coordinator;
}

std::string World::name_of(const Coordinator& coordinator) const {
  return scene_.plan.has_etcd ? "coord. h" + std::to_string(coordinator.machine) : "coordinator";
}

void World::handle(Coordinator& coordinator, const CoordinatorEvent& event) {
  scene_.now = now();
  if (!coordinator.alive) return;
  mark(50 + static_cast<int>(event.index()), static_cast<int>(coordinator.core.phase()), coordinator.core.round());
  coverage_.event(event, coordinator.core.phase());
  std::vector<CoordinatorAction> actions = std::exchange(coordinator_actions_, {});
  const bool has_asked = coordinator.core.asks();
  coordinator.core.step(now(), event, actions);
  const bool is_answered = has_asked && !coordinator.core.asks();
  const bool none_lives = is_answered && std::holds_alternative<CoordinatorTick>(event);
  if (none_lives) return begins_another_job(coordinator);
  if (is_answered && is_newest(coordinator)) invariants_.on_answered();
  if (coordinator.core.over() && !coordinator.over_since) coordinator.over_since = now();
  if (transcript_) {
    transcript_->step(now(), name_of(coordinator), event, actions, [this](AgentId agent) { return host_of(agent); });
  }
  for (const CoordinatorAction& action : actions) {
    if (!is_newest(coordinator)) break;
    if (const auto* sent = std::get_if<SendDirective>(&action)) note_decided(coordinator, *sent);
    if (const auto* published = std::get_if<PublishFailure>(&action)) invariants_.on_said(published->text);
    if (const auto* line = std::get_if<CoordinatorLogLine>(&action)) invariants_.on_said(line->text);
  }
  for (CoordinatorAction& action : actions) {
    coordinator.gate.take(std::move(action));
    carry_out_due(coordinator);
    if (!coordinator.alive) break;
  }
  actions.clear();
  coordinator_actions_ = std::move(actions);
  if (!coordinator.alive) return;
  if (is_newest(coordinator) && !coordinator.core.asks()) invariants_.on_stepped();
  set_timer(coordinator);
}

void World::note_decided(const Coordinator& coordinator, const SendDirective& action) {
  const auto link = coordinator.links.find(action.agent);
  if (link == coordinator.links.end()) return invariants_.on_not_sent(action.agent, action.directive);
  const int process = scene_.network.link(link->second).process;
  if (process >= 0) invariants_.on_sent(scene_.process(process), action.directive);
}

// A coordinator that is killed may have done any part of this.
void World::carry_out_due(Coordinator& coordinator) {
  while (coordinator.alive) {
    const auto action = coordinator.gate.next(may_tell(coordinator));
    if (!action) break;
    if (coordinator.dies_after && (*coordinator.dies_after)-- <= 0) return kill(coordinator);
    mark(60 + static_cast<int>(action->index()), 0);
    std::visit([&](const auto& a) { carry_out(coordinator, a); }, *action);
  }
  if (coordinator.dies_after && *coordinator.dies_after <= 0) kill(coordinator);
}

// ---- The journal ----

void World::carry_out(Coordinator& coordinator, const Record& action) {
  coordinator.writing.push_back(action);
  if (scene_.plan.has_etcd) return write_to_etcd(coordinator);
  if (coordinator.writing.size() == 1) write_next(coordinator);
}

void World::write_next(Coordinator& coordinator) {
  const Duration takes = spawn_random_.between(Duration(0), milliseconds(spawn_random_.percent(5) ? 300 : 3));
  deliver_at(now() + takes, coordinator, [this, &coordinator] {
    const Record record = coordinator.writing.front();
    coordinator.writing.pop_front();
    coordinator.kept = record.content;
    coordinator.kept_at = now();
    if (!coordinator.writing.empty()) write_next(coordinator);
    coordinator.gate.kept(record.number);
    carry_out_due(coordinator);
  });
}

void World::close_links(Coordinator& coordinator) {
  const auto links = coordinator.links;
  for (const auto& [id, link] : links) close_coordinators_end(link);
}

// Ends its process: its descriptors are closed.
void World::end(Coordinator& coordinator) {
  ++coordinator.life;  // it does not come back
  if (!coordinator.alive) return;
  coordinator.alive = coordinator.asleep = false;
  coordinator.dies_after.reset();
  coordinator.inbox.clear();
  close_links(coordinator);
}

void World::kill(Coordinator& coordinator) {
  if (!coordinator.alive) return;
  mark(8, coordinator.life);
  note(name_of(coordinator), [] { return "it is killed"; });
  coverage_.reached(Branch::CoordinatorKilled);
  // All agents are back before their leases end, unless it takes long or is killed again soon.
  const Duration way = 6 * scene_.plan.delay * (scene_.plan.slow_percent > 0 ? 10 : 1) + 4 * scene_.plan.late;
  const bool takes_long = coordinator.comes_back_after + way + milliseconds(500) > kReconnectWindow * 2 / 3;
  const bool is_again = coordinator.killed_at > Time() && now() < coordinator.killed_at + seconds(4);
  if (takes_long || is_again || scene_.plan.has_etcd) {
    disturb(coordinator.machine, coordinator.comes_back_after);
    scene_.network_calm_from = scene_.machine(coordinator.machine).calm_from;
  }
  end(coordinator);
  coordinator.killed_at = now();
  if (scene_.plan.has_etcd) {
    return queue_.at(now() + coordinator.comes_back_after,
                     [this, machine = coordinator.machine] { try_to_claim(machine); });
  }
  // What it was writing is there, or not.
  const int stored = spawn_random_.below(static_cast<int>(coordinator.writing.size()) + 1);
  if (stored > 0) {
    coordinator.kept = coordinator.writing[static_cast<std::size_t>(stored - 1)].content;
    coordinator.kept_at = now();
    coverage_.reached(Branch::UntoldIsKept);
  }
  if (static_cast<int>(coordinator.writing.size()) > stored) coverage_.reached(Branch::UntoldIsForgotten);
  coordinator.writing.clear();
  queue_.at(now() + coordinator.comes_back_after, [this, &coordinator, life = coordinator.life] {
    if (coordinator.life == life) recover(coordinator);
  });
}

// Failures that reached an earlier life, and that it has not recorded, are news for the next one.
void World::forget_unrecorded_failures(const JobRecord& record) {
  for (Worker& worker : scene_.workers) {
    const bool is_known = std::any_of(record.failures.begin(), record.failures.end(),
                                      [&](const auto& known) { return known.failure.pid == worker.pid(); });
    if (!is_known && worker.round == record.round) worker.reported = 0;
  }
}

void World::recover(Coordinator& coordinator) {
  scene_.now = now();
  if (const Time frozen = scene_.machine(coordinator.machine).frozen_until; frozen > now()) {
    return queue_.at(frozen, [this, &coordinator, life = coordinator.life] {
      if (coordinator.life == life) recover(coordinator);
    });
  }
  mark(9, coordinator.life);
  note(name_of(coordinator), [] { return "its keeper starts it again"; });
  coordinator.core = CoordinatorCore(coordinators_config(scene_.process(coordinator.process)));
  coordinator.gate = RecordGate();
  coordinator.alive = true;
  coordinator.awake_since = now();
  coordinator.comes_back_after = Duration(0);
  coordinator.timer.reset();
  coordinator.over_since.reset();
  coordinator.store_fails = false;
  begin_with_record(coordinator);
}

// Begins with what the journal has.
void World::begin_with_record(Coordinator& coordinator) {
  std::optional<JobRecord> record;
  if (coordinator.kept) {
    auto read = decode_record(*coordinator.kept);
    if (const auto* why = std::get_if<std::string>(&read)) invariants_.broken(Promise::ToldIsKept, *why);
    if (scene_.plan.lies == Lies::Database) lie_about_job(coordinator, read);
    record = std::get<JobRecord>(read);
  }
  forget_unrecorded_failures(record.value_or(JobRecord()));
  invariants_.on_recovery(record);
  if (!record && !scene_.plan.has_etcd) return;
  const auto age = std::chrono::duration_cast<milliseconds>(record ? now() - coordinator.kept_at : Duration(0));
  handle(coordinator, Recovered{record, age});
}

std::string World::host_of(AgentId agent) const {
  for (LinkId id = 0; id < scene_.network.links(); ++id) {
    const Link& link = scene_.network.link(id);
    if (link.process < 0 && link.agent_id == agent) return "a liar";
    if (link.agent_id == agent && !link.to_other_coordinator) return scene_.process(link.process).config.host;
  }
  return "no known host";
}

void World::set_timer(Coordinator& coordinator) {
  if (!coordinator.alive) return;
  const auto wake_at = coordinator.core.wake_at();
  if (wake_at == coordinator.timer) return;
  coordinator.timer = wake_at;
  if (!wake_at) return;
  const Time rings = *wake_at <= now() ? now() : *wake_at + lateness(tick_random_);
  deliver_at(rings, coordinator, [this, &coordinator, wake_at] {
    if (coordinator.timer != wake_at) return;
    coordinator.timer.reset();
    coordinator.ticks_at_once = coordinator.last_tick == now() ? coordinator.ticks_at_once + 1 : 0;
    coordinator.last_tick = now();
    invariants_.on_tick(coordinator.ticks_at_once);
    handle(coordinator, CoordinatorTick{});
  });
}

// ---- Events ----

void World::report_arrives(LinkId id, const AgentState& state) {
  if (scene_.network.link(id).to_other_coordinator) return answer_as_other_coordinator(id, state);
  Coordinator& coordinator = coordinator_of(id);
  deliver_to(coordinator, [this, &coordinator, id, state] {
    const Link& link = scene_.network.link(id);
    const Process& process = scene_.process(link.process);
    if (!link.coordinator_open) {
      return note(name_of(coordinator),
                  [&] { return "(a report of " + process.config.host + " on a closed link is dropped)"; });
    }
    invariants_.on_message(state);
    coordinator.is_answered = coordinator.is_answered || !state.epoch.empty();
    if (is_newest(coordinator)) {
      note_failures(process, state);
      invariants_.on_heard(process, id, state);
    }
    handle(coordinator, AgentReported{link.agent_id, state, link.local ? "" : address_of(link.machine),
                                      link.local ? "" : arrived_at(scene_.plan, link.machine)});
    if (scene_.plan.extra_ticks > 0 && tick_random_.percent(scene_.plan.extra_ticks)) {
      handle(coordinator, CoordinatorTick{});
    }
  });
}

void World::note_failures(const Process& process, const AgentState& state) {
  for (const WorkerFailure& failure : state.failures) {
    if (failure.pid == 0) continue;
    Worker& worker = scene_.worker(failure.pid - 1000);
    if (worker.process != process.index || worker.reported != 0) continue;
    worker.reported = ++failures_heard_;
    worker.reported_at = now();
  }
}

void World::beat_arrives(LinkId id) {
  if (scene_.network.link(id).to_other_coordinator) return;
  Coordinator& coordinator = coordinator_of(id);
  deliver_to(coordinator, [this, &coordinator, id] {
    const Link& link = scene_.network.link(id);
    if (!link.coordinator_open) return;
    if (is_newest(coordinator)) invariants_.on_beat(scene_.process(link.process), id);
    handle(coordinator, AgentBeat{link.agent_id});
  });
}

void World::break_coordinators_end(LinkId id, const std::string& why) {
  Link& link = scene_.network.link(id);
  if (!link.coordinator_open || link.to_other_coordinator) return;
  Coordinator& coordinator = coordinator_of(id);
  deliver_to(coordinator, [this, &coordinator, id, why] {
    Link& broken = scene_.network.link(id);
    if (!broken.coordinator_open) return;
    broken.coordinator_open = false;
    coordinator.links.erase(broken.agent_id);
    if (broken.process >= 0 && is_newest(coordinator)) invariants_.on_link_broke(scene_.process(broken.process), id);
    handle(coordinator, AgentGone{broken.agent_id, why});
  });
}

void World::answer_as_other_coordinator(LinkId link, const AgentState& state) {
  Directive exit;
  exit.epoch = kOtherEpoch;
  if (!state.epoch.empty()) {
    exit.kind = Directive::Kind::Exit;
    exit.exit_code = kStartAgain;
    exit.reason = "the coordinator that this node served is gone, and another one has taken its place";
  }
  if (!state.epoch.empty()) coverage_.reached(Branch::OtherEpochRefused);
  const auto time = scene_.network.arrival(now(), link, Way::Down);
  if (time && !state.epoch.empty()) queue_.at(*time, [this, link, exit] { directive_arrives(link, exit); });
}

// ---- Actions ----

void World::close_coordinators_end(LinkId id) {
  Link& link = scene_.network.link(id);
  if (!link.coordinator_open) return;
  link.coordinator_open = false;
  coordinator_of(id).links.erase(link.agent_id);
  if (const auto time = scene_.network.arrival(now(), id, Way::Down)) {
    queue_.at(*time, [this, id] { break_agents_end(id, "closed by the coordinator"); });
  }
}

void World::carry_out(Coordinator& coordinator, const SendDirective& action) {
  invariants_.on_told_by(coordinator);
  const auto link = coordinator.links.find(action.agent);
  if (link == coordinator.links.end()) return;
  const LinkId id = link->second;
  if (Liar* const liar = liar_on(id)) liar->told = action.directive;
  if (scene_.network.link(id).process < 0) return;
  Process& to = scene_.process(scene_.network.link(id).process);
  const bool is_news =
      action.directive.kind == Directive::Kind::Wait && action.directive.why == rendezvous::Why::NodesMissing;
  ++(is_news ? to.news_got : to.directives_got);
  invariants_.on_sent_off(to, action.directive);
  const auto time = scene_.network.arrival(now(), id, Way::Down);
  if (!time)
    return note(name_of(coordinator), [&] { return "(what it tells " + to.config.host + " is lost in the network)"; });
  if (scene_.plan.lies == Lies::Coordinator) return lie_to_agent(id, action.directive, *time);
  queue_.at(*time, [this, id, directive = action.directive] { directive_arrives(id, directive); });
}

void World::carry_out(Coordinator& coordinator, const AnswerBeat& action) {
  invariants_.on_told_by(coordinator);
  const auto link = coordinator.links.find(action.agent);
  if (link == coordinator.links.end()) return;
  const LinkId id = link->second;
  if (scene_.network.link(id).process < 0) return;
  const auto time = scene_.network.arrival(now(), id, Way::Down);
  if (!time) return;
  queue_.at(*time, [this, id] {
    deliver(scene_.network.link(id).process, [this, id] {
      if (!scene_.network.link(id).agent_open) return;
      scene_.process(scene_.network.link(id).process).wait = milliseconds(50);
      handle(scene_.process(scene_.network.link(id).process), launcher::BeatArrived{});
    });
  });
}

void World::carry_out(Coordinator& coordinator, const CoordinatorLogLine& action) {
  if (is_newest(coordinator)) invariants_.on_logged(action.text);
}

void World::carry_out(Coordinator& coordinator, const CloseLink& action) {
  const auto link = coordinator.links.find(action.agent);
  if (link != coordinator.links.end()) close_coordinators_end(link->second);
}

void World::carry_out(Coordinator& coordinator, const OpenStore& action) {
  invariants_.on_told_by(coordinator);
  ++coverage_.rounds;
  const bool fails = std::exchange(coordinator.store_fails, false);
  const Duration takes = spawn_random_.between(Duration(0), milliseconds(spawn_random_.percent(10) ? 500 : 5)) +
                         std::exchange(coordinator.store_late, Duration(0));
  deliver_at(now() + takes, coordinator, [this, &coordinator, round = action.round, fails] {
    const auto port = static_cast<std::uint16_t>(20000 + round);
    handle(coordinator, StoreOpened{round, "", port, fails ? "no port is free" : ""});
  });
}

}  // namespace ddp::sim
