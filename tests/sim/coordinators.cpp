// SPDX-License-Identifier: BSD-3-Clause
// Drives the coordinator: does what rendezvous/coordinator/coordinator.cpp does.
#include <algorithm>

#include "tests/sim/world.hpp"

namespace ddp::sim {

using namespace rendezvous;

void World::start_coordinator(Process& process) {
  const Plan& plan = scene_.plan;
  scene_.coordinator.emplace(CoordinatorConfig{.job = plan.job,
                                               .epoch = "epoch",
                                               .own_incarnation = process.config.incarnation,
                                               .join_timeout = plan.join_timeout,
                                               .last_call = plan.last_call,
                                               .lost_after = plan.lost_after},
                             process.index);
}

void World::handle(const CoordinatorEvent& event) {
  scene_.now = now();
  Coordinator& coordinator = *scene_.coordinator;
  if (!coordinator.alive) return;
  mark(50 + static_cast<int>(event.index()), static_cast<int>(coordinator.core.phase()), coordinator.core.round());
  coverage_.event(event, coordinator.core.phase());
  std::vector<CoordinatorAction> actions = std::exchange(coordinator_actions_, {});
  coordinator.core.step(now(), event, actions);
  if (coordinator.core.over() && !coordinator.over_since) coordinator.over_since = now();
  if (transcript_) {
    transcript_->step(now(), event, actions, [this](AgentId agent) { return host_of(agent); });
  }
  for (const CoordinatorAction& action : actions) {
    mark(60 + static_cast<int>(action.index()), 0);
    std::visit([&](const auto& a) { carry_out(a); }, action);
  }
  actions.clear();
  coordinator_actions_ = std::move(actions);
  invariants_.on_stepped();
  set_coordinators_timer();
}

std::string World::host_of(AgentId agent) const {
  for (LinkId id = 0; id < scene_.network.links(); ++id) {
    const Link& link = scene_.network.link(id);
    if (link.process < 0 && link.agent_id == agent) return "a liar";
    if (link.agent_id == agent && !link.to_other_coordinator) return scene_.process(link.process).config.host;
  }
  return "no known host";
}

void World::set_coordinators_timer() {
  Coordinator& coordinator = *scene_.coordinator;
  if (!coordinator.alive) return;
  const auto wake_at = coordinator.core.wake_at();
  if (wake_at == coordinator.timer) return;
  coordinator.timer = wake_at;
  if (!wake_at) return;
  const Time rings = *wake_at <= now() ? now() : *wake_at + lateness(tick_random_);
  deliver_at(rings, coordinator.process, [this, wake_at] {
    Coordinator& late = *scene_.coordinator;
    if (late.timer != wake_at) return;
    late.timer.reset();
    late.ticks_at_once = late.last_tick == now() ? late.ticks_at_once + 1 : 0;
    late.last_tick = now();
    invariants_.on_tick(late.ticks_at_once);
    handle(CoordinatorTick{});
  });
}

// ---- Events ----

void World::report_arrives(LinkId id, const AgentState& state) {
  if (scene_.network.link(id).to_other_coordinator) return answer_as_other_coordinator(id, state);
  deliver(scene_.coordinator->process, [this, id, state] {
    const Link& link = scene_.network.link(id);
    const Process& process = scene_.process(link.process);
    if (!link.coordinator_open) {
      return note("coordinator",
                  [&] { return "(a report of " + process.config.host + " on a closed link is dropped)"; });
    }
    note_failures(process, state);
    invariants_.on_message(state);
    invariants_.on_heard(process, id, state);
    handle(AgentReported{link.agent_id, state, link.local ? "" : address_of(link.machine),
                         link.local ? "" : arrived_at(scene_.plan, link.machine)});
    if (scene_.plan.extra_ticks > 0 && tick_random_.percent(scene_.plan.extra_ticks)) handle(CoordinatorTick{});
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
  deliver(scene_.coordinator->process, [this, id] {
    const Link& link = scene_.network.link(id);
    if (!link.coordinator_open) return;
    invariants_.on_beat(scene_.process(link.process), id);
    handle(AgentBeat{link.agent_id});
  });
}

void World::break_coordinators_end(LinkId id, const std::string& why) {
  Link& link = scene_.network.link(id);
  if (!link.coordinator_open || link.to_other_coordinator) return;
  deliver(scene_.coordinator->process, [this, id, why] {
    Link& broken = scene_.network.link(id);
    if (!broken.coordinator_open) return;
    broken.coordinator_open = false;
    scene_.coordinator->links.erase(broken.agent_id);
    if (broken.process >= 0) invariants_.on_link_broke(scene_.process(broken.process), id);
    handle(AgentGone{broken.agent_id, why});
  });
}

void World::answer_as_other_coordinator(LinkId link, const AgentState& state) {
  Directive exit;
  exit.epoch = "another epoch";
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
  scene_.coordinator->links.erase(link.agent_id);
  if (const auto time = scene_.network.arrival(now(), id, Way::Down)) {
    queue_.at(*time, [this, id] { break_agents_end(id, "closed by the coordinator"); });
  }
}

void World::carry_out(const SendDirective& action) {
  const auto link = scene_.coordinator->links.find(action.agent);
  if (link == scene_.coordinator->links.end()) return invariants_.on_not_sent(action.agent, action.directive);
  const LinkId id = link->second;
  if (Liar* const liar = liar_on(id)) liar->told = action.directive;
  if (scene_.network.link(id).process < 0) return;
  Process& to = scene_.process(scene_.network.link(id).process);
  const bool is_news =
      action.directive.kind == Directive::Kind::Wait && action.directive.reason.find("waiting for") == 0;
  ++(is_news ? to.news_got : to.directives_got);
  invariants_.on_sent(to, action.directive);
  const auto time = scene_.network.arrival(now(), id, Way::Down);
  if (!time)
    return note("coordinator", [&] { return "(what it tells " + to.config.host + " is lost in the network)"; });
  if (scene_.plan.lies == Lies::Coordinator) return lie_to_agent(id, action.directive, *time);
  queue_.at(*time, [this, id, directive = action.directive] { directive_arrives(id, directive); });
}

void World::carry_out(const AnswerBeat& action) {
  const auto link = scene_.coordinator->links.find(action.agent);
  if (link == scene_.coordinator->links.end()) return;
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

void World::carry_out(const CloseLink& action) {
  const auto link = scene_.coordinator->links.find(action.agent);
  if (link != scene_.coordinator->links.end()) close_coordinators_end(link->second);
}

void World::carry_out(const OpenStore& action) {
  Coordinator& coordinator = *scene_.coordinator;
  ++coverage_.rounds;
  const bool fails = std::exchange(coordinator.store_fails, false);
  const Duration takes = spawn_random_.between(Duration(0), milliseconds(spawn_random_.percent(10) ? 500 : 5)) +
                         std::exchange(coordinator.store_late, Duration(0));
  deliver_at(now() + takes, coordinator.process, [this, round = action.round, fails] {
    if (fails) return handle(StoreFailed{round, "no port is free"});
    handle(StoreOpened{round, "", static_cast<std::uint16_t>(20000 + round)});
  });
}

void World::carry_out(const PublishFailure& action) { invariants_.on_said(action.text); }

void World::carry_out(const CoordinatorLogLine& action) { invariants_.on_said(action.text); }

}  // namespace ddp::sim
