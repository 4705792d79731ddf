// SPDX-License-Identifier: BSD-3-Clause
// What an agent and the coordinator say to each other: two messages, each the sender's whole state, and heartbeats.
//
//     agent ── AgentState ──▶ coordinator      what I am, what my workers are doing, what I want
//     agent ◀── Directive ── coordinator      what this node shall do now
//     agent ◀─ Heartbeat ─▶ coordinator       I am there; the coordinator answers each with one
//
// The link is level-triggered: each side sends its state when it changes and again after every connect, so a lost,
// repeated or late message needs no special code. A message about an older round is ignored.
#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace ddp::rendezvous {

// For a link that broke to come back. Then the coordinator counts the node as lost; its agent has killed the workers
// after two thirds of it.
inline constexpr std::chrono::milliseconds kReconnectWindow = std::chrono::seconds(3);

using TimePoint = std::chrono::steady_clock::time_point;
using WallTime = std::chrono::time_point<std::chrono::system_clock, std::chrono::milliseconds>;

// How a process ended.
struct ExitStatus {
  int code = 0;    // exit code, if it exited
  int signal = 0;  // the signal that killed it, else 0
  bool success() const { return code == 0 && signal == 0; }
  // What a shell would say: the code, or 128 + the signal.
  int shell_code() const { return signal != 0 ? 128 + signal : code; }
  bool operator==(const ExitStatus&) const = default;
};

// "was killed by SIGKILL", "exited with code 7"
std::string describe(const ExitStatus& status);

// One worker that did not end well, with everything its agent knows about it.
struct WorkerFailure {
  int rank = 0;
  int local_rank = 0;
  std::string host;
  int pid = 0;
  ExitStatus status;
  WallTime time;                         // when its agent learned of it
  bool already_exiting = false;          // it was on its way out when this node's first failure was noticed
  bool stopped_by_ddprun = false;        // it died after ddprun had told it to: never a cause
  std::string message;                   // what the error file says, or why it could not be started
  std::vector<std::string> stderr_tail;  // the last lines it wrote to stderr
  std::string stderr_log;                // the file on `host` that has all of it; empty: none
  std::string flight_recorder;           // libddp's, a file on `host`; empty: none
  std::string out_of_memory;             // what says that it died for lack of memory, in words; empty: nothing does
  std::string hint;                      // what to do about it, if it is one of the common cases
  std::string error_record;              // its error file as it is, if that is one that launchers can pass on
  bool operator==(const WorkerFailure&) const = default;
};

// "rank 5 on node b was killed by SIGKILL"
std::string describe(const WorkerFailure& failure);

enum class WorkersPhase {
  Idle,      // no process of any round is left on this node
  Running,   // workers of `round` run
  Stopping,  // workers of `round` were told to end
};

// What every host of a job must have been told alike.
struct JobShape {
  std::string id;  // --rdzv-id
  int min_nodes = 1;
  int max_nodes = 1;
  int max_restarts = 0;
  bool node_ranks_given = false;  // static: by --node-rank; else the coordinator gives them
  bool operator==(const JobShape&) const = default;
};

struct AgentState {
  JobShape job;
  std::string epoch;        // of the coordinator that this agent serves; empty: of none yet
  std::string incarnation;  // names this agent process
  std::string host;
  std::vector<std::string> addresses;  // numeric, this node's own but for loopback: its workers come from there
  int node_rank = 0;                   // as the user gave it, if job.node_ranks_given
  std::string role;                    // of its workers (--role)
  int slots = 0;                       // workers this node runs
  int round = 0;                       // the newest round this node was told of; 0: none yet
  WorkersPhase phase = WorkersPhase::Idle;
  bool succeeded = false;               // phase Idle: every worker of `round` exited with 0
  std::vector<WorkerFailure> failures;  // of `round`, in the order they were noticed
  std::string stopped_because;          // why this node ended `round` by itself; empty: it did not
  int stop_signal = 0;                  // the user told this agent to stop with this signal; SIGKILL: and then again
  std::vector<int> unkillable;          // pids that outlived SIGKILL
  bool left = false;                    // its last word: nothing runs here any more, and this agent goes
  bool operator==(const AgentState&) const = default;
};

// One node's place in a round.
struct Assignment {
  int node_rank = 0;
  int node_count = 0;
  int base_rank = 0;  // worker i of this node has rank base_rank + i
  int world_size = 0;
  int base_role_rank = 0;   // among workers of this node's role: worker i has base_role_rank + i
  int role_world_size = 0;  // workers of that role
  int restart_count = 0;
  int max_restarts = 0;
  std::string master_addr;  // empty: the address by which this agent reached the coordinator
  std::uint16_t master_port = 0;
  bool operator==(const Assignment&) const = default;
};

struct Directive {
  enum class Kind {
    Wait,  // nothing to do yet; `reason` says for what or whom
    Run,   // run the workers of `round` as `assignment` says
    Stop,  // end the workers of `round` with `stop_signal` (SIGKILL: at once), then report Idle
    Exit,  // the job is over: leave with `exit_code`
  };
  Kind kind = Kind::Wait;
  std::string epoch;                        // of the coordinator
  std::chrono::milliseconds lost_after{0};  // a node that is silent for so long counts as lost; 0: never
  int round = 0;
  Assignment assignment;                // Run
  int stop_signal = 0;                  // Stop
  int exit_code = 0;                    // Exit
  std::string reason;                   // in words, for the user
  std::optional<WorkerFailure> cause;   // the failure that decided it, if one did
  std::vector<WorkerFailure> failures;  // Exit: of the last round; of many, those that came by themselves
  bool operator==(const Directive&) const = default;
};

struct Heartbeat {};

}  // namespace ddp::rendezvous
