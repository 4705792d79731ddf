// SPDX-License-Identifier: BSD-3-Clause
#include "tests/sim/world.hpp"

#include <algorithm>
#include <exception>

namespace ddp::sim {

namespace {

constexpr int kMostEvents = 5000000;  // the longest run has a tenth of this

}  // namespace

World::World(Plan plan, Coverage& coverage, Transcript* transcript)
    : scene_{.plan = std::move(plan)},
      coverage_(coverage),
      invariants_(scene_, coverage),
      transcript_(transcript),
      spawn_random_(scene_.plan.seed, {3}),
      worker_random_(scene_.plan.seed, {4}),
      tick_random_(scene_.plan.seed, {5}),
      keeper_random_(scene_.plan.seed, {17}),
      etcd_random_(scene_.plan.seed, {27}) {
  scene_.etcd.revision = etcd_random_.between(1, 120);
}

std::optional<Violation> World::run() {
  try {
    run_until_all_ended();
    invariants_.at_end();
  } catch (const Violation& violation) {
    note("broken", [&] { return kSentences[static_cast<std::size_t>(violation.promise)] + (" " + violation.what); });
    return violation;
  } catch (const std::exception& error) {
    return Violation{Promise::CoresThrowNothing, error.what()};
  }
  return std::nullopt;
}

void World::run_until_all_ended() {
  const Plan& plan = scene_.plan;
  const Time start = now();
  scene_.now = start;
  faults_end_ = start;
  scene_.machines.resize(plan.machines.size());
  for (std::size_t i = 0; i < plan.machines.size(); ++i) {
    queue_.at(start + plan.machines[i].starts_at,
              [this, i] { start_agent(static_cast<int>(i), scene_.plan.machines[i].slots, Process::Role::Wanted, 0); });
    faults_end_ = std::max(faults_end_, start + plan.machines[i].starts_at);
  }
  for (const Fault& fault : plan.faults) {
    queue_.at(start + fault.at, [this, fault] { happen(fault); });
    faults_end_ = std::max(faults_end_, start + fault.at);
  }
  start_liars();
  while (!queue_.empty()) {
    if (queue_.next() > std::max(faults_end_, coordinator_ends_) && alive_ == 0) break;
    queue_.run_next();
    ++coverage_.events;
    if (++events_ > kMostEvents) invariants_.broken(Promise::EveryRunEnds, "events never end");
    if (now() <= faults_end_ + time_to_end(plan)) continue;
    if (!holds_among(plan.lies, Promise::EveryRunEnds)) return;
    invariants_.broken(Promise::EveryRunEnds, "agents still run long after the last fault");
  }
  if (alive_ > 0) invariants_.broken(Promise::EveryRunEnds, "no event is left, and agents still run");
}

void World::deliver_to(Runner& runner, Task task) {
  scene_.now = now();
  if (!runner.alive) return;
  if (runner.asleep) {
    runner.inbox.push_back(std::move(task));
  } else {
    task();
  }
}

void World::deliver(int index, Task task) { deliver_to(scene_.process(index), std::move(task)); }

void World::deliver_to(Coordinator& coordinator, Task task) {
  Runner& runner = coordinator.is_apart ? static_cast<Runner&>(coordinator) : scene_.process(coordinator.process);
  deliver_to(runner, std::move(task));
}

void World::deliver_at(Time time, Coordinator& coordinator, Task task) {
  queue_.at(time, [this, &coordinator, life = coordinator.life, task = std::move(task)] {
    deliver_to(coordinator, [&coordinator, life, task] {
      if (coordinator.life == life && coordinator.alive) task();
    });
  });
}

void World::deliver_at(Time time, int process, Task task) {
  queue_.at(time, [this, process, task = std::move(task)] { deliver(process, task); });
}

// ---- Processes ----

Process* World::agent_on(int machine) {
  for (auto process = scene_.processes.rbegin(); process != scene_.processes.rend(); ++process) {
    if (process->machine == machine && process->alive) return &*process;
  }
  return nullptr;
}

launcher::AgentConfig World::config_of(int machine, int slots, Process::Role role, int variant) {
  const Plan& plan = scene_.plan;
  const int same_host = static_cast<int>(std::count_if(scene_.processes.begin(), scene_.processes.end(),
                                                       [&](const Process& p) { return p.machine == machine; }));
  launcher::AgentConfig config;
  config.job = plan.job;
  config.host = "h" + std::to_string(machine) + (same_host > 0 ? "-" + std::to_string(same_host + 1) : "");
  // Random as in a real job, so that its order is not the order of arrival.
  config.incarnation = std::to_string(Random(plan.seed, {6, machine, same_host}).below(100000)) + "." + config.host;
  config.addresses = {address_of(machine, "10.1.")};
  config.endpoint_host = endpoint_host(plan, machine);
  config.node_rank = machine;
  if (plan.ranks_are_wanted) config.wanted_rank = Random(plan.seed, {22, machine, same_host}).below(1000);
  config.role = Random(plan.seed, {15, machine}).percent(80) ? "trainer" : "evaluator";
  config.workers = slots;
  config.join_timeout = plan.join_timeout;
  config.shutdown_timeout = plan.shutdown_timeout;
  config.on_hang = plan.on_hang;
  if (machine > 0 || scene_.coordinator || plan.job.max_nodes > 1) config.coordinator = "10.0.0.0:29500";
  if (plan.has_etcd) config.coordinator = "etcd";
  config.is_beside_coordinator = machine == 0 && plan.job.max_nodes > 1 && !plan.has_etcd;
  if (role == Process::Role::RankTaken) config.node_rank = variant % plan.job.max_nodes;
  if (role == Process::Role::ShapeDiffers) {
    if (variant == 0) config.job.id = "another job";
    if (variant == 1) ++config.job.max_nodes;
    if (variant == 2) ++config.job.max_restarts;
    if (variant == 3) config.job.node_ranks_given = !config.job.node_ranks_given;
    if (variant == 4) config.node_rank = config.job.max_nodes;
    if (variant == 5) ++config.job.exclude_after;
    if (variant == 6) config.job.restart_window += milliseconds(1);
  }
  return config;
}

Process& World::start_agent(int machine, int slots, Process::Role role, int variant) {
  while (static_cast<int>(scene_.machines.size()) <= machine) scene_.machines.emplace_back();
  scene_.now = now();
  const bool has_coordinator = machine == 0 && !scene_.coordinator && !scene_.plan.has_etcd;
  const int index = static_cast<int>(scene_.processes.size());
  Process& process = scene_.processes.emplace_back(index, machine, config_of(machine, slots, role, variant));
  ++alive_;
  process.role = role;
  mark(1, index, machine);
  note(process.config.host,
       [&] { return "an agent starts, for " + std::to_string(slots) + (slots == 1 ? " worker" : " workers"); });
  if (has_coordinator) add_coordinator(process);
  if (scene_.plan.has_etcd && role == Process::Role::Wanted) keeper_starts(machine);
  if (is_within(process)) {
    scene_.coordinator->process = index;
    handle(process, launcher::Tick{});
    connect(process);
  } else if (has_coordinator) {
    connect_within(process);
  } else {
    handle(process, launcher::Tick{});
    connect(process);
  }
  if (scene_.machine(machine).frozen_until > now()) sleep(process, scene_.machine(machine).frozen_until);
  return process;
}

// Ends a process: whatever ended it, its descriptors are closed.
void World::end_process(Process& process) {
  if (process.alive) --alive_;
  process.alive = false;
  process.inbox.clear();
  ++process.tries;
  if (process.link >= 0) close_agents_end(process.link);
  if (process.is_replaced) return;  // its keeper starts another agent
  const bool is_own = scene_.coordinator && scene_.coordinator->process == process.index;
  if (scene_.plan.has_etcd && process.role == Process::Role::Wanted) {
    scene_.machine(process.machine).has_keeper = false;
    end_coordinators_on(process.machine, is_own && process.left);
  } else if (is_own) {
    scene_.coordinator->comes_back_after = Duration(0);  // its keeper is gone
    end(*scene_.coordinator);
  }
  if (is_own && !process.left) coverage_.reached(Branch::CoordinatorDied);
}

// The keeper of an agent that has left waits a moment for a coordinator that removes the job's record, or steps down,
// and gives its lease up, unless it is killed as well.
void World::end_coordinators_on(int machine, bool has_left) {
  for (Coordinator& coordinator : scene_.coordinators) {
    if (coordinator.machine != machine || !coordinator.alive) continue;
    const bool holds = scene_.etcd.holder == coordinator.index;
    if (holds) disturb_all(Duration(0));
    const bool is_over = has_left && coordinator.core.over();
    const bool gives_up = has_left && holds && !etcd_random_.percent(40);
    if (!gives_up && !is_over) end(coordinator);
    if (!gives_up) continue;
    const Duration stays = milliseconds(500);
    coordinator_ends_ = now() + stays;
    queue_.at(now() + stays, [this, &coordinator] {
      end(coordinator);
      if (scene_.etcd.holder == coordinator.index) give_up_lease();
    });
  }
}

void World::kill_agent(Process& process) {
  mark(2, process.index);
  note(process.config.host, [] { return "its agent is killed"; });
  end_process(process);
  for (const int id : process.workers) kill(scene_.worker(id), Why::Fate);
}

void World::lose_power(int machine) {
  scene_.machine(machine).powered = false;
  for (Process& process : scene_.processes) {
    if (process.machine != machine || !process.alive) continue;
    for (LinkId id = 0; id < scene_.network.links(); ++id) {
      Link& link = scene_.network.link(id);
      if (link.process == process.index || link.coordinators_machine == machine) link.cut = true;
    }
    end_process(process);
    for (const int id : process.workers) {
      Worker& worker = scene_.worker(id);
      if (worker.reaped) continue;
      hang_until_watchdog(worker, kLostNode);
      if (worker.acts) worker.acted_until = now();
      worker.acts = false;
      worker.reaped = true;
      scene_.alive.erase(id);
    }
  }
  for (Coordinator& coordinator : scene_.coordinators) {  // also while its node has no agent
    if (coordinator.machine == machine && coordinator.is_apart) end(coordinator);
  }
}

void World::sleep(Process& process, Time until) {
  process.wakes_at = std::max(process.wakes_at, until);
  if (process.asleep || !process.alive) return;
  process.asleep = true;
  process.asleep_since = now();
  coverage_.reached(Branch::ProcessSlept);
  note(process.config.host, [] { return "its agent is suspended"; });
  queue_.at(until, [this, index = process.index] { wake(scene_.process(index)); });
}

// Resumes a process. It handles what came meanwhile: the timer either before the messages or after them.
void World::wake(Process& process) {
  scene_.now = now();
  if (!process.alive || !process.asleep) return;
  if (process.wakes_at > now()) {  // it was stopped again meanwhile
    queue_.at(process.wakes_at, [this, index = process.index] { wake(scene_.process(index)); });
    return;
  }
  mark(3, process.index);
  note(process.config.host, [] { return "its agent goes on"; });
  process.asleep = false;
  const bool coordinates =
      scene_.coordinator && !scene_.coordinator->is_apart && scene_.coordinator->process == process.index;
  process.awake_since = now();
  const auto tick = [this, &process, coordinates] {
    if (process.alive) handle(process, launcher::Tick{});
    if (coordinates && scene_.coordinator->alive) handle(*scene_.coordinator, rendezvous::CoordinatorTick{});
  };
  const bool ticks_first = tick_random_.percent(50);
  if (ticks_first) tick();
  const std::vector<Task> inbox = std::exchange(process.inbox, {});
  for (const Task& task : inbox) deliver(process.index, task);
  if (!ticks_first) tick();
}

void World::sleep(Coordinator& coordinator, Time until) {
  if (!coordinator.alive) return;
  coordinator.wakes_at = std::max(coordinator.wakes_at, until);
  if (std::exchange(coordinator.asleep, true)) return;
  coordinator.asleep_since = now();
  note(name_of(coordinator), [] { return "it is suspended"; });
  queue_.at(until, [this, &coordinator] { wake(coordinator); });
}

void World::wake(Coordinator& coordinator) {
  scene_.now = now();
  if (!coordinator.alive || !coordinator.asleep) return;
  if (coordinator.wakes_at > now()) {
    queue_.at(coordinator.wakes_at, [this, &coordinator] { wake(coordinator); });
    return;
  }
  mark(3, -1 - coordinator.index);
  note(name_of(coordinator), [] { return "it goes on"; });
  coordinator.asleep = false;
  coordinator.awake_since = now();
  if (now() - coordinator.asleep_since > seconds(2)) coverage_.reached(Branch::OwnSleepForgiven);
  const bool ticks_first = tick_random_.percent(50);
  if (ticks_first) handle(coordinator, rendezvous::CoordinatorTick{});
  const std::vector<Task> inbox = std::exchange(coordinator.inbox, {});
  for (const Task& task : inbox) deliver_to(coordinator, task);
  if (!ticks_first) handle(coordinator, rendezvous::CoordinatorTick{});
}

void World::freeze(int machine, Time until) {
  scene_.machine(machine).frozen_until = std::max(scene_.machine(machine).frozen_until, until);
  for (Process& process : scene_.processes) {
    if (process.machine == machine) sleep(process, until);
  }
  for (Coordinator& coordinator : scene_.coordinators) {
    if (coordinator.machine == machine && coordinator.is_apart) sleep(coordinator, until);
  }
}

// ---- What happened ----

void World::mark(int what, int who, int which) {
  for (const std::uint64_t part :
       {static_cast<std::uint64_t>(now().time_since_epoch().count()), static_cast<std::uint64_t>(what),
        static_cast<std::uint64_t>(who), static_cast<std::uint64_t>(which)}) {
    hash_ = (hash_ ^ part) * 1099511628211U;
  }
}

}  // namespace ddp::sim
