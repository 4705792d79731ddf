// SPDX-License-Identifier: BSD-3-Clause
// Carries out a plan's faults in a world.
#include <algorithm>
#include <csignal>

#include "tests/sim/world.hpp"

namespace ddp::sim {

void World::cut(LinkId id) {
  Random random(scene_.plan.seed, {7, id});
  scene_.network.link(id).cut = true;
  queue_.at(now() + random.between(Duration(0), kBreakSeenWithin),
            [this, id] { break_agents_end(id, "Connection reset by peer"); });
  queue_.at(now() + random.between(Duration(0), seconds(1)),
            [this, id] { break_coordinators_end(id, "Connection reset by peer"); });
}

// Notes that a machine is in trouble. What follows may go on for a while after the fault, since silence is noticed
// late.
void World::disturb(int machine, Duration lasting) {
  if (machine >= static_cast<int>(scene_.machines.size())) return;
  const Time until = now() + lasting + 2 * scene_.plan.lost_after + seconds(10);
  Time& calm = scene_.machine(machine).calm_from;
  calm = std::max(calm, until);
  Time& coordinators = scene_.coordinator_calm_from;
  if (machine == scene_.coordinators_machine()) coordinators = std::max(coordinators, until);
}

// All machines are in trouble: the coordinator may be gone for a while, or another takes its place.
void World::disturb_all(Duration lasting) {
  disturb(scene_.coordinators_machine(), lasting);
  scene_.network_calm_from = std::max(scene_.network_calm_from, scene_.coordinator_calm_from);
}

void World::happen(const Fault& planned) {
  scene_.now = now();
  Fault fault = planned;
  if (fault.machine == kCoordinators) fault.machine = scene_.coordinators_machine();
  mark(4, static_cast<int>(fault.kind), fault.machine);
  note("fault", [&] { return describe(fault); });
  Process* const agent = agent_on(fault.machine);
  Worker* const worker = worker_on(fault.machine, fault.worker);
  const int next_machine = static_cast<int>(std::max(scene_.machines.size(), scene_.plan.machines.size()));
  const auto link = [&] { return agent && agent->up && !scene_.network.link(agent->link).local ? agent->link : -1; };
  switch (fault.kind) {
    case FaultKind::WorkerExits:
      if (worker && worker->acts) begin_to_die(*worker, {.code = fault.number}, Why::Own, worker->id);
      break;
    case FaultKind::WorkerCrashes:
      if (worker && worker->acts) begin_to_die(*worker, {.signal = fault.number}, Why::Own, worker->id);
      break;
    case FaultKind::WorkerHangs:
      if (worker && worker->acts) {
        worker->culprit = true;
        hang_until_watchdog(*worker, worker->id);
      }
      break;
    case FaultKind::WorkerStuck:
      if (worker && worker->acts) {
        worker->culprit = true;
        worker->stuck_until = std::max(worker->stuck_until.value_or(now()), now() + fault.lasting);
        faults_end_ = std::max(faults_end_, *worker->stuck_until);
        hang_until_watchdog(*worker, worker->id);
      }
      break;
    case FaultKind::LeftoverStuck:
      if (agent) agent->leftover_stuck = fault.lasting;
      break;
    case FaultKind::SpawnFails:
      if (agent) agent->spawn_fails = true;
      break;
    case FaultKind::StoreFails:
      if (scene_.coordinator && scene_.coordinator->alive) scene_.coordinator->store_fails = true;
      break;
    case FaultKind::StoreIsLate:
      if (scene_.coordinator) scene_.coordinator->store_late = fault.lasting;
      break;
    case FaultKind::AgentKilled:
      disturb(fault.machine, Duration(0));
      if (agent) kill_agent(*agent);
      break;
    case FaultKind::HangFound:
      if (agent) {
        deliver(agent->index, [this, agent] {
          handle(*agent, launcher::HangFound{"no output and no step for 5 s"});
          invariants_.on_hang_found(*agent);
        });
      }
      break;
    case FaultKind::GuardianKilled:
      disturb(fault.machine, Duration(0));
      if (agent) {
        deliver(agent->index, [this, agent] {
          coverage_.reached(Branch::GuardianGone);
          agent->guardian_gone = true;
          handle(*agent, launcher::GuardianGone{});
        });
      }
      break;
    case FaultKind::HeadLost:
      disturb(fault.machine, Duration(0));
      if (agent) {
        deliver(agent->index, [this, agent] {
          coverage_.reached(Branch::HeadGone);
          agent->guardian_gone = true;  // it starts nothing more
          handle(*agent, launcher::HeadGone{});
        });
      }
      break;
    case FaultKind::PowerLoss:
      disturb(fault.machine, Duration(0));
      if (agent) lose_power(fault.machine);
      break;
    case FaultKind::AgentStopped:
      disturb(fault.machine, fault.lasting);
      if (agent) sleep(*agent, now() + fault.lasting);
      break;
    case FaultKind::HostFrozen:
      disturb(fault.machine, fault.lasting);
      if (agent) freeze(fault.machine, now() + fault.lasting);
      break;
    case FaultKind::LinkFlaps:
      for (int i = 1; i < fault.number; ++i) {
        Fault again = fault;
        again.kind = FaultKind::LinkCut;
        queue_.at(now() + i * fault.lasting, [this, again] { happen(again); });
      }
      [[fallthrough]];
    case FaultKind::LinkCut:
      disturb(fault.machine, seconds(2));
      if (const LinkId id = link(); id >= 0) cut(id);
      break;
    case FaultKind::LinksDie:
      disturb(fault.machine, fault.lasting);
      scene_.machine(fault.machine).links_die_until = now() + fault.lasting;
      if (const LinkId id = link(); id >= 0) cut(id);
      break;
    case FaultKind::HalfOpen:
      disturb(fault.machine, scene_.plan.lost_after);
      if (const LinkId half = link(); half >= 0) {
        auto& vanishes = scene_.network.link(half).vanishes;
        if (fault.number != ToAgent) vanishes[0] = true;
        if (fault.number != ToCoordinator) vanishes[1] = true;
        // The agent goes on sending; a firewall may tell it that the connection is gone.
        Random random(scene_.plan.seed, {8, half});
        if (random.percent(40)) {
          queue_.at(now() + random.between(milliseconds(100), seconds(20)),
                    [this, half] { break_agents_end(half, "Connection timed out"); });
        }
      }
      break;
    case FaultKind::Partition:
      disturb(fault.machine, fault.lasting);
      if (fault.machine == scene_.coordinators_machine()) {
        scene_.network_calm_from = scene_.machine(fault.machine).calm_from;
      }
      scene_.network.block(fault.machine, static_cast<Lost>(fault.number), now() + fault.lasting);
      if (scene_.plan.has_etcd && fault.worker % 2 == 1) {
        Time& cut_off = scene_.etcd.cut_off[fault.machine];
        cut_off = std::max(cut_off, now() + fault.lasting);
      }
      break;
    case FaultKind::UserStopsTwice: {
      Fault again = fault;
      again.kind = FaultKind::UserStops;
      queue_.at(now() + fault.lasting, [this, again] { happen(again); });
      [[fallthrough]];
    }
    case FaultKind::UserStops:
      if (agent) {
        deliver(agent->index, [this, agent, signal = fault.number] {
          if (!agent->user_stopped) agent->user_stopped = now();
          agent->users_signals.push_back(signal);
          handle(*agent, launcher::StopSignal{signal});
          if (agent->core.state().stop_signal == SIGKILL) coverage_.reached(Branch::SecondSignal);
        });
      }
      break;
    case FaultKind::AgentStarts:
      start_agent(next_machine, 1 + fault.worker % 3, Process::Role::Wanted, 0);
      break;
    case FaultKind::AgentReplaced:
      disturb(fault.machine, fault.lasting);
      if (!agent) break;
      agent->is_replaced = scene_.coordinator && scene_.coordinator->is_apart && is_within(*agent);
      kill_agent(*agent);
      if (fault.machine == 0 && !agent->is_replaced && !scene_.plan.has_etcd) break;
      queue_.at(now() + fault.lasting, [this, fault] {
        const auto& machines = scene_.plan.machines;
        const auto which = static_cast<std::size_t>(fault.machine);
        if (!scene_.machine(fault.machine).powered) return;
        start_agent(fault.machine, which < machines.size() ? machines[which].slots : 1, Process::Role::Wanted, 0);
      });
      faults_end_ = std::max(faults_end_, now() + fault.lasting);
      break;
    case FaultKind::RankTaken:
      start_agent(next_machine, 1, Process::Role::RankTaken, fault.worker);
      break;
    case FaultKind::ShapeDiffers:
      start_agent(next_machine, 1, Process::Role::ShapeDiffers, fault.number);
      break;
    case FaultKind::SecretDiffers:
      start_agent(next_machine, 1, Process::Role::SecretDiffers, 0);
      break;
    case FaultKind::CoordinatorKilled: {
      if (!scene_.coordinator || !scene_.coordinator->is_apart || !scene_.coordinator->alive) break;
      Coordinator& coordinator = *scene_.coordinator;
      coordinator.comes_back_after = fault.lasting;
      if (fault.number == 0) {
        kill(coordinator);
      } else {
        coordinator.dies_after = fault.number;
      }
      break;
    }
    case FaultKind::StoreKilled:
      if (!scene_.coordinator || !scene_.coordinator->is_apart) break;
      deliver_to(*scene_.coordinator, [this, coordinator = scene_.coordinator, clients = fault.number] {
        handle(*coordinator, rendezvous::StoreLost{clients, "the store (pid 7) was killed by SIGKILL"});
      });
      break;
    case FaultKind::CoordinatorStopped:
      if (!scene_.coordinator || !scene_.coordinator->alive) break;
      disturb_all(fault.lasting);
      sleep(*scene_.coordinator, now() + fault.lasting);
      break;
    case FaultKind::EtcdStalls:
      disturb_all(fault.lasting);
      scene_.etcd.stalls_until = std::max(scene_.etcd.stalls_until, now() + fault.lasting);
      break;
    case FaultKind::EtcdCutOff: {
      if (fault.machine == scene_.coordinators_machine()) disturb_all(fault.lasting);
      Time& cut_off = scene_.etcd.cut_off[fault.machine];
      cut_off = std::max(cut_off, now() + fault.lasting);
      break;
    }
    case FaultKind::OtherCoordinator:
      if (!scene_.coordinator || !scene_.coordinator->alive) break;
      if (scene_.process(scene_.coordinator->process).is_replaced) break;  // its keeper is about to start an agent
      disturb(0, fault.lasting);
      kill_agent(scene_.process(scene_.coordinator->process));
      queue_.at(now() + fault.lasting, [this] { other_coordinator_ = true; });
      break;
  }
}

}  // namespace ddp::sim
