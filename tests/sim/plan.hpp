// SPDX-License-Identifier: BSD-3-Clause
// What a seed means: the job, its machines, how the world behaves, and everything that goes wrong, decided beforehand.
// A plan is a value: the shrinker leaves parts out and runs it again.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "rendezvous/link/messages.hpp"
#include "tests/sim/random.hpp"

namespace ddp::sim {

using std::chrono::milliseconds;
using std::chrono::seconds;

enum class FaultKind {
  WorkerExits,       // with code `number`
  WorkerCrashes,     // by signal `number`
  WorkerHangs,       // it and its peers until their watchdogs end them
  WorkerStuck,       // in the kernel for `lasting`: SIGKILL does nothing before
  LeftoverStuck,     // what the next round's workers leave behind cannot be killed for `lasting`
  SpawnFails,        // the next start of workers
  StoreFails,        // the next store
  StoreIsLate,       // by `lasting`
  AgentKilled,       // kill -9; the guardian kills the workers
  GuardianKilled,    // kill -9
  PowerLoss,         // nobody is told
  AgentStopped,      // SIGSTOP, SIGCONT after `lasting`; its workers go on
  HostFrozen,        // a suspended machine, for `lasting`
  LinkCut,           // both ends learn of it
  LinksDie,          // for `lasting`, new links break before a word has come over them
  LinkFlaps,         // the same, `number` times, every `lasting`
  HalfOpen,          // what is sent on this link is lost; `number`: Lost
  Partition,         // this machine cannot be reached for `lasting`; `number`: Lost
  UserStops,         // signal `number` to this agent
  UserStopsTwice,    // again after `lasting`
  AgentStarts,       // on a machine of its own, late or too many
  AgentReplaced,     // killed, and started again after `lasting`
  RankTaken,         // an agent starts with the --node-rank of `worker`
  ShapeDiffers,      // an agent starts with other --nnodes, --max-restarts, ...; `number` says which
  SecretDiffers,     // an agent starts with the secret of another job
  OtherCoordinator,  // the coordinator is killed, and one of another epoch takes its address
};
inline constexpr int kFaultKinds = static_cast<int>(FaultKind::OtherCoordinator) + 1;

// Which way a broken network loses what is sent.
enum Lost { Both, ToCoordinator, ToAgent };

struct Fault {
  milliseconds at{0};
  FaultKind kind = FaultKind::WorkerExits;
  int machine = 0;
  int worker = 0;  // local index; modulo the machine's slots
  milliseconds lasting{0};
  int number = 0;
};

// A machine on which an agent is started by itself.
struct Machine {
  milliseconds starts_at{0};
  int slots = 1;
};

struct Plan {
  std::uint64_t seed = 0;
  rendezvous::JobShape job;
  std::vector<Machine> machines;  // the first has the coordinator
  std::vector<Fault> faults;      // in order of time

  milliseconds join_timeout{0}, last_call{0}, lost_after{0}, shutdown_timeout{0};

  milliseconds delay{0};   // of a message, at most
  int slow_percent = 0;    // of messages that take up to ten times as long
  milliseconds late{0};    // a timer, at most
  int extra_ticks = 0;     // percent of messages that come with a Tick
  int repeat_percent = 0;  // of directives that come with an older one

  milliseconds work_least{0}, work_most{0};  // that a round takes
  milliseconds watchdog{0};                  // of a worker whose peers are silent
  int deaf_percent = 0;                      // of workers ignore SIGTERM
  int big_percent = 0;                       // of workers take long to die
  int unmoved_percent = 0;                   // of workers hang when a peer dies, rather than fail
};

Plan make_plan(std::uint64_t seed);
// n agents that come within a second. One worker fails, if that is wanted, and all others of it.
Plan make_crowd(int agents, bool fails);

// From the last fault on, a run takes no longer than this.
milliseconds time_to_end(const Plan& plan);

std::string describe(const Fault& fault);
std::string describe(const Plan& plan);

}  // namespace ddp::sim
