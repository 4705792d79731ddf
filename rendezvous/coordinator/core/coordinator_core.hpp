// SPDX-License-Identifier: BSD-3-Clause
// Decides for the whole job: which nodes are in a round and with which ranks, whether to restart or give up, how the
// job ends. One per job. A value: (now, event) in, actions out; no socket, thread, clock or log inside. Its driver is
// coordinator.hpp. It maps events (coordinator_events.hpp) to actions; what it decides is in its parts:
//
//   admission.hpp  which agents are nodes of the job       roster.hpp     which nodes there are, who is a member
//   links.hpp      how long links without a node stay      seats.hpp      members of the next round, and their ranks
//   gathering.hpp  when the next round begins              round_end.hpp  why a round ends, and what follows
//
// Rounds are in rounds.cpp; what is kept in the journal, and how another life goes on from there, in recovery.cpp.
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
#include <cstddef>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "rendezvous/coordinator/core/admission.hpp"
#include "rendezvous/coordinator/core/coordinator_events.hpp"
#include "rendezvous/coordinator/core/gathering.hpp"
#include "rendezvous/coordinator/core/links.hpp"
#include "rendezvous/coordinator/core/round_end.hpp"

namespace ddp::rendezvous {

// What a node has for SIGKILL to its workers, if it has not stopped them, until it is lost.
inline constexpr std::chrono::seconds kLostAfterKill{30};

// Time that a node without workers, or whose workers have succeeded, has to answer the end of the job, however silent
// it was before.
inline constexpr std::chrono::seconds kAnswerToEnd{1};

class CoordinatorCore {
 public:
  enum class Phase { Gathering, Opening, Running, Stopping, Over };

  explicit CoordinatorCore(CoordinatorConfig config);

  // Takes in one event and appends what is to be done about it.
  void step(TimePoint now, const CoordinatorEvent& event, CoordinatorActions& actions);
  // Returns when to send a CoordinatorTick; early and extra ones are harmless.
  std::optional<TimePoint> wake_at() const;

  Phase phase() const { return job_.phase; }
  int round() const { return job_.round; }
  int restarts() const { return round_end_.restarts(); }
  int budget_used() const { return round_end_.budget_used(now_); }
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
    return {roster_.nodes().size(), links_.count(),      links_.unheard(),
            round_end_.failures(),  round_end_.losses(), round_end_.first_causes()};
  }

 private:
  static constexpr char kSpare[] =
      "all places of this job are taken: this node waits as a spare (a job of its own needs another --rdzv-id)";
  static constexpr char kMakesRoom[] =
      "this node was the first cause of too many failures (--exclude-after): it waits until no other spare is there";

  // A record of which it is not known yet whether a node of its job lives.
  struct Question {
    Recovered left;
    TimePoint since, until;
    std::optional<TimePoint> tell_at;            // when the user hears of it
    std::map<AgentId, AgentReported> newcomers;  // the newest report of each; they wait for the answer
  };
  struct Job {
    Phase phase = Phase::Gathering;
    int round = 0;
  };
  // The job is over.
  struct End {
    Directive exit;
    TimePoint since;
    std::optional<TimePoint> own_leaves_at = {};  // when the own agent hears of it at the latest
    bool own_was_told = false;                    // the own agent was told to leave, last of all
    bool is_done = false;                         // JobDone was said
    bool is_missed = false;                       // a node was lost before it could hear of the end
  };
  // The own agent was let go: another node is to coordinate. Both are empty once this coordinator has stepped down.
  struct OwnLeave {
    std::optional<AgentId> link;     // ends when it has left
    std::optional<TimePoint> until;  // at the latest
  };

  void on(const AgentLinked& event) { links_.opened(now_, event, *actions_); }
  void on(const AgentReported& event);
  void on(const AgentBeat& event);
  void on(const AgentGone& event);
  void on(const StoreOpened& event);
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
  void tell_again(const JobRecord& record);

  // Nodes come and go.
  std::string why_not_believed(const AgentReported& event) const;
  void disbelieve(const AgentReported& event, const std::string& why);
  void refuse(AgentId agent, const AgentState& state, const std::string& address, const Refusal& refusal);
  void record(RecordNode::What what, const Node& node, const std::string& why = {});
  void take_place_of_own(const AgentReported& event);
  void welcome(const AgentReported& event);
  void mark_heard(const Node& node);
  void lose(const Node& node, TimePoint noticed, Why why, const std::string& text);
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
  void advance();
  bool has_newcomer() const;

  // Rounds.
  void gather();
  void give_up_gathering();
  void send_waiting_message();
  void open_round();
  std::string master_addr();
  void ask_for_store();
  void name_nodes_without_place();
  std::string describe_newcomers() const;
  void stop_round(int signal, RoundEnd::Stop stop);
  void publish_failure();
  void send_stop(int signal);
  void press_overdue();
  void after_stop();

  // The end.
  void end(const Directive& exit);
  void finish(Directive exit);
  void finish_shutdown();
  TimePoint awaited_until(const Node& node) const;

  // Returns what a node does, as JobFacts names it.
  const char* word_for(const Node& node) const;
  std::chrono::milliseconds agents_back_within() const;
  std::chrono::milliseconds link_back_within() const;
  bool elastic() const { return config_.job.min_nodes < config_.job.max_nodes; }
  Directive make(Directive::Kind kind, Why why, std::string reason) const;
  Directive make_exit(const Outcome& outcome, std::string reason) const;
  void send(const Node& node, Directive directive);

  CoordinatorConfig config_;
  JobIdentity identity_;
  Job job_;
  Roster roster_;
  Links links_;
  Gathering gathering_;
  RoundEnd round_end_;
  std::optional<Directive> run_;  // as node rank 0 has it in the round that runs
  std::optional<End> end_;
  std::optional<OwnLeave> own_leave_;
  std::optional<Question> question_;
  std::optional<TimePoint> next_silence_check_;
  // What follows at `overdue_at_` if nodes still run workers of a round that is being stopped.
  enum class Overdue { Name, Kill, Lose } overdue_ = Overdue::Name;
  std::optional<TimePoint> overdue_at_;
  std::string addresses_differ_;  // the newest warning that the nodes have no MASTER_ADDR in common
  std::optional<TimePoint> last_step_;
  bool is_news_ = false;  // something was decided in this step that another life has to know
  std::uint64_t records_ = 0;
  TimePoint now_;
  CoordinatorActions* actions_ = nullptr;
};

}  // namespace ddp::rendezvous
