// SPDX-License-Identifier: BSD-3-Clause
// Decides for the whole job: who is in a round and with which ranks, restart or give up, how the job ends.
// One per job. A value: (now, event) in, actions out; no socket, thread, clock or log inside. Driver: coordinator.hpp.
//
//     Gathering ──enough nodes──▶ Opening ──StoreOpened──▶ Running ──all succeeded──▶ Over
//         ▲                          └──────────┬─────────────┘
//         │                                     │ a failure, a lost or a new node, a stop signal
//         └───another round, all idle─────── Stopping ──no other round, all idle──▶ Over
//
// Invariants: ranks of a round are exactly 0..world_size-1; a round is opened only when every node of the one before is
// idle (all of its processes reaped) or lost; at most max_restarts restarts; once Over, always Over.
//
// A node is one agent process (incarnation). It outlives its link: a link that breaks has reconnect_window to come
// back, one that falls silent has lost_after; then the node is lost. What follows from what:
//
//   event                                 fixed number of nodes               elastic (min < max)
//   a worker fails                        restart while max_restarts lasts    the same
//   a node is lost                        a restart too, once it is replaced  next round with the others, if ≥ min, or
//                                         (--max-restarts 0: the end)         once they are; spends no restart
//   a node comes, all seats taken         its --node-rank is held: refused;   waits as a spare, takes the place of one
//                                         else it waits as a spare            that is lost
//   a node comes, a seat is free          –                                   next round with it; spends no restart
//   a stop signal on one node             ends the job                        that node leaves; the coordinator's own,
//                                                                             or with too few left: ends the job
#pragma once

#include <chrono>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "rendezvous/coordinator/roster.hpp"
#include "rendezvous/link/messages.hpp"

namespace ddp::rendezvous {

struct CoordinatorConfig {
  JobShape job;
  std::string epoch;            // names this life of the coordinator
  std::string own_incarnation;  // of the agent in this process: node rank 0, never lost
  std::chrono::milliseconds join_timeout = std::chrono::seconds(600);  // of the first nodes, and of a replacement
  std::chrono::milliseconds last_call = std::chrono::seconds(30);      // elastic: for more nodes than min
  std::chrono::milliseconds lost_after = std::chrono::seconds(15);     // without a word
};

// Interval between "waiting for nodes" messages.
inline constexpr std::chrono::seconds kBetweenWaitingMessages{5};
// A node that died brings down workers of others, and their reports may come before its link is seen to break.
inline constexpr std::chrono::seconds kCauseWindow{1};

// ---- events ----
struct AgentReported {  // the first one of a link says who it is
  AgentId agent;
  AgentState state;
  std::string address = {};  // numeric, where the link comes from; empty: from this process
};
struct AgentBeat {
  AgentId agent;
};
struct AgentGone {  // its link broke
  AgentId agent;
  std::string why;
};
struct StoreOpened {  // the answer to OpenStore
  int round;
  std::string address;  // what workers are told; empty: each the address by which its agent reached this node
  std::uint16_t port;
};
struct StoreFailed {  // likewise
  int round;
  std::string why;
};
struct CoordinatorTick {};
using CoordinatorEvent = std::variant<AgentReported, AgentBeat, AgentGone, StoreOpened, StoreFailed, CoordinatorTick>;

// ---- actions ----
struct SendDirective {
  AgentId agent;
  Directive directive;
};
struct AnswerBeat {
  AgentId agent;
};
struct CloseLink {  // silently: the node has a newer one, or is lost
  AgentId agent;
};
struct OpenStore {  // a fresh, empty store for this round; whatever held on to the old one is cut off
  int round;
  std::vector<std::string> addresses;  // numeric, of the members: nobody else is let in
};
struct PublishFailure {  // tell the workers that are still running who died
  std::string text;
  std::vector<int> ranks;  // in order; of a lost node: all of its
};
struct CoordinatorLogLine {  // to the user, on the coordinator's node
  std::string text;
};
using CoordinatorAction =
    std::variant<SendDirective, AnswerBeat, CloseLink, OpenStore, PublishFailure, CoordinatorLogLine>;

class CoordinatorCore {
 public:
  enum class Phase { Gathering, Opening, Running, Stopping, Over };

  explicit CoordinatorCore(CoordinatorConfig config);

  void step(TimePoint now, const CoordinatorEvent& event, std::vector<CoordinatorAction>& actions);
  // When to send a CoordinatorTick; early and extra ones are harmless.
  std::optional<TimePoint> wake_at() const;

  Phase phase() const { return job_.phase; }
  int round() const { return job_.round; }
  int restarts() const { return job_.restarts; }
  bool over() const { return job_.phase == Phase::Over; }

 private:
  // What ended the round that is being stopped.
  enum class Trigger { Failure, Loss, Membership, Final };
  struct Stop {
    Trigger trigger = Trigger::Final;
    std::string reason;
    int exit_code = 1;           // Final
    bool at_once = false;        // no grace
    std::vector<int> dead = {};  // Failure, Loss: ranks
  };
  struct KnownFailure {
    Incarnation node;
    TimePoint seen;
    WorkerFailure failure;
  };
  struct Loss {
    TimePoint noticed;
    std::string text;
  };
  // Small and plain: what another life of this coordinator would have to know.
  struct Job {
    Phase phase = Phase::Gathering;
    int round = 0;
    int restarts = 0;
    std::optional<WorkerFailure> cause;  // of the newest restart
    bool is_restart = false;             // the newest round, or the one that is to be opened
    std::string why_round;               // the newest round was, or is to be, opened
  };

  void on(const AgentReported& event);
  void on(const AgentBeat& event);
  void on(const AgentGone& event);
  void on(const StoreOpened& event);
  void on(const StoreFailed& event);
  void on(const CoordinatorTick& event);

  // Nodes come and go.
  std::string why_refused(const AgentState& state) const;
  void refuse(AgentId agent, const std::string& reason);
  void welcome(const AgentReported& event);
  void mark_heard(const Node& node);
  void lose(const Node& node, TimePoint noticed, const std::string& text);
  void release(const Node& node);
  void expire_silent_nodes();
  std::string why_lost(const Roster::Expired& expired) const;
  void forgive_own_sleep();

  // What the newest report of a node means for the job.
  void on_report(const Incarnation& incarnation);
  void on_stop_signal(const Node& node);
  void on_round_report(const Node& node);
  void note_failures(const Node& node);
  void note_own_stop(const Node& node);
  std::vector<int> ranks_of(const Node& node) const;
  std::vector<int> failed_ranks() const;
  void advance();
  bool has_newcomer() const;

  // Rounds.
  void gather();
  void give_up_gathering();
  void stop_gathering();
  std::vector<Incarnation> choose_seats() const;
  void open_round();
  void stop_round(int signal, Stop stop);
  void send_stop(int signal);
  void after_stop();
  void next_round(const std::string& why);
  void finish(Directive exit);
  void finish_shutdown();

  // Words.
  void send_waiting_message();
  std::string describe_missing() const;
  std::string describe_newcomers() const;

  bool elastic() const { return config_.job.min_nodes < config_.job.max_nodes; }
  Directive make(Directive::Kind kind, std::string reason) const;
  void send(const Node& node, Directive directive);

  CoordinatorConfig config_;
  Job job_;
  Roster roster_;
  std::vector<KnownFailure> failures_;                             // of this round's workers, in order of arrival
  std::map<std::pair<Incarnation, int>, std::size_t> failure_of_;  // by node and local rank: where it is in failures_
  std::vector<Loss> losses_;                                       // of this round's members
  Stop stop_;
  std::optional<Directive> exit_;  // once over
  std::optional<TimePoint> gather_until_, last_call_until_, gather_wake_, next_silence_check_, next_waiting_message_;
  std::optional<TimePoint> shutdown_until_;
  TimePoint gathering_since_;
  bool own_was_told_ = false;  // to leave, last of all
  std::optional<TimePoint> last_step_;
  TimePoint now_;
  std::vector<CoordinatorAction>* actions_ = nullptr;
};

// The failure that explains the others, of those in order of arrival: one that came by itself before one that ddprun
// caused; among those that were dead or dying when the first was noticed, a signal before an exit code (a crash makes
// its peers exit, not the other way round); then the first. Null: there is none.
const WorkerFailure* cause_of(const std::vector<WorkerFailure>& failures);

}  // namespace ddp::rendezvous
