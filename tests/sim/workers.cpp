// SPDX-License-Identifier: BSD-3-Clause
// Runs and ends workers. A worker acts until it begins to die, by itself or by a signal. It is reaped later, when its
// memory is freed, which may take long; some deaths the agent sees before that. Its peers notice when it is gone, and
// most of them fail because of it.
#include <algorithm>
#include <array>
#include <csignal>

#include "tests/sim/world.hpp"

namespace ddp::sim {

using launcher::WorkerDying;
using launcher::WorkerExited;
using namespace launcher;
using rendezvous::ExitStatus;

Worker& World::start_worker(Process& process, int local, int round, const rendezvous::Assignment& assignment) {
  const Plan& plan = scene_.plan;
  Random random(plan.seed, {9, process.index, round, local});
  Worker worker;
  worker.id = static_cast<int>(scene_.workers.size());
  worker.process = process.index;
  worker.machine = process.machine;
  worker.local = local;
  worker.node_rank = assignment.node_rank;
  worker.rank = assignment.base_rank + local;
  worker.round = round;
  worker.deaf = random.percent(plan.deaf_percent);
  worker.shows_its_death = random.percent(50);
  worker.death_takes = random.percent(plan.big_percent) ? random.between(milliseconds(50), seconds(7))
                                                        : random.between(Duration(0), milliseconds(5));
  if (local < static_cast<int>(process.workers.size())) {  // in the place of one that has ended
    process.workers[static_cast<std::size_t>(local)] = worker.id;
  } else {
    process.workers.push_back(worker.id);
  }
  scene_.alive.insert(worker.id);
  scene_.workers.push_back(worker);
  ++coverage_.workers;
  plan_success(scene_.workers.back());
  plan_stay(scene_.workers.back());
  return scene_.workers.back();
}

// Plans the end of its work: all workers of a round end at about the same time.
void World::plan_success(Worker& worker) {
  const Plan& plan = scene_.plan;
  Random round(plan.seed, {10, worker.round});
  Random own(plan.seed, {11, worker.process, worker.round, worker.local});
  const Duration work = round.between(plan.work_least, plan.work_most) + own.between(Duration(0), milliseconds(300));
  queue_.at(now() + work, [this, id = worker.id, of = worker.round] {
    on_worker(id, [this, id, of] {
      Worker& done = scene_.worker(id);
      const bool is_at_work = done.acts && !done.hangs && !done.quiet && done.round == of;
      if (!is_at_work) return;
      if (done.stays) return plan_end(done);
      begin_to_die(done, {}, Why::Own, id);
    });
  });
}

// Runs a task of a worker: after its machine is resumed if that is suspended, and not at all once the worker is reaped.
void World::on_worker(int id, Task task) {
  scene_.now = now();
  const Worker& worker = scene_.worker(id);
  if (worker.reaped) return;
  const Time frozen = scene_.machine(worker.machine).frozen_until;
  if (frozen <= now()) return task();
  queue_.at(frozen + milliseconds(1), [this, id, task = std::move(task)] { on_worker(id, task); });
}

Worker* World::worker_on(int machine, int local) {
  Process* const process = agent_on(machine);
  if (!process || process->workers.empty()) return nullptr;
  return &scene_.worker(process->workers[static_cast<std::size_t>(local) % process->workers.size()]);
}

void World::signal(Worker& worker, int number) {
  if (!worker.acts) return;
  worker.told = true;
  if (worker.deaf) return;
  Random random(scene_.plan.seed, {12, worker.id});
  const Duration takes =
      random.percent(70) ? random.between(Duration(0), milliseconds(30)) : random.between(Duration(0), seconds(4));
  const ExitStatus status =
      random.percent(60) ? ExitStatus{.signal = number} : ExitStatus{.code = random.pick({0, 1, 143})};
  queue_.at(now() + takes, [this, id = worker.id, status] {
    on_worker(id, [this, id, status] {
      Worker& stopped = scene_.worker(id);
      if (stopped.acts && !scene_.is_stuck(stopped)) begin_to_die(stopped, status, Why::Ddprun, kDdprun);
    });
  });
}

void World::kill(Worker& worker, Why why) {
  worker.told = true;
  if (!worker.acts) return;
  if (!scene_.is_stuck(worker)) {
    return begin_to_die(worker, {.signal = SIGKILL}, why, why == Why::Ddprun ? kDdprun : kLostNode);
  }
  // It ends when the kernel releases it.
  queue_.at(*worker.stuck_until,
            [this, id = worker.id, why] { on_worker(id, [this, id, why] { kill(scene_.worker(id), why); }); });
}

void World::begin_to_die(Worker& worker, ExitStatus status, Why why, int root) {
  worker.acts = false;
  worker.acted_until = now();
  worker.status = status;
  worker.why = root == worker.id ? Why::Own : why;  // a worker that hung ends like its peers, and is its own cause
  worker.root = root;
  mark(5, worker.id, status.shell_code());
  note(scene_.process(worker.process).config.host, [&] {
    static constexpr std::array<const char*, 4> kWhy = {"by itself", "because of a peer", "ended by ddprun",
                                                        "with its agent"};
    return "worker " + std::to_string(worker.local) + " (rank " + std::to_string(worker.rank) + " of round " +
           std::to_string(worker.round) + ") " + rendezvous::describe(status) + ", " +
           kWhy[static_cast<std::size_t>(why)];
  });
  queue_.at(now() + worker.death_takes, [this, id = worker.id] { on_worker(id, [this, id] { reap(id); }); });
  if (!worker.shows_its_death || status.success()) return;
  Random random(scene_.plan.seed, {15, worker.id});
  const Duration seen = random.between(Duration(0), std::min<Duration>(worker.death_takes, milliseconds(20)));
  queue_.at(now() + seen, [this, id = worker.id] { on_worker(id, [this, id] { show_death(id); }); });
}

void World::show_death(int id) {
  deliver(scene_.worker(id).process, [this, id] {
    const Worker& dying = scene_.worker(id);
    Process& process = scene_.process(dying.process);
    if (dying.reaped || !is_newest(dying)) return;  // the real driver checks this too
    handle(process,
           WorkerDying{.local_rank = dying.local, .status = dying.status, .exiting = exiting_workers(process)});
  });
}

bool World::is_newest(const Worker& worker) const {
  const std::vector<int>& newest = scene_.process(worker.process).workers;
  const auto local = static_cast<std::size_t>(worker.local);
  return local < newest.size() && newest[local] == worker.id;
}

void World::reap(int id) {
  Worker& worker = scene_.worker(id);
  worker.reaped = true;
  scene_.alive.erase(id);
  mark(6, id);
  const bool is_crowd = scene_.processes.size() > 200;  // there it is enough that the first one tells its peers
  const bool has_news = !worker.status.success() && (!is_crowd || worker.why == Why::Own);
  if (has_news) tell_peers(worker);
  deliver(worker.process, [this, id] {
    const Worker& dead = scene_.worker(id);
    Process& process = scene_.process(dead.process);
    if (!is_newest(dead)) return;  // the agent has forgotten workers of older rounds
    handle(process, WorkerExited{.local_rank = dead.local, .status = dead.status, .exiting = exiting_workers(process)});
  });
}

// Lets its peers notice: their connections to it are reset.
void World::tell_peers(const Worker& dead) {
  for (const int id : scene_.alive) {
    const Worker& peer = scene_.worker(id);
    if (peer.round != dead.round || !peer.acts) continue;
    Random random(scene_.plan.seed, {13, dead.id, id});
    const bool cannot_know =
        scene_.network.open_since(dead.machine) > now() || scene_.network.open_since(peer.machine) > now();
    if (random.percent(scene_.plan.unmoved_percent) || (cannot_know && dead.machine != peer.machine)) continue;
    const Duration takes = random.between(milliseconds(1), random.percent(80) ? milliseconds(50) : milliseconds(3000));
    const ExitStatus status = random.percent(70) ? ExitStatus{.code = 1} : ExitStatus{.signal = SIGABRT};
    queue_.at(now() + takes, [this, id, status, root = dead.root, round = dead.round] {
      if (scene_.worker(id).stays) return leave_groups(id, round, root);
      on_worker(id, [this, id, status, root, round] {
        Worker& failed = scene_.worker(id);
        if (failed.acts && failed.round == round && !scene_.is_stuck(failed))
          begin_to_die(failed, status, Why::Peer, root);
      });
    });
  }
  hang_until_watchdog(dead, dead.root);
}

// Lets the peers of a worker that does not answer hang until a watchdog (PyTorch's, NCCL's, Gloo's) ends them.
void World::hang_until_watchdog(const Worker& culprit, int root) {
  Random random(scene_.plan.seed, {14, culprit.id});
  for (const int id : scene_.alive) {
    Worker& peer = scene_.worker(id);
    if (peer.round != culprit.round || !peer.acts || peer.quiet) continue;
    peer.hangs = true;
    const Duration takes = scene_.plan.watchdog + random.between(Duration(0), seconds(2));
    queue_.at(std::max(now() + takes, peer.stuck_until.value_or(Time())), [this, id, root, round = peer.round] {
      on_worker(id, [this, id, root, round] {
        Worker& failed = scene_.worker(id);
        if (!failed.acts || failed.quiet || failed.round != round || scene_.is_stuck(failed)) return;
        begin_to_die(failed, {.signal = SIGABRT}, Why::Peer, root);
      });
    });
  }
}

}  // namespace ddp::sim
