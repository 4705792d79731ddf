// SPDX-License-Identifier: BSD-3-Clause
// Messages between an agent and the coordinator: two kinds, each with the sender's whole state, and heartbeats.
//
//     agent ── AgentState ──▶ coordinator      what the agent is, what its workers are doing, what it wants
//     agent ◀── Directive ── coordinator      what this node must do now
//     agent ◀─ Heartbeat ─▶ coordinator       a sign of life; the coordinator answers each with one
//
// The link is level-triggered: each side sends its state when it changes and again after every connect, so a lost,
// repeated or late message needs no special code. A message about an older round is ignored.
//
// While somebody looks at the running job, questions and answers pass as well. They decide nothing: the two cores do
// not see them, and one that is lost is missing from what is shown.
//
//     agent ── LookRequest ──▶ coordinator ── LookRequest ──▶ every agent
//     agent ◀── LookAnswer ─── coordinator ◀── LookAnswer ─── every agent
//     agent ◀──── LookEnd ──── coordinator      what the coordinator knows, once all have answered or the time is over
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "rendezvous/base/exit_code.hpp"
#include "rendezvous/wire/frame.hpp"

namespace ddp::rendezvous {

// Time for a broken link to come back, unless a Directive says otherwise. After that the coordinator counts the node as
// lost; its agent has killed the workers after two thirds of this time.
inline constexpr std::chrono::milliseconds kReconnectWindow = std::chrono::seconds(3);

using TimePoint = std::chrono::steady_clock::time_point;
using WallTime = std::chrono::time_point<std::chrono::system_clock, std::chrono::milliseconds>;

// One worker that did not end well, with everything its agent knows about it.
struct WorkerFailure {
  int rank = 0;
  int local_rank = 0;
  std::string host;
  int pid = 0;
  ExitStatus status;
  WallTime time;                         // when its agent learned of it, or before, if its error file says so
  bool already_exiting = false;          // it was exiting when this node's first failure was noticed
  bool stopped_by_ddprun = false;        // ddprun had told it to end: never a cause
  bool never_ran = false;                // its program cannot run here, so another round would fail in the same way
  std::string message;                   // from the error file, or why it could not be started
  std::vector<std::string> stderr_tail;  // the last lines it wrote to stderr
  std::string stderr_log;                // file on `host` with all of its stderr; empty: none
  std::string flight_recorder;           // file on `host` that libddp wrote; empty: none
  std::string out_of_memory;             // evidence that it died for lack of memory; empty: none
  std::string hint;                      // what to do about it, if it is one of the common cases
  std::string error_record;              // its error file unchanged, if launchers can pass it on
  bool operator==(const WorkerFailure&) const = default;
};

// Returns "rank 5 on node b was killed by SIGKILL".
std::string describe(const WorkerFailure& failure);

// Why a node ended its round itself, where its workers made no progress (--on-hang).
enum class Hang {
  None,     // for another reason, or not at all
  Restart,  // another round is to begin, which costs a restart
  End,      // the job is to end
};

enum class WorkersPhase {
  Idle,      // no process of any round is left on this node
  Running,   // workers of `round` run
  Stopping,  // workers of `round` were told to end, or to leave it
  Quiet,     // some workers live, all of which have left `round` and wait for the next; the others are reaped
};

// The options that must be equal on every node of a job.
struct JobShape {
  std::string id;  // --rdzv-id
  int min_nodes = 1;
  int max_nodes = 1;
  int max_restarts = 0;
  bool node_ranks_given = false;  // by --node-rank (static); else the coordinator assigns them
  bool survivors_stay = false;    // a new round keeps living workers that can go on in it: --on-failure replace, and in
                                  // an elastic job shrink
  int exclude_after = 0;          // --exclude-after: a node that was the first cause this often makes room; 0: never
  std::chrono::milliseconds restart_window{0};  // --restart-window: only restarts within it count; 0: all do
  bool operator==(const JobShape&) const = default;
};

struct AgentState {
  static constexpr FrameKind kKind = FrameKind::AgentState;
  JobShape job;
  std::string epoch;        // names the newest coordinator that this agent has obeyed; empty: it has met none
  std::string instance;     // as in that one's Directives
  std::string incarnation;  // names this agent process
  std::string host;
  std::vector<std::string> addresses;  // numeric, of this node without loopback: its workers connect from these
  std::string endpoint_host;           // the host of --rdzv-endpoint as this node spells it; empty: it has none
  std::string coordinator_address;  // numeric, where its link leads; at the coordinator's node where endpoint_host does
  int node_rank = 0;                // as the user gave it, if job.node_ranks_given
  int wanted_rank = -1;             // else: a newly formed job orders its nodes by this; -1: nothing was given
  std::string role;                 // its workers' role (--role)
  int slots = 0;                    // workers this node runs
  int round = 0;                    // the newest round that this node knows; 0: none
  WorkersPhase phase = WorkersPhase::Idle;
  bool succeeded = false;               // phase Idle: every worker of `round` exited with 0
  std::vector<WorkerFailure> failures;  // in `round`, in the order they were noticed
  std::string stopped_because;          // why this node ended `round` itself; empty: it did not
  Hang hang = Hang::None;               // whether that was for a hang
  int stop_signal = 0;                  // the user stopped this agent with this signal; SIGKILL: a second time
  std::vector<int> unkillable;          // pids that outlived SIGKILL
  bool is_ending = false;               // a worker of `round` that could stay can no longer: the job is about to end
  bool can_look = false;                // it knows LookRequest
  bool left = false;                    // the last message: nothing runs here any more, and this agent exits
  bool operator==(const AgentState&) const = default;
};

// One node's place in a round.
struct Assignment {
  int node_rank = 0;
  int node_count = 0;
  int base_rank = 0;  // worker i of this node has rank base_rank + i
  int world_size = 0;
  int base_role_rank = 0;   // worker i has rank base_role_rank + i among the workers of this node's role
  int role_world_size = 0;  // workers of that role
  int restart_count = 0;
  int max_restarts = 0;
  std::string master_addr;  // empty: the nodes have none in common, and each takes the address of its own link
  std::uint16_t master_port = 0;
  bool operator==(const Assignment&) const = default;
};

struct Directive {
  static constexpr FrameKind kKind = FrameKind::Directive;
  enum class Kind {
    Wait,  // nothing to do yet; `reason` says what the job waits for
    Run,   // run the workers of `round` as `assignment` says
    Stop,  // end the workers of `round` with `stop_signal` (SIGKILL: at once), then report Idle, or Quiet if some stay
    Exit,  // the job is over: leave with `exit_code`
  };
  Kind kind = Kind::Wait;
  std::string epoch;  // names the coordinator
  // Names all coordinators of this job, one after the other, where each has an epoch of its own: then epochs are
  // numbers that grow (is_older_epoch). Empty: all of them have the same epoch.
  std::string instance;
  std::chrono::milliseconds lost_after{0};  // a node that is silent this long counts as lost; 0: never
  // An agent whose link broke keeps its workers for two thirds of this; then it kills them unless it was answered.
  std::chrono::milliseconds back_within = kReconnectWindow;
  int round = 0;
  Assignment assignment;                // Run
  int stop_signal = 0;                  // Stop
  bool survivors_stay = false;          // Stop: workers that can go on in another round leave this one and live
  int exit_code = 0;                    // Exit
  std::string reason;                   // for the user
  Why why = Why::None;                  // the kind of the reason; Run: None, or it is a restart
  std::optional<WorkerFailure> cause;   // the failure that led to this directive, if one did
  std::vector<WorkerFailure> failures;  // Exit: in the last round; if too many, those that ddprun did not cause
  bool can_look = false;                // the coordinator knows LookRequest
  std::optional<int> restarts_left;     // Run, with a restart window: how many there are now
  bool operator==(const Directive&) const = default;
};

// Whether a text can be an epoch that is a number: a decimal one, as etcd's revisions are.
bool is_number_epoch(const std::string& epoch);
// Compares two of them as numbers.
bool is_older_epoch(const std::string& epoch, const std::string& than);

struct Heartbeat {};

// A question about the running job. Its asker numbers it, and finds the number in the answers.
struct LookRequest {
  static constexpr FrameKind kKind = FrameKind::LookRequest;
  std::int64_t number = 0;
  std::string what;       // "state", "stacks"; an agent that does not know the word answers that it does not
  std::string text = {};  // JSON, where the question has more to say; of kOwnerQuestion, the connection's name
  bool operator==(const LookRequest&) const = default;
};

// The number of an answer to no question: what the workers of a node did before they were stopped. The coordinator
// passes it on to the agent in its own process, whose report of a failure has it.
inline constexpr std::int64_t kVolunteered = 0;

// The number and the words of a question that the coordinator asks for the store: whose a connection is that comes from
// that node (net/connection_owner.hpp).
inline constexpr std::int64_t kOwnerNumber = 1;
inline constexpr char kOwnerQuestion[] = "owner";

// What one node answers.
struct LookAnswer {
  static constexpr FrameKind kKind = FrameKind::LookAnswer;
  std::int64_t number = 0;
  std::string node;  // the incarnation of its agent; filled in by the coordinator
  std::string text;  // JSON; of kOwnerNumber, an owner_answer()
  bool operator==(const LookAnswer&) const = default;
};

// What the coordinator knows of the job, and the last message about a question.
struct JobFacts {
  struct Node {
    std::string incarnation, host, address;  // the address is numeric; empty: the coordinator's own node
    // "running", "stopping", "quiet", "waiting" (for nodes, or for others to stop), "starting", "done", "spare", "idle"
    // (the job is over), "cut off" or "leaving".
    std::string state;
    int node_rank = -1;  // in the newest round; -1: it has no seat there
    int base_rank = 0;
    int slots = 0;  // workers that it runs
    bool operator==(const Node&) const = default;
  };
  std::string phase;  // "gathering", "opening", "running", "stopping", "over"
  int round = 0, restarts = 0, max_restarts = 0, min_nodes = 1, max_nodes = 1;
  std::string coordinator;  // the incarnation of the agent in its process
  std::vector<Node> nodes;  // members of the round first, by node rank; at most kMaxNodesShown
  bool operator==(const JobFacts&) const = default;
};
struct LookEnd {
  static constexpr FrameKind kKind = FrameKind::LookEnd;
  std::int64_t number = 0;
  std::string error;  // why there is no answer; empty: there is one
  JobFacts facts;
  bool operator==(const LookEnd&) const = default;
};
inline constexpr std::size_t kMaxNodesShown = 8192;
// Time for all nodes to answer. Stacks take as long as their tools.
inline constexpr std::chrono::milliseconds kStateWithin{1500}, kStacksOfJobWithin{8500};
inline std::chrono::milliseconds look_within(const std::string& what) {
  return what == "stacks" ? kStacksOfJobWithin : kStateWithin;
}

// An agent whose job is traced asks for the coordinator's clock with a reading of its own, and gets both back. Both are
// of CLOCK_MONOTONIC. It is no sign of life: an agent counts its lease from the heartbeat that an answer belongs to.
struct ClockReading {
  static constexpr FrameKind kKind = FrameKind::ClockReading;
  std::int64_t agent_ns = 0, coordinator_ns = 0;  // the latter is 0 in a question
  bool operator==(const ClockReading&) const = default;
};

}  // namespace ddp::rendezvous
