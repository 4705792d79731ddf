// SPDX-License-Identifier: BSD-3-Clause
// Holds the processes, the workers and the coordinator as they really are. The world changes them; the invariants read
// them.
#pragma once

#include <deque>
#include <functional>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "launcher/agent/agent_core.hpp"
#include "rendezvous/coordinator/core/coordinator_core.hpp"
#include "rendezvous/coordinator/record_gate.hpp"
#include "tests/sim/network.hpp"
#include "tests/sim/plan.hpp"

namespace ddp::sim {

using Task = std::function<void()>;

// How the addresses of liars begin; no honest machine has such a number.
inline constexpr int kFirstLiarsMachine = 200;
inline constexpr const char* kLiarsAddress = "10.0.0.20";

// Why a worker really ended, whatever was reported.
enum class Why {
  Own,     // by itself, with success or not
  Peer,    // because of another worker, `root`
  Ddprun,  // ddprun told it to end, or killed it
  Fate,    // with its machine, or killed by the guardian of its agent
};

inline constexpr const char* kOtherEpoch = "another epoch";  // a coordinator of another job has it

inline constexpr int kDdprun = -1, kLostNode = -2;  // values of Worker::root

struct Worker {
  int id = 0;
  int process = 0;
  int machine = 0;
  int local = 0;
  int node_rank = 0;
  int rank = 0;
  int round = 0;
  bool deaf = false;             // ignores SIGTERM
  bool shows_its_death = false;  // its agent sees it die before it is reaped, as with libddp
  Duration death_takes{};        // until it is reaped
  std::optional<Time> stuck_until;

  bool acts = true;         // executes its program: is neither dying nor dead
  bool hangs = false;       // executes and will not end by itself
  bool culprit = false;     // a fault of its own makes it hang, and its peers with it
  bool told = false;        // it was told to end
  bool stays = false;       // it has said that it can go on in another round
  bool has_stayed = false;  // it has said so at some time
  bool quiet = false;       // it has left its round's groups, and waits for the next round
  bool revoked = false;     // its page says that the round is over
  bool reaped = false;
  Time acted_until;
  Why why = Why::Own;
  int root = 0;  // the worker whose failure it is due to, or one of the two above
  rendezvous::ExitStatus status;
  int reported = 0;  // position among the failures reported to the coordinator, from 1; 0: it was not
  Time reported_at;

  int pid() const { return id + 1000; }
};

// The folder of a worker's files. Nothing is written there; reports name the files in it.
inline std::string folder_of(const Worker& worker) { return "/logs/" + std::to_string(worker.id); }

inline launcher::WorkerWords words_of(const Worker& worker) {
  return {.stderr_log = folder_of(worker) + "/stderr.log",
          .flight_recorder = folder_of(worker) + "/flight_recorder.json"};
}

// What a process of either kind has.
struct Runner {
  bool alive = true;
  bool asleep = false;  // suspended: it handles nothing
  Time asleep_since, wakes_at, awake_since;
  std::vector<Task> inbox;
};

// An agent's process with the state of its driver. In a job of one node the coordinator is in it, too.
struct Process : Runner {
  enum class Role { Wanted, RankTaken, ShapeDiffers, SecretDiffers };

  Process(int process, int on_machine, launcher::AgentConfig agent)
      : index(process), machine(on_machine), config(std::move(agent)), core(config) {}

  int index, machine;
  Role role = Role::Wanted;
  launcher::AgentConfig config;
  launcher::AgentCore core;
  std::deque<launcher::AgentEvent> waiting;  // as in CoreDriver

  LinkId link = -1;  // the newest one that was up
  bool up = false;
  int tries = 0;    // attempts to connect; only the newest counts
  int target = -1;  // with etcd: the coordinator that it tries to reach
  Duration wait = milliseconds(50);

  std::optional<Time> timer;
  int ticks_at_once = 0;
  Time last_tick;
  std::optional<Time> deadman;  // when its keeper kills the workers

  std::vector<int> workers;  // the newest round's, by local rank
  int replacements = 0;      // started for them
  int starts = 0;            // times that workers were started; only the newest counts
  bool spawning = false, importing = false, spawn_fails = false, cleared = true, guardian_gone = false;
  std::optional<Duration> leftover_stuck;
  bool leftovers_act = false;  // processes that its workers left ignore SIGTERM and are not killed yet
  int newest_round_told = 0;
  std::vector<rendezvous::Directive> told;  // kept if old directives are repeated

  bool is_replaced = false;  // it was killed, and its keeper starts another agent
  std::optional<Time> user_stopped;
  std::vector<int> users_signals;
  std::optional<Time> stop_told;  // while it is not idle: when the Stop arrived, or its survivors were told to end
  std::optional<launcher::Leave> left;
  int links_made = 0, reports_sent = 0, directives_got = 0, news_got = 0;
};

// In a job of several nodes it is a process of its own on machine 0, which may die and come back.
struct Coordinator : Runner {
  Coordinator(rendezvous::CoordinatorConfig config, int number, int on_machine, int in, bool apart)
      : core(std::move(config)), index(number), machine(on_machine), process(in), is_apart(apart) {}

  rendezvous::CoordinatorCore core;
  int index;    // among all coordinators of the run
  int machine;  // where it runs
  int process;  // the newest agent of its node
  bool is_apart;
  bool is_newcomer = false;     // with etcd: its node was no part of the job whose record it has found
  bool is_answered = false;     // an agent of that job has reported
  int life = 1;                 // what was to come to an earlier life does not reach this one
  std::map<int, LinkId> links;  // open ones, by AgentId
  std::optional<Time> timer;
  int ticks_at_once = 0;
  Time last_tick;
  bool store_fails = false;
  Duration store_late{};
  std::optional<Time> over_since;

  rendezvous::RecordGate gate;
  std::deque<rendezvous::Record> writing;  // not kept yet
  std::optional<std::string> kept;         // what the journal has
  Time kept_at;
  std::optional<int> dies_after;  // after this number of its actions
  Duration comes_back_after{};
  Time killed_at;

  // With etcd each life is a Coordinator of its own.
  std::int64_t epoch = 0;
  Time sure_until;          // as of the renewals that were answered
  Time doubted_until;       // the newest time
  bool is_written = false;  // the answer to the write that is under way is still to come
  Time write_began;
};

// What etcd has of the job.
struct Etcd {
  std::int64_t revision = 0;
  int holder = -1;  // the coordinator that has claimed the job; -1: none
  std::int64_t epoch = 0;
  Time lease_until;
  std::string content;
  Time kept_at;
  Time stalls_until;            // it answers nobody, and no lease ends
  std::map<int, Time> cut_off;  // by machine: until when it cannot reach etcd
};

struct MachineState {
  Time frozen_until;  // later: when it went on
  Time links_die_until;
  bool powered = true;
  Time calm_from;  // faults on this machine, and what follows from them, are over
  // With etcd: its ddprun, which may coordinate.
  bool has_keeper = false;
  int keepers = 0;  // number of ddpruns that were started here
  std::string newest_obeyed;
};

struct Scene {
  Plan plan;
  Network network{plan};
  std::vector<MachineState> machines;
  std::deque<Process> processes;
  std::deque<Coordinator> coordinators;
  Coordinator* coordinator = nullptr;  // the newest
  int next_agent = 1;                  // names the next link
  Etcd etcd;
  std::deque<Worker> workers;
  std::set<int> alive;         // workers that are not reaped
  Time network_calm_from;      // network faults of the coordinator's machine are over
  Time coordinator_calm_from;  // all faults of its machine
  Time now;

  Process& process(int index) { return processes[static_cast<std::size_t>(index)]; }
  const Process& process(int index) const { return processes[static_cast<std::size_t>(index)]; }
  Worker& worker(int id) { return workers[static_cast<std::size_t>(id)]; }
  const Worker& worker(int id) const { return workers[static_cast<std::size_t>(id)]; }
  MachineState& machine(int index) { return machines.at(static_cast<std::size_t>(index)); }
  const MachineState& machine(int index) const { return machines.at(static_cast<std::size_t>(index)); }
  // The process in which the coordinator is.
  Runner& coordinators_process() {
    return coordinator->is_apart ? static_cast<Runner&>(*coordinator) : process(coordinator->process);
  }
  const Runner& coordinators_process() const {
    return coordinator->is_apart ? static_cast<const Runner&>(*coordinator) : process(coordinator->process);
  }
  // The machine that coordinates.
  int coordinators_machine() const { return coordinator ? coordinator->machine : 0; }
  // Whether what a coordinator says to this process counts.
  bool counts(const Process& process, const rendezvous::Directive& directive) const {
    if (directive.epoch == kOtherEpoch) return false;
    const std::string& newest = process.core.state().epoch;
    return !plan.has_etcd || newest.empty() || !rendezvous::is_older_epoch(directive.epoch, newest);
  }
  bool is_stuck(const Worker& worker) const { return worker.stuck_until && *worker.stuck_until > now; }
};

}  // namespace ddp::sim
