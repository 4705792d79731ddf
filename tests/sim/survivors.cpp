// SPDX-License-Identifier: BSD-3-Clause
// Workers that stay when their round fails, as libddp's do: they say so, leave the round's groups when a peer has
// failed or their page says that the round is revoked, and go on in the next round.
#include <algorithm>
#include <csignal>

#include "tests/sim/world.hpp"

namespace ddp::sim {

using namespace launcher;

namespace {

constexpr seconds kRevokedWithin{10};  // libddp gives up then: nobody has ended the round

}  // namespace

// Some never say that they can stay.
void World::plan_stay(Worker& worker) {
  Random random(scene_.plan.seed, {20, worker.id});
  if (!scene_.plan.job.survivors_stay || !random.percent(75)) return;
  const Duration start = random.between(milliseconds(1), milliseconds(500));
  queue_.at(now() + start, [this, id = worker.id] {
    on_worker(id, [this, id] {
      Worker& staying = scene_.worker(id);
      if (!staying.acts || staying.hangs || staying.told) return;
      staying.stays = staying.has_stayed = true;
      deliver(staying.process, [this, id] {
        const Worker& able = scene_.worker(id);
        if (is_newest(able)) handle(scene_.process(able.process), WorkerStays{able.local, true});
      });
    });
  });
}

// The worker is done with all that others need it for, and saves what it has learned.
void World::plan_end(Worker& worker) {
  Random random(scene_.plan.seed, {22, worker.round});
  const Duration saves = random.percent(50) ? random.between(milliseconds(1), seconds(3)) : Duration(0);
  queue_.at(now() + saves, [this, id = worker.id, of = worker.round] {
    on_worker(id, [this, id, of] {
      Worker& done = scene_.worker(id);
      if (done.acts && !done.hangs && !done.quiet && done.round == of) begin_to_die(done, {}, Why::Own, id);
    });
  });
  if (!worker.stays) return;
  worker.stays = false;
  deliver(worker.process, [this, id = worker.id] {
    const Worker& saving = scene_.worker(id);
    if (is_newest(saving)) handle(scene_.process(saving.process), WorkerStays{saving.local, false});
  });
}

// The worker has left its groups. If nobody ends the round, it fails because of what made it leave them.
void World::leave_groups(int id, int round, int root) {
  on_worker(id, [this, id, round, root] {
    Worker& worker = scene_.worker(id);
    if (!worker.acts || !worker.stays || worker.quiet || worker.round != round || scene_.is_stuck(worker)) return;
    worker.quiet = true;
    worker.hangs = false;
    mark(8, id, round);
    note(scene_.process(worker.process).config.host,
         [&] { return "worker " + std::to_string(worker.local) + " leaves its groups"; });
    deliver(worker.process, [this, id, round] {
      const Worker& quiet = scene_.worker(id);
      if (is_newest(quiet)) handle(scene_.process(quiet.process), WorkerQuiet{quiet.local, round});
    });
    queue_.at(now() + kRevokedWithin, [this, id, round, root] {
      on_worker(id, [this, id, round, root] {
        Worker& waiting = scene_.worker(id);
        if (!waiting.acts || !waiting.quiet || waiting.revoked || waiting.round != round) return;
        begin_to_die(waiting, {.code = 1}, Why::Peer, root);
      });
    });
  });
}

void World::carry_out(Process& process, const RevokeRound&) {
  coverage_.reached(Branch::Revoked);
  for (const int id : process.workers) {
    Worker& worker = scene_.worker(id);
    worker.revoked = worker.has_stayed;  // its agent may not know yet that it has taken that back
    if (!worker.acts || !worker.stays || worker.quiet) continue;
    Random random(scene_.plan.seed, {21, id, worker.round});
    if (random.percent(5)) continue;  // it is busy with something else, for longer than it may be
    const Duration takes = random.between(milliseconds(1), random.percent(80) ? milliseconds(40) : milliseconds(3000));
    queue_.at(now() + takes, [this, id, round = worker.round] { leave_groups(id, round, kDdprun); });
  }
}

void World::carry_out(Process& process, const SignalWorker& action) {
  Worker& worker = scene_.worker(process.workers[static_cast<std::size_t>(action.local_rank)]);
  invariants_.on_ended(process, worker);
  if (action.signal == SIGKILL) return kill(worker, Why::Ddprun);
  signal(worker, action.signal);
}

void World::carry_out(Process& process, const ReadWords& action) {
  WordsRead event{action.local_ranks, {}};
  for (const int local : action.local_ranks) {
    event.words.push_back(words_of(scene_.worker(process.workers[static_cast<std::size_t>(local)])));
  }
  handle(process, event);
}

void World::carry_out(Process& process, const StartMissing& action) {
  invariants_.on_start_missing(process, action);
  process.stop_told.reset();
  const int round = process.core.state().round;
  process.cleared = false;
  for (const int id : process.workers) {
    Worker& worker = scene_.worker(id);
    const auto& missing = action.local_ranks;
    if (std::find(missing.begin(), missing.end(), worker.local) != missing.end()) continue;
    coverage_.reached(Branch::Stayed);
    worker.round = round;
    worker.node_rank = action.assignment.node_rank;
    worker.rank = action.assignment.base_rank + worker.local;
    worker.quiet = worker.revoked = worker.hangs = false;
    if (worker.acts) plan_success(worker);
  }
  invariants_.on_started(process);
  for (const int local : action.local_ranks) start_in_place(process, local, round, action.assignment);
}

void World::start_in_place(Process& process, int local, int round, const rendezvous::Assignment& assignment) {
  ++process.replacements;
  const Duration takes = spawn_random_.percent(90) ? spawn_random_.between(Duration(0), milliseconds(20))
                                                   : spawn_random_.between(Duration(0), milliseconds(1500));
  deliver_at(now() + takes, process.index, [this, index = process.index, local, round, assignment] {
    Process& starter = scene_.process(index);
    if (replacement_fails()) {
      invariants_.on_spawn_failed();
      return handle(starter, WorkerExited{.local_rank = local, .status = {.code = 1}, .message = "no more processes"});
    }
    const Worker& started = start_worker(starter, local, round, assignment);
    handle(starter, MissingStarted{local, started.pid()});
    if (starter.core.state().round == round) invariants_.on_started(starter);
  });
}

}  // namespace ddp::sim
