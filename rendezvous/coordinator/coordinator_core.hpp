// SPDX-License-Identifier: BSD-3-Clause
// Decides for the whole job: which nodes are in a round and with which ranks, whether to restart or give up, how the
// job ends. One per job. A value: (now, event) in, actions out; no socket, thread, clock or log inside. Its driver is
// coordinator.hpp; its roster (roster.hpp) knows which nodes there are. What it keeps in the journal, and how it goes
// on from there, is in recovery.cpp.
//
//     Gathering ──enough nodes──▶ Opening ──StoreOpened──▶ Running ──all succeeded──▶ Over
//         ▲                          └──────────┬─────────────┘
//         │                                     │ a failure, a lost or a new node, a stop signal
//         └───another round, all idle─────── Stopping ──no other round, all idle──▶ Over
//
// Invariants: the ranks of a round are exactly 0..world_size-1; a round is opened only when every node of the one
// before is idle or lost; there are at most max_restarts restarts (within --restart-window); once Over, always Over. A
// node is idle if each of its processes is reaped or, where survivors stay (--on-failure replace or shrink), has left
// the round and waits for the next.
//
// A node is one agent process (an incarnation). It outlives its link: a link that breaks has kReconnectWindow to come
// back, or where another node may coordinate as long as the node's workers may act; a link that falls silent has
// lost_after. Then the node is lost. What follows from which event:
//
//   event                                 fixed number of nodes               elastic (min < max)
//   a worker fails                        restart while max_restarts lasts,   the same
//                                         unless its program cannot run
//   a node is lost                        a restart too, once it is replaced  next round with the others, if ≥ min, or
//                                         (--max-restarts 0: the end)         once they are; spends no restart
//   a node comes, all seats taken         its --node-rank is held: refused;   waits as a spare, takes the place of one
//                                         else it waits as a spare            that is lost
//   a node comes, a seat is free          –                                   next round with it; spends no restart
//   a stop signal on one node             ends the job                        that node leaves; with too few left: ends
//                                                                             the job, as does the coordinator's own
//                                                                             where no other node can coordinate
//
// Where survivors stay, workers live through all of these but the ends, and wait below min for as long as join_timeout.
#pragma once

#include <chrono>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "rendezvous/coordinator/job_record.hpp"
#include "rendezvous/coordinator/roster.hpp"
#include "rendezvous/coordinator/seat_order.hpp"
#include "rendezvous/link/messages.hpp"
#include "rendezvous/link/restart_budget.hpp"

namespace ddp::rendezvous {

struct CoordinatorConfig {
  JobShape job;
  std::string epoch;             // names this life of the coordinator
  bool epoch_is_number = false;  // each life has one of its own, and the next one may be on another node
  // Where it may: a random id of this node's ddprun, its name, and the newest epoch that one of its agents has obeyed.
  // Empty: they have obeyed none, so this node is no part of a job yet.
  std::string node, host, own_epoch = {};
  // The agent of the coordinator's node, which has node rank 0. Where it is in this process, it is never lost. Else it
  // may die alone, and another one takes its place: the one that reports without an address.
  std::string own_incarnation;
  bool own_is_here = true;
  bool keeps_record = false;                                           // decisions are recorded before they are sent
  std::chrono::milliseconds join_timeout = std::chrono::seconds(600);  // for the first nodes, and for a replacement
  std::chrono::milliseconds last_call = std::chrono::seconds(30);      // elastic: wait for more nodes than min
  std::chrono::milliseconds lost_after = std::chrono::seconds(15);     // a node that is silent for this long is lost
  // A node that is told to stop its workers has done so by then; 0: this is not watched.
  std::chrono::milliseconds stops_within{0};
  std::chrono::milliseconds stays_over_for{0};  // at least, once the job is over: for nodes that it does not know
  std::size_t max_unheard_links = 1024;         // links without a node that may be open
  SeatOrder seat_order = SeatOrder();           // ranks nodes that come together
};

// Interval between "waiting for nodes" messages while nodes come. One that says nothing new follows after half the time
// that was waited so far, and after this at most.
inline constexpr std::chrono::seconds kBetweenWaitingMessages{5};
inline constexpr std::chrono::seconds kMostBetweenSame{60};
// The first one. Most jobs are complete by then.
inline constexpr std::chrono::seconds kFirstWaitingMessage{2};
// A loss explains the round's failures if it is noticed no later than this after the first of them: a node that dies
// brings down workers of other nodes, and their reports may come before its link is seen to break.
inline constexpr std::chrono::seconds kCauseWindow{1};
// What a node has for SIGKILL to its workers, if it has not stopped them, until it is lost.
inline constexpr std::chrono::seconds kLostAfterKill{30};

// Interval between searches for nodes that have been silent for too long.
inline constexpr std::chrono::milliseconds kBetweenSilenceChecks{500};

// Time for an agent to report over a new link, and to leave when it was refused; after it the link is closed.
inline constexpr std::chrono::seconds kFirstReportWithin{5};
// Nodes beyond max_nodes that may wait at the same time.
inline constexpr std::size_t kMaxSpares = 1024;

// Time that a node without workers, or whose workers have succeeded, has to answer the end of the job, however silent
// it was before.
inline constexpr std::chrono::seconds kAnswerToEnd{1};

// ---- events ----
struct AgentLinked {  // a link is up, and nobody has reported over it
  AgentId agent;
  std::string address = {};  // as in AgentReported
  std::string share = {};    // share_of() this address
};
struct AgentReported {  // the first report on a link says which agent it is
  AgentId agent;
  AgentState state;
  std::string address = {};     // numeric, where the link comes from; empty: from this process
  std::string arrived_at = {};  // numeric, this machine's address at which it arrived
};
struct AgentBeat {  // a heartbeat
  AgentId agent;
};
struct AgentGone {  // the link broke
  AgentId agent;
  std::string why;
};
struct StoreOpened {  // the answer to OpenStore
  int round;
  std::string address;  // MASTER_ADDR, if it was given; empty: it follows from how the nodes reached this one
  std::uint16_t port;
};
struct StoreFailed {  // the other answer to OpenStore
  int round;
  std::string why;
};
struct CoordinatorTick {};  // the time has come that wake_at() named
// Before any other event: what another life of this coordinator has left. Nothing: there is no record, though there may
// have been another life.
struct Recovered {
  std::optional<JobRecord> record = {};
  std::chrono::milliseconds age{0};  // at least this old is the record
};
struct StoreLost {  // the process with the store was killed, and another one has an empty store
  int clients = 0;  // connections of workers that it had
  std::string why;  // "the store (pid 4711) was killed by SIGKILL"
};
using CoordinatorEvent = std::variant<AgentLinked, AgentReported, AgentBeat, AgentGone, StoreOpened, StoreFailed,
                                      CoordinatorTick, Recovered, StoreLost>;

// ---- actions ----
struct SendDirective {
  AgentId agent;
  Directive directive;
};
struct AnswerBeat {  // answer a heartbeat with one
  AgentId agent;
};
struct CloseLink {  // without a message: the node has a newer link or is lost, or what it said cannot be true
  AgentId agent;
};
struct OpenStore {  // open an empty store for this round; connections to the one before are closed
  int round;
  std::vector<std::string> addresses;  // numeric, the members'; connections from elsewhere are refused
};
struct PublishFailure {  // write into the store, for the workers that are still running, why their round ends
  std::string text;
  std::vector<int> ranks;  // that died, in order; of a lost node all of its ranks; none if a node comes or leaves
};
struct CoordinatorLogLine {  // for the user, on the coordinator's node
  std::string text;
  bool is_about_stranger = false;  // strangers can cause any number of lines
};
struct RecordNode {  // for the job's records: another node came in, was refused, or is no longer part of the job
  enum class What { Joined, Refused, Left };
  What what = What::Joined;
  std::string host;
  std::string address;  // numeric
  std::string why;      // a sentence; empty if it joined
};
// Keep this in the journal: none of the actions after it may be carried out before it is kept, but for AnswerBeat,
// which tells no decision (RecordGate). Numbers grow by one, from 1.
struct Record {
  std::uint64_t number = 0;
  std::string content;  // encode(JobRecord)
};
// The job is over, and the agent of the coordinator's node has left, last of all: the coordinator ends. Only where the
// next one may be on another node. If each node has heard how the job ended, the record is to go; else it says so to
// the others for as long as it is there.
struct JobDone {
  bool may_be_forgotten = false;
};
// The coordinator's own node has left, and the others go on: the coordinator ends, and gives up what it holds, so that
// another node can coordinate. Only where it may be another one.
struct StepDown {};
using CoordinatorAction = std::variant<SendDirective, AnswerBeat, CloseLink, OpenStore, PublishFailure,
                                       CoordinatorLogLine, RecordNode, Record, JobDone, StepDown>;

class CoordinatorCore {
 public:
  enum class Phase { Gathering, Opening, Running, Stopping, Over };
  enum class Trigger { Failure, Loss, Membership, Final };  // why the round is being stopped

  explicit CoordinatorCore(CoordinatorConfig config);

  // Takes in one event and appends what is to be done about it.
  void step(TimePoint now, const CoordinatorEvent& event, std::vector<CoordinatorAction>& actions);
  // Returns when to send a CoordinatorTick; early and extra ones are harmless.
  std::optional<TimePoint> wake_at() const;

  Phase phase() const { return job_.phase; }
  int round() const { return job_.round; }
  int restarts() const { return job_.restarts; }
  int budget_used() const { return has_window() ? budget_.used(now_) : job_.restarts; }
  bool over() const { return job_.phase == Phase::Over; }
  // Whether there is a record of which it is not known yet whether a node of its job lives.
  bool asks() const { return question_.has_value(); }
  // Returns what it knows of the job, for people who look at it.
  JobFacts facts() const;
  const Roster& roster() const { return roster_; }
  // Says how much is held; whatever the agents say, there is a limit to each.
  struct Held {
    std::size_t nodes, links, silent_links, failures, losses, first_causes;
  };
  Held held() const {
    return {roster_.nodes().size(), speakers_.size(), unheard_.size(),
            failures_.size(),       losses_.size(),   first_causes_.size()};
  }

 private:
  // Returns what a node does, as JobFacts names it.
  const char* word_for(const Node& node) const;

  struct Stop {
    Trigger trigger = Trigger::Final;
    std::string reason;
    int exit_code = 1;                        // if Final
    bool at_once = false;                     // with SIGKILL
    bool keeps_survivors = false;             // as the newest directive says
    int signal = 0;                           // as the newest directive says
    std::vector<int> dead = {};               // if Failure or Loss: the ranks that died
    std::optional<WorkerFailure> cause = {};  // if Failure: as far as it is known now
  };
  struct KnownFailure {
    Incarnation node;
    std::string name;  // names the node, which may be gone by the time it matters
    TimePoint seen;
    WorkerFailure failure;
  };
  struct Loss {
    TimePoint noticed;
    std::string text;
    Incarnation stopped_itself = {};  // the node, if it is there and has ended its workers
    Hang hang = Hang::None;           // it has done so for a hang
    std::string name = {};            // names the node, if it is at fault
  };
  struct UnheardLink {
    TimePoint until;  // when it is closed
    std::string address;
    std::string share;
  };
  // A record of which it is not known yet whether a node of its job lives.
  struct Question {
    Recovered left;
    TimePoint since, until;
    std::map<AgentId, AgentReported> newcomers;  // the newest report of each; they wait for the answer
  };
  // Holds what another life of this coordinator would have to know.
  struct Job {
    Phase phase = Phase::Gathering;
    int round = 0;
    int restarts = 0;
    std::optional<WorkerFailure> cause;  // what the newest restart is due to
    // About the newest round, or about the next one while it is prepared:
    bool is_restart = false;
    std::string why_round;       // why it is opened
    std::string who_makes_room;  // for a spare, since the round before, and why; empty: no other node
  };

  void on(const AgentLinked& event);
  void on(const AgentReported& event);
  void on(const AgentBeat& event);
  void on(const AgentGone& event);
  void on(const StoreOpened& event);
  void on(const StoreFailed& event);
  void on(const CoordinatorTick& event);
  void on(const Recovered& event);
  void on(const StoreLost& event);

  // Records.
  JobRecord record() const;
  void begin_job(const std::optional<JobRecord>& left);
  void go_on(const Recovered& event);
  void ask_whether_it_lives(const Recovered& event);
  bool has_to_wait(const AgentReported& event);
  void watch_question();
  void answer_question(bool lives);
  void begin_after(const JobRecord& gone);
  void take_over(const JobRecord& record);
  void restore_members(const JobRecord& record, TimePoint recorded);
  void restore_round(const JobRecord& record, TimePoint recorded);
  void tell_again(const JobRecord& record);

  // Links.
  std::string why_not_believed(const AgentReported& event) const;
  void disbelieve(const AgentReported& event, const std::string& why);
  void expect_report(AgentId agent, const std::string& address, const std::string& share = {});
  void make_room_for_link();
  void close_unheard_links();
  void close_link(AgentId agent);

  // Nodes come and go. Why a node is refused; empty: it is not.
  std::string why_refused(const AgentState& state) const;
  bool is_of_other_coordinator(const AgentState& state) const;
  bool was_in_job_before(const AgentState& state) const;
  void refuse(AgentId agent, const AgentState& state, const std::string& address, const std::string& reason);
  void record(RecordNode::What what, const Node& node, const std::string& why = {});
  void welcome(const AgentReported& event);
  void mark_heard(const Node& node);
  void lose(const Node& node, TimePoint noticed, const std::string& text);
  void release(const Node& node);
  Directive let_go(int signal) const;
  void own_leaves(AgentId link);
  void step_down();
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
  void give_first_seat_to_own(std::vector<Incarnation>& seats, std::vector<const Node*>& newcomers) const;
  std::string choose_master_addr();
  bool is_on_own_machine(const Node& node) const;
  bool own_is_ready() const;
  void take_place_of_own(const AgentReported& event);
  void open_round();
  void ask_for_store();
  void name_nodes_without_place();
  void stop_round(int signal, Stop stop);
  void send_stop(int signal);
  void press_overdue();
  bool survivors_stay() const;
  Hang hang_of_round() const;
  bool spends_restart() const;
  void after_stop();
  void next_round(const std::string& why);
  std::string name_at_fault(const std::optional<WorkerFailure>& cause, const std::string& loss) const;
  void count_first_cause(const std::string& name);
  bool makes_room(const Node& node) const;
  int times_first_cause(const Node& node) const;
  void spend_restart();
  std::string describe_budget() const;
  void end(const Directive& exit);
  void finish(Directive exit);
  void finish_shutdown();
  TimePoint awaited_until(const Node& node) const;

  // Words.
  void send_waiting_message();
  std::string describe_missing() const;
  std::string describe_newcomers() const;

  std::chrono::milliseconds agents_back_within() const;
  std::chrono::milliseconds link_back_within() const;
  bool has_window() const { return config_.job.restart_window.count() > 0; }
  bool elastic() const { return config_.job.min_nodes < config_.job.max_nodes; }
  Directive make(Directive::Kind kind, std::string reason) const;
  void send(const Node& node, Directive directive);

  CoordinatorConfig config_;
  Job job_;
  Roster roster_;
  std::map<AgentId, Incarnation> speakers_;  // by open link: the agent that reports over it
  std::map<AgentId, UnheardLink> unheard_;   // open links without a node: nobody has reported, or the agent was refused
  std::vector<KnownFailure> failures_;       // this round's, in order of arrival
  std::map<std::pair<Incarnation, int>, std::size_t> failure_of_;  // index in failures_ by node and local rank
  std::map<Incarnation, std::size_t> failure_text_;                // bytes of text in failures_, by node
  std::vector<Loss> losses_;                                       // members that this round has lost
  Stop stop_;
  std::optional<Directive> run_;   // as node rank 0 has it in the round that runs
  std::optional<Directive> exit_;  // how the job ended, once it is over
  std::optional<TimePoint> gather_until_, last_call_until_, gather_wake_, next_silence_check_, next_waiting_message_;
  std::string told_missing_;      // by the last "waiting for nodes" message; empty if there was none
  TimePoint tell_missing_again_;  // if nothing changes until then
  std::optional<TimePoint> next_link_check_;
  std::optional<TimePoint> shutdown_until_;
  // What follows at `overdue_at_` if nodes still run workers of a round that is being stopped.
  enum class Overdue { Name, Kill, Lose } overdue_ = Overdue::Name;
  std::optional<TimePoint> overdue_at_;
  TimePoint gathering_since_, over_since_;
  RestartBudget budget_;
  std::string instance_;                     // as in JobRecord
  std::optional<JobRecord::Before> before_;  // as in JobRecord
  std::map<std::string, int> first_causes_;  // how often a node, by name, was the first cause of the end of a round
  std::string addresses_differ_;             // the newest warning that the nodes have no MASTER_ADDR in common
  std::optional<Question> question_;
  bool own_leaves_ = false;                // the own agent was let go: another node is to coordinate
  std::optional<AgentId> own_leaves_by_;   // its link, which ends when it has left
  std::optional<TimePoint> step_down_at_;  // at the latest
  bool own_was_told_ = false;              // the own agent was told to leave, last of all
  bool is_done_ = false;                   // JobDone was said
  bool is_end_missed_ = false;             // a node was lost before it could hear of the end
  std::optional<TimePoint> last_step_;
  bool is_news_ = false;  // something was decided in this step that another life has to know
  std::uint64_t records_ = 0;
  TimePoint now_;
  std::vector<CoordinatorAction>* actions_ = nullptr;
};

// Returns the failure that explains the others; null: there is none. They are given in order of arrival. A failure that
// came by itself goes before one that ddprun caused; among workers that were dead or dying when the first failure was
// noticed, a signal goes before an exit code (a crash makes its peers exit, not the other way round); then the first
// failure, or an earlier failure of the same node.
const WorkerFailure* cause_of(const std::vector<WorkerFailure>& failures);

}  // namespace ddp::rendezvous
