// SPDX-License-Identifier: BSD-3-Clause
// Lists what must always hold, each promise as a sentence, and checks it when something happens that could break it.
#pragma once

#include <array>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "rendezvous/link/accept.hpp"
#include "tests/sim/promises/coverage.hpp"
#include "tests/sim/scene.hpp"

namespace ddp::sim {

using Reason = rendezvous::Why;  // why a directive is given; Why says why a worker ended

// clang-format off
enum class Promise {
  RanksAreExact, RoleRanksAreExact, MembersAgree, OneMasterAddr, RunIsRepeated, ZeroIsTheCoordinators, GivenRankIsKept, RanksStay, NodesWithinLimits,
  SurvivorsAreKept, QuietAreKept, GoesOnAtOnce, StrangersStayOut, LostAreKilled, SecondSignalKills, LastCallIsKept, JoinTimeoutIsKept, FreeSeatIsGiven, SuccessIsKept,
  NewestRoundOnly, ReapedBeforeNext, IdleIsTrue, QuietIsTrue, ReportsAreTrue, GuardedOnly, QuietBeforeNext, OneIncarnation, LostNodeIsQuiet, OnlyMembersRun, StopIsObeyed,
  NewJobIsInOrder, FaultyMakesRoom, BudgetIsKept, FixedCountsEach, MembershipIsFree, BudgetIsUsed,
  CauseIsFirst, CauseGivesCode, ReasonsAreGiven,
  SuccessIsTrue, SuccessIsClean, FaultlessSucceeds, EndIsTold, OneEnd, OwnAgentLast, OwnAgentLeavesThen, NothingStartsAfterEnd, OverForEver,
  LostNotTooEarly, LostNotTooLate, LostOnlyInTrouble, LeaseOnlyInTrouble,
  StopEndsInTime, UserIsHeard, NothingLeftRunning, EveryRunEnds,
  NoBusyLoop, FewMessages, CoresThrowNothing, HonestAreBelieved,
  OwnSuccessIsTrue, StateIsBounded, ToldIsKept,
  OneHolderTells, OneForAnEpoch, NewestEpochOnly, GoneIsGone,
  StoreIsMissed,
  Count
};

inline constexpr std::array<const char*, static_cast<std::size_t>(Promise::Count)> kSentences = {
  "The ranks of a round are exactly 0 to world size - 1.",
  "The ranks within a role are exactly 0 to the role's world size - 1, in order of node rank.",
  "All members of a round receive the same world size, node count, restart count and store.",
  "All members of a round have one MASTER_ADDR, by which each of them reaches the coordinator, or the user is warned.",
  "A Run that is sent again says the same as before.",
  "Node rank 0 is the coordinator's node.",
  "A node rank that the user gave is the one the node gets.",
  "A node that stays keeps its node rank; where empty seats are closed up, nodes keep their order.",
  "A round has between min and max nodes.",
  "Where survivors stay, a node that comes, leaves or is lost ends no worker of the others.",
  "A worker that has left its groups and waits for the next round is ended only with its node or with the job.",
  "In an elastic job a further round opens as soon as enough nodes are idle or quiet, none ends workers, and no link is broken.",
  "An agent of another job shape never gets a seat.",
  "A lost node that comes back with workers is told to kill them.",
  "When a user has signalled twice, all nodes are told to kill their workers.",
  "A first round with fewer nodes than max opens after the last call.",
  "A job does not give up waiting for nodes before join_timeout.",
  "In an elastic job a waiting node gets a free seat at once, unless a node has succeeded, or a worker is about to.",
  "A node that has succeeded, or on which a worker is about to, does not run again because another one joins.",
  "A worker is started only in the newest round that its agent knows.",
  "A node starts round r+1 only after each of its workers of round r is reaped, or has left its groups and goes on.",
  "An agent reports idle only when every process is reaped or was found to be unkillable.",
  "An agent reports quiet only when each worker is reaped or has left its groups.",
  "An agent reports success only if all workers exited with 0, marks the failures that ddprun caused, and names "
  "the files of each worker that died.",
  "An agent whose guardian is gone starts no worker.",
  "When the first worker of a round starts or goes on, none of an older round acts in its groups on any node.",
  "At most one worker acts for each node rank and local rank.",
  "When a node is counted as lost, none of its workers acts, whether its agent runs or is stopped.",
  "Only a node that received Run starts workers; a spare never does.",
  "Once an agent knows of a stop, a newer round or the end, it has told each of its workers to end, or, where survivors "
  "stay, to leave its groups.",
  "In a new job the nodes beside the coordinator's are in the order of the ranks that they want, then of their names.",
  "A node in which more failures began than --exclude-after allows has no place while another one waits for it.",
  "The restart count never falls and grows by at most one a round; no more than max_restarts are within a window.",
  "With a fixed number of nodes each new round spends one restart.",
  "In an elastic job, nodes that come and go spend no restart.",
  "A job gives up because of a failed worker only when its budget is used up.",
  "The failure named as the cause was neither ddprun's doing nor the consequence of another that was reported.",
  "A job that a failed worker ends has that worker's exit code.",
  "Every stop, every exit and every further round has its reason in words.",
  "No agent leaves with code 0 unless all workers of the last round exited with 0.",
  "No agent leaves with code 0 and a process behind.",
  "A job without faults succeeds in its first full round, with code 0 on all nodes that the coordinator has heard.",
  "When the job is over, all nodes with a link hear of it at once, except for the coordinator's own.",
  "All nodes that hear the end leave with the same exit code and reason.",
  "The coordinator's own agent leaves after all agents that it can reach, or after their deadlines.",
  "The coordinator's own agent is told to leave once all others have left or are lost.",
  "Once the job is over, no worker is started, except by an agent that was just resumed and does not know yet.",
  "A job that is over stays over.",
  "A node is lost no sooner than promised: a reconnect window after its link broke, or after lost_after of silence.",
  "A node that is gone is counted as lost in time.",
  "A node is counted as lost only if something had happened to it or to the network.",
  "A node kills its workers because it lost the coordinator only if something had happened to either.",
  "A node that was told to stop is idle within shutdown_timeout plus twice the time to be unkillable, or three times "
  "where survivors stay.",
  "An agent that its user stops leaves in time.",
  "An agent that leaves has no worker left except those that the kernel holds.",
  "Every run ends.",
  "After a Tick a core does not ask for another one at once.",
  "A node costs only a few messages for each link and each round.",
  "A core throws no exception.",
  "What an honest agent or coordinator says is accepted as it is, and believed.",
  "No agent leaves with code 0 unless its own workers of the last round that it was to run exited with 0.",
  "What the coordinator holds has a limit, whatever agents report.",
  "What an agent has heard of rounds, restarts, stops and the end is never forgotten, whenever the coordinator is killed.",
  "A coordinator tells nobody anything once another one may have the job.",
  "An epoch's directives come from one coordinator.",
  "An agent that has obeyed a coordinator never obeys an older one, and is not kept alive by it.",
  "A node that was no part of a job goes on with its record only when a node of that job has answered.",
  "A store that is lost ends its round if a worker had a connection to it, and only then.",
};
// clang-format on

// Whether a promise holds in a run in which somebody lies.
bool holds_among(Lies lies, Promise promise);

struct Violation {
  Promise promise;
  std::string what;
};

class Invariants {
 public:
  Invariants(const Scene& scene, Coverage& coverage) : scene_(scene), coverage_(coverage) {}

  // Take in what the coordinator did, and what its driver received and sent.
  // A message arrives: accept() must not change it.
  template <typename Message>
  void on_message(const Message& message) const {
    Message accepted = message;
    const auto why = rendezvous::accept(accepted);
    promise(Promise::HonestAreBelieved, !why && accepted == message, why.value_or("its words were changed"));
  }
  void on_heard(const Process& from, LinkId link, const rendezvous::AgentState& state);
  void on_beat(const Process& from, LinkId link);
  void on_link_broke(const Process& of, LinkId link);
  void on_sent(const Process& to, const rendezvous::Directive& directive);      // it is decided that this is sent
  void on_sent_off(const Process& to, const rendezvous::Directive& directive);  // now that it is recorded
  void on_not_sent(int agent, const rendezvous::Directive& directive);          // since its link is gone
  void on_said(const std::string& text);
  void on_logged(const std::string& text);  // now that it is recorded
  // Another life of the coordinator begins with this record.
  void on_recovery(const std::optional<rendezvous::JobRecord>& record);
  // A coordinator that did not know whether a node of its record's job lives goes on with that job from now on.
  void on_answered();
  // It has heard that the store of a running round is lost.
  void on_store_lost(int clients) const;
  // A coordinator tells somebody something, or opens a store.
  void on_told_by(const Coordinator& coordinator) const;
  // Whether any agent was told to run a round, or how the job has ended.
  bool is_begun() const { return sent_round_ > 0 || sent_end_; }
  void on_stepped();

  // Take in what an agent did.
  void on_report(const Process& process, const rendezvous::AgentState& state) const;
  void on_told(const Process& process, const rendezvous::Directive& directive);
  // A directive that counts comes from this coordinator.
  void on_epoch(const rendezvous::Directive& directive, int coordinator);
  // An agent, whose newest epoch was this one, has answered an event with these actions.
  void on_obeyed(const Process& process, const launcher::AgentEvent& event, const std::string& epoch,
                 const std::vector<launcher::AgentAction>& actions) const;
  void on_start(const Process& process, const rendezvous::Assignment& assignment);
  void on_start_missing(const Process& process, const launcher::StartMissing& start);
  void on_started(const Process& process);
  // An agent ends one worker of its own accord.
  void on_ended(const Process& process, const Worker& worker) const;
  void on_spawn_failed() { no_start_in_ = scene_.coordinator->core.round(); }
  void on_hang_found(const Process& process);
  void on_stepped(const Process& process);
  void on_lease_kill(const Process& process);
  void on_leave(const Process& process, const launcher::Leave& leave);

  void on_tick(int ticks_at_once);
  void at_end();
  [[noreturn]] void broken(Promise promise, const std::string& what) const { throw Violation{promise, what}; }

 private:
  using Members = std::map<int, rendezvous::Assignment>;  // by process

  void promise(Promise promise, bool holds, const std::string& what) const {
    if (!holds && holds_among(scene_.plan.lies, promise)) broken(promise, what);
  }
  void check_run(const Process& to, const rendezvous::Directive& directive);
  void check_master_addr(const Process& to, const rendezvous::Assignment& run,
                         const rendezvous::Assignment& other) const;
  void check_ranks(const Members& members) const;
  void check_role_ranks(const Members& members) const;
  void check_seats(const Members& before, const Members& now) const;
  bool changes_for_takeover(int process, const rendezvous::Assignment& before) const;
  void check_order(const Members& members) const;
  void check_budget(int round, const rendezvous::Directive& run);
  void note_first_cause(int round, const rendezvous::Directive& run);
  void check_told(const rendezvous::JobRecord& record) const;
  milliseconds window_of(int process) const;
  void check_room(const Members& members) const;
  void note_waiting();
  void note_restart();
  int restarts_in_window(milliseconds longer = milliseconds(0)) const;
  void check_exit(const Process& to, const rendezvous::Directive& exit);
  void check_cause(const rendezvous::WorkerFailure& cause) const;
  void check_lost(const Process& process, bool by_cut);
  void check_quiet() const;
  void check_silent_are_lost() const;
  void check_free_seats() const;
  void check_kept(const Process& to, const rendezvous::Directive& stop) const;
  void check_goes_on();
  void check_patience(const rendezvous::Directive& end) const;
  void note_size(const Process& process) const;
  void check_second_signal() const;
  bool has_succeeded(int process) const;
  bool is_ending(int process) const;
  void check_success(const std::string& who);
  bool has_just_woken(const Process& process) const;
  bool could_kill(const Process& process) const;
  bool acts_against_orders(const Worker& worker) const;
  bool is_in_newest_round(int process) const;
  bool loss_was_late(int round) const;
  Time silent_since(int process) const;
  bool was_in_trouble(const Process& process) const;
  Time newest_act(const Process& process) const;
  const Process* process_on(const std::string& host) const;
  std::string describe(const Worker& worker) const;

  const Scene& scene_;
  Coverage& coverage_;
  std::map<int, Members> rounds_;
  std::vector<Time> restarts_at_;
  int restarts_seen_ = 0;    // restarts of all workers
  milliseconds rounded_{0};  // how much longer one may count: a life's record cuts its own age and theirs to 1 ms
  int round_seen_ = 0;
  std::set<std::string> waited_;                  // hosts without a place when that round was opened
  std::map<int, std::string> first_causes_;       // hosts, by the round that follows
  std::set<std::string> perhaps_faulty_;          // hosts that were lost, or have stopped their workers
  std::set<int> known_;                           // processes that the coordinator counts as nodes
  std::map<int, Time> heard_;                     // by process: when the coordinator last handled a message of it
  std::optional<Time> first_heard_;               // when the first message of any agent was handled
  std::map<int, rendezvous::AgentState> states_;  // by process: its newest report
  std::map<int, LinkId> reported_;                // by process: the newest link on which it reported
  std::set<int> restored_;                        // processes of which a restarted coordinator has heard nothing yet
  std::map<int, Time> broke_;                     // by process: when that link broke for the coordinator
  std::map<int, Time> lost_noticed_, lost_at_;    // by process, if it was lost in the newest round
  std::map<int, int> lost_in_;                    // by process: the newest round in which it was lost
  std::map<int, int> loss_told_;                  // by process: the same, of losses that were logged
  std::set<int> lost_by_cut_;                     // processes that were lost because their links broke
  std::set<int> challengers_;                     // processes that came while their node rank was held
  std::string stop_reason_;                       // why the newest round that was stopped was
  Reason stop_why_ = Reason::None;
  std::string said_again_;  // why the round was being stopped when the coordinator was killed
  Time stopped_at_;
  std::optional<Time> stopping_since_;             // if it is decided that the newest round stops
  std::optional<Time> gathering_since_;            // after a round
  std::map<int, rendezvous::Directive> told_;      // by process: the newest directive sent to it
  std::map<int, rendezvous::Directive> sent_off_;  // as told_, but only what was recorded and went to the network
  std::optional<rendezvous::Directive> sent_end_;
  int sent_round_ = 0, sent_restarts_ = 0;              // the newest
  std::set<int> must_stop_;                             // processes that know that they have to
  std::set<int> must_leave_;                            // processes that know that their round is over
  std::set<int> perhaps_lost_;                          // processes that may have been lost since the job is over
  std::set<int> heard_an_exit_;                         // processes that were told to leave, for whatever reason
  std::map<int, rendezvous::Directive> heard_the_end_;  // how the job ended, for each process that knows it
  bool addresses_differ_ = false;                       // the user was warned of it
  bool own_was_told_ = false;                           // the coordinator's own agent was told to leave
  bool own_was_told_before_ = false;                    // and by an earlier life of the coordinator
  std::optional<rendezvous::Directive> the_end_;        // how the job ended, as all nodes hear it
  int succeeded_ = 0;                                   // the newest round whose success was checked
  int newest_hang_ = 0;                // the newest round that a node has ended because its workers hung
  int no_start_in_ = 0;                // the newest round in which workers could not be started
  bool must_be_over_ = false;          // the record is gone
  std::map<std::string, int> epochs_;  // the coordinator of each
};

}  // namespace ddp::sim
