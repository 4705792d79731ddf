// SPDX-License-Identifier: BSD-3-Clause
// Runs a whole job in one thread: the two cores, drivers that do for them what agent.cpp and coordinator.cpp do,
// workers, and a plan's faults. A run is a function of its plan: the same plan gives the same trace, bit for bit.
//
//     world.cpp         time, processes that start, sleep and end
//     faults.cpp        faults
//     agents.cpp        an agent's driver, its workers' starts and its link
//     coordinators.cpp  the coordinator's driver
//     etcd.cpp          a journal in etcd, and the nodes that may coordinate
//     workers.cpp       workers and how they end
//     survivors.cpp     workers that stay when their round fails
//     liars.cpp         agents that lie, and a coordinator that does
#pragma once

#include <string>
#include <vector>

#include "rendezvous/link/codec.hpp"
#include "tests/sim/event_queue.hpp"
#include "tests/sim/promises/coverage.hpp"
#include "tests/sim/promises/invariants.hpp"
#include "tests/sim/scene.hpp"
#include "tests/sim/transcripts/transcript.hpp"

namespace ddp::sim {

// An agent that says what it likes.
struct Liar {
  int machine = 0;
  Random random;
  rendezvous::AgentState state;              // what it would say if it were honest
  std::vector<rendezvous::AgentState> said;  // the newest ones
  std::optional<rendezvous::Directive> told;
  LinkId link = -1;
  rendezvous::FrameDecoder decoder = {};  // the coordinator's, of that link
};

class World {
 public:
  // Writes what happens into the transcript, if there is one.
  World(Plan plan, Coverage& coverage, Transcript* transcript = nullptr);

  // Runs until all agents have ended. Returns the promise that was broken; nothing: all were kept.
  std::optional<Violation> run();
  // Returns the hash of everything that happened.
  std::uint64_t hash() const { return hash_; }
  const Scene& scene() const { return scene_; }

 private:
  Time now() const { return queue_.now(); }
  // Runs a task of a process; later if the process is suspended, never if it has ended.
  void deliver(int process, Task task);
  void deliver_at(Time time, int process, Task task);
  void deliver_to(Runner& runner, Task task);
  // Runs a task of a coordinator's process, if it is still in the life that it has now.
  void deliver_to(Coordinator& coordinator, Task task);
  void deliver_at(Time time, Coordinator& coordinator, Task task);
  Coordinator& coordinator_of(LinkId link) {
    return scene_.coordinators[static_cast<std::size_t>(scene_.network.link(link).coordinator)];
  }
  bool is_newest(const Coordinator& coordinator) const { return &coordinator == scene_.coordinator; }
  std::string name_of(const Coordinator& coordinator) const;
  Duration lateness(Random& random) { return random.between(Duration(0), scene_.plan.late); }

  // world.cpp
  void run_until_all_ended();
  Process& start_agent(int machine, int slots, Process::Role role, int variant);
  launcher::AgentConfig config_of(int machine, int slots, Process::Role role, int variant);
  void end_process(Process& process);
  void end_coordinators_on(int machine, bool has_left);
  void kill_agent(Process& process);
  void lose_power(int machine);
  void sleep(Process& process, Time until);
  void wake(Process& process);
  void sleep(Coordinator& coordinator, Time until);
  void wake(Coordinator& coordinator);
  void freeze(int machine, Time until);
  Process* agent_on(int machine);

  // faults.cpp
  void happen(const Fault& fault);
  void cut(LinkId id);
  void disturb(int machine, Duration lasting);

  // agents.cpp
  void handle(Process& process, const launcher::AgentEvent& event);
  void step(Process& process, const launcher::AgentEvent& event);
  void set_timer(Process& process);
  void carry_out(Process& process, const launcher::StartWorkers& action);
  void carry_out(Process& process, const launcher::StartMissing& action);
  void carry_out(Process& process, const launcher::RevokeRound& action);
  void carry_out(Process& process, const launcher::SignalWorker& action);
  void carry_out(Process& process, const launcher::ReadWords& action);
  void carry_out(Process& process, const launcher::SignalWorkers& action);
  // Suspending a job is not simulated: agents only pass it on to their workers, and the coordinator does not see it.
  void carry_out(Process&, const launcher::SuspendWorkers&) {}
  void carry_out(Process& process, const launcher::KillDescendants& action);
  void carry_out(Process& process, const launcher::KillLeftovers& action);
  void carry_out(Process& process, const launcher::ClearDescendants& action);
  void clear(Process& process);
  void carry_out(Process& process, const launcher::SendReport& action);
  void carry_out(Process& process, const launcher::SendHeartbeat& action);
  void carry_out(Process& process, const launcher::SetDeadman& action);
  void keeper_looks(int process, Time deadman);
  void carry_out(Process& process, const launcher::Reconnect& action);
  void carry_out(Process& process, const launcher::LogLine& action);
  void carry_out(Process& process, const launcher::Leave& action);
  void spawned(Process& process, int round, const rendezvous::Assignment& assignment);
  void stop_the_start(Process& process);
  std::vector<int> exiting_workers(const Process& process) const;
  void connect_within(Process& process);
  void try_within(Process& process, int number);
  bool is_within(const Process& process) const;
  LinkId open_within(Process& process);
  void choose_target(Process& process);
  void connect(Process& process);
  void try_link(Process& process, int number, Time give_up);
  void try_failed(Process& process, const std::string& why);
  void accept(Process& process, int number);
  void link_up(Process& process, LinkId link);
  void close_agents_end(LinkId link);
  void break_agents_end(LinkId link, const std::string& why);

  // coordinators.cpp
  Coordinator& add_coordinator(const Process& process);
  void handle(Coordinator& coordinator, const rendezvous::CoordinatorEvent& event);
  rendezvous::CoordinatorConfig coordinators_config(const Process& process) const;
  void note_decided(const Coordinator& coordinator, const rendezvous::SendDirective& action);
  void carry_out_due(Coordinator& coordinator);
  void write_next(Coordinator& coordinator);
  void kill(Coordinator& coordinator);
  void end(Coordinator& coordinator);
  void close_links(Coordinator& coordinator);
  void recover(Coordinator& coordinator);
  void begin_with_record(Coordinator& coordinator);
  void forget_unrecorded_failures(const rendezvous::JobRecord& record);
  std::string host_of(rendezvous::AgentId agent) const;
  void set_timer(Coordinator& coordinator);
  void carry_out(Coordinator& coordinator, const rendezvous::SendDirective& action);
  void carry_out(Coordinator& coordinator, const rendezvous::AnswerBeat& action);
  void carry_out(Coordinator& coordinator, const rendezvous::CloseLink& action);
  void carry_out(Coordinator& coordinator, const rendezvous::OpenStore& action);
  // What is said is heard when it is decided. From when it is logged it may not be forgotten.
  void carry_out(Coordinator&, const rendezvous::PublishFailure&) {}
  void carry_out(Coordinator& coordinator, const rendezvous::CoordinatorLogLine& action);
  void carry_out(Coordinator&, const rendezvous::RecordNode&) {}  // nothing depends on it
  void carry_out(Coordinator& coordinator, const rendezvous::Record& action);
  void carry_out(Coordinator& coordinator, const rendezvous::JobDone& action);
  void carry_out(Coordinator& coordinator, const rendezvous::StepDown& action);
  void begins_another_job(Coordinator& coordinator);
  void close_coordinators_end(LinkId link);
  void break_coordinators_end(LinkId link, const std::string& why);
  void report_arrives(LinkId link, const rendezvous::AgentState& state);
  void beat_arrives(LinkId link);
  void note_failures(const Process& process, const rendezvous::AgentState& state);
  void answer_as_other_coordinator(LinkId link, const rendezvous::AgentState& state);
  void repeat_an_old_one(Process& process, const rendezvous::Directive& directive);
  void directive_arrives(LinkId link, const rendezvous::Directive& directive);

  // etcd.cpp
  Time etcd_answers(int machine) const;
  bool may_tell(const Coordinator& coordinator) const;
  void keeper_starts(int machine);
  void try_to_claim(int machine);
  void claim(int machine);
  bool has_written_record(const Process& process) const;
  void begin_life(int machine, std::int64_t epoch, Time asked);
  void tell_of_newest();
  void hears_of_newest(Process& process);
  void renew(Coordinator& coordinator);
  void lease_ends(std::int64_t epoch);
  void give_up_lease();
  void write_to_etcd(Coordinator& coordinator);
  void apply_write(int coordinator, const rendezvous::Record& record);
  void disturb_all(Duration lasting);

  // liars.cpp
  void start_liars();
  void act(std::size_t liar);
  void end_liars();
  void lie_about_job(const Coordinator& coordinator, std::variant<rendezvous::JobRecord, std::string>& read);
  void obey(Liar& liar);
  void open_liars_link(Liar& liar);
  void say(Liar& liar, const rendezvous::AgentState& state);
  void send_bytes(Liar& liar, const std::string& bytes);
  void bytes_arrive(std::size_t liar, LinkId link, const std::string& bytes);
  Liar* liar_on(LinkId link);
  void lie_to_agent(LinkId link, const rendezvous::Directive& directive, Time arrives);

  // workers.cpp
  Worker& start_worker(Process& process, int local, int round, const rendezvous::Assignment& assignment);
  void plan_success(Worker& worker);
  void on_worker(int id, Task task);
  void signal(Worker& worker, int number);
  void kill(Worker& worker, Why why);
  void begin_to_die(Worker& worker, rendezvous::ExitStatus status, Why why, int root);
  void show_death(int id);
  bool is_newest(const Worker& worker) const;
  void reap(int id);
  void tell_peers(const Worker& dead);
  void hang_until_watchdog(const Worker& culprit, int root);
  Worker* worker_on(int machine, int local);

  // survivors.cpp
  void plan_stay(Worker& worker);
  void plan_end(Worker& worker);
  void leave_groups(int id, int round, int root);
  // Whether the system has no process for a worker that takes a dead one's place; once the faults are over it has.
  bool replacement_fails() { return spawn_random_.percent(3) && now() < faults_end_ && !scene_.plan.faults.empty(); }
  void start_in_place(Process& process, int local, int round, const rendezvous::Assignment& assignment);

  // Adds to the hash what happened.
  void mark(int what, int who, int which = 0);
  // Adds it to the transcript, if there is one.
  template <typename Text>
  void note(const std::string& who, Text text) {
    if (transcript_) transcript_->note(now(), who, text());
  }

  Scene scene_;
  EventQueue queue_;
  Coverage& coverage_;
  Invariants invariants_;
  Transcript* transcript_;
  std::uint64_t hash_ = 14695981039346656037U;
  Time faults_end_;
  Time coordinator_ends_;  // when the keeper of an agent that has left ends the coordinator
  Random spawn_random_, worker_random_, tick_random_, keeper_random_, etcd_random_;
  bool other_coordinator_ = false;
  int alive_ = 0;  // agents that run
  int events_ = 0;
  int failures_heard_ = 0;
  std::vector<Liar> liars_;
  std::vector<launcher::AgentAction> agent_actions_;
  std::vector<rendezvous::CoordinatorAction> coordinator_actions_;
};

}  // namespace ddp::sim
