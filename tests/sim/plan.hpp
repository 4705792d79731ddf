// SPDX-License-Identifier: BSD-3-Clause
// Plans are what seeds stand for: the job, its machines, how the world behaves, and everything that goes wrong, all
// decided beforehand. A plan is a value: the shrinker leaves parts out and runs it again.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "launcher/config/launch_config.hpp"
#include "rendezvous/link/messages.hpp"
#include "tests/sim/random.hpp"

namespace ddp::sim {

using std::chrono::milliseconds;
using std::chrono::seconds;

enum class FaultKind {
  WorkerExits,       // with code `number`
  WorkerCrashes,     // by signal `number`
  WorkerHangs,       // it and its peers hang until their watchdogs end them
  WorkerStuck,       // in the kernel for `lasting`: until then SIGKILL has no effect
  LeftoverStuck,     // processes that the next round's workers leave behind cannot be killed for `lasting`
  SpawnFails,        // the next time that workers are started
  StoreFails,        // the next one
  StoreIsLate,       // the next one, by `lasting`
  AgentKilled,       // kill -9; the guardian kills the workers
  GuardianKilled,    // with kill -9
  PowerLoss,         // no connection is closed
  AgentStopped,      // SIGSTOP, SIGCONT after `lasting`; its workers go on
  HostFrozen,        // a suspended machine, for `lasting`
  LinkCut,           // both ends see it
  LinksDie,          // for `lasting`, new links break before a message arrives
  LinkFlaps,         // as LinkCut, `number` times, every `lasting`
  HalfOpen,          // what is sent on this link is lost; `number`: Lost
  Partition,         // this machine cannot be reached for `lasting`; `number`: Lost
  UserStops,         // with signal `number` to this agent
  UserStopsTwice,    // again after `lasting`
  AgentStarts,       // on a machine of its own, late or too many
  AgentReplaced,     // killed, and started again after `lasting`
  RankTaken,         // an agent starts with the --node-rank of `worker`
  ShapeDiffers,      // an agent starts with other --nnodes, --max-restarts, ...; `number` says which
  SecretDiffers,     // an agent starts with the secret of another job
  OtherCoordinator,  // the coordinator is killed, and one of another epoch takes its address
  HangFound,         // this agent finds that the job makes no progress
  // The coordinator is killed when it has carried out `number` more actions, or at once, and comes back after `lasting`
  // with what its journal has; in a job of several nodes.
  CoordinatorKilled,
  StoreKilled,  // while `number` connections of workers were open
  HeadLost,     // what has started this agent by --hosts is out of reach
  // Only with etcd:
  CoordinatorStopped,  // SIGSTOP to its process, SIGCONT after `lasting`
  EtcdStalls,          // for `lasting` it answers nobody
  EtcdCutOff,          // this machine does not reach it for `lasting`
};
inline constexpr int kFaultKinds = static_cast<int>(FaultKind::EtcdCutOff) + 1;
inline constexpr int kCoordinators = -1;  // in place of a machine: the one that coordinates then

// The direction in which a broken network loses messages.
enum Lost { Both, ToCoordinator, ToAgent };

struct Fault {
  milliseconds at{0};
  FaultKind kind = FaultKind::WorkerExits;
  int machine = 0;
  int worker = 0;  // local rank, modulo the machine's slots
  milliseconds lasting{0};
  int number = 0;
};

// A machine on which an agent is started without a fault.
struct Machine {
  milliseconds starts_at{0};
  int slots = 1;
};

// The longest time to be lost after that a lying coordinator gives its agents, so that a run ends.
inline constexpr std::chrono::seconds kLongestLie{60};

// Names those who lie in a run; promises/hostile_promises.cpp says which promises hold then.
enum class Lies {
  None,
  Strangers,    // agents that lie, repeat, and reorder what they say
  Claimants,    // strangers who know the incarnations of the others, and claim to be them
  Coordinator,  // it says to agents what is not true
  Database,     // a writer there changes the record with which a coordinator begins
};

struct Plan {
  std::uint64_t seed = 0;
  rendezvous::JobShape job;
  std::vector<Machine> machines;  // the first has the coordinator
  std::vector<Fault> faults;      // in order of time

  milliseconds join_timeout{0}, last_call{0}, lost_after{0}, shutdown_timeout{0};

  milliseconds delay{0};   // what a message takes at most
  int slow_percent = 0;    // this share of messages takes up to ten times as long
  milliseconds late{0};    // how late a timer is at most
  int extra_ticks = 0;     // this percentage of messages is followed by an extra Tick
  int repeat_percent = 0;  // this share of directives is followed by an older one

  bool ranks_are_wanted = false;  // each agent of a job without given node ranks wants one
  bool one_spelling = true;       // all agents spell the endpoint's host alike
  bool is_loopback = false;       // that name stands for a loopback address on the coordinator's machine
  int arrivals = 1;               // the coordinator's addresses at which links of other machines arrive
  bool is_translated = false;     // the network translates these addresses

  milliseconds work_least{0}, work_most{0};  // work of a round
  milliseconds watchdog{0};                  // ends a worker whose peers are silent for this long
  int deaf_percent = 0;                      // this share of workers ignores SIGTERM
  int big_percent = 0;                       // this share of workers takes long to die
  int unmoved_percent = 0;                   // this share of workers hangs when a peer dies, instead of failing

  launcher::OnHang on_hang = launcher::OnHang::Tell;  // all nodes have it

  bool has_etcd = false;  // the journal is there, and each node may coordinate

  Lies lies = Lies::None;
  int liars = 0;               // that many agents lie
  milliseconds lies_until{0};  // after this the liars are gone
};

Plan make_plan(std::uint64_t seed);
// Returns the seed's plan with somebody who lies in it.
Plan make_hostile_plan(std::uint64_t seed);
// The address from which links of a machine come.
inline std::string address_of(int machine, const char* network = "10.0.") {
  return network + std::to_string(machine / 256) + "." + std::to_string(machine % 256);
}
// The endpoint's host as the agent of a machine spells it, where its link leads, and where that link arrives.
std::string endpoint_host(const Plan& plan, int machine);
std::string coordinator_address(const Plan& plan, int machine);
std::string arrived_at(const Plan& plan, int machine);

// Returns a plan of n agents that come within a second. If `fails`, one worker fails, and all others because of it.
Plan make_crowd(int agents, bool fails);

// Returns how long a run may go on after the last fault.
milliseconds time_to_end(const Plan& plan);

std::string describe(const Fault& fault);
std::string describe(const Plan& plan);

}  // namespace ddp::sim
