// SPDX-License-Identifier: BSD-3-Clause
// A simulated world around lease_core: a job's candidates, which are killed, stopped and cut off, each with a clock of
// its own speed, and a cluster of etcd that answers late, loses answers, does late what it was asked, and loses its
// leader. Everything follows from the seed.
//
// Promises:
//   * A process that may tell its decisions is the leader in etcd at that moment.
//   * Each later leader knows the decisions that were published.
//   * Epochs only grow, and only the leader writes.
//   * Once the faults end there is a leader that can write.
//   * The keys of a job whose processes are all dead go with their leases.
//   * A job that is released leaves no key behind, and the next one with its id begins at once, with nothing.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <stdexcept>
#include <string>
#include <vector>

#include "rendezvous/etcd/lease_core.hpp"
#include "tests/rendezvous/etcd/etcd_model.hpp"
#include "tests/sim/event_queue.hpp"
#include "tests/sim/random.hpp"

namespace ddp::rendezvous {

struct BrokenPromise : std::runtime_error {
  using std::runtime_error::runtime_error;
};

class LeaseWorld {
 public:
  explicit LeaseWorld(std::uint64_t seed);
  // Throws BrokenPromise.
  void run();

  // What came to pass, so that a test sees that the faults did something.
  struct Counts {
    int leader_changes = 0, doubts = 0, sure_again = 0, losses = 0, inheritances = 0, told = 0, late = 0, elections = 0;
    int false_renewals = 0;
  };
  const Counts& counts() const { return counts_; }

 private:
  struct Process {
    std::unique_ptr<LeaseCore> core;
    std::string self;
    double rate = 1;  // its clock's
    std::chrono::nanoseconds offset{0};
    bool is_stopped = false, is_cut = false, asks_frozen = false;
    bool is_settled = false;  // its newest read was answered by a member that knows the leader, which it asks again
    std::vector<LeaseEvent> waiting;  // while it is stopped
    bool has_tick = false;            // one is on its way
    std::uint64_t watch = 0;          // the newest; 0: none
    bool is_watch_silent = false;
    std::size_t watched = 0;  // events of the model that were sent
    sim::Time watch_until;    // when the newest of them arrives
    LeaseId lease = 0;
    std::uint64_t writes = 0;
    int value = 0;  // the newest decision's
    std::map<std::uint64_t, int> values;
  };
  using Index = std::size_t;

  std::string settings();
  void start(Index which, std::optional<LeaseConfig::Inheritance> inherited = {});
  void give(Index which, LeaseEvent event);
  void step(Index which, const LeaseEvent& event);
  void set_tick(Index which);
  LeaseTime local(const Process& process) const;
  sim::Time world(const Process& process, LeaseTime local) const;

  void on(Index which, const AskEtcd& action);
  void on(Index which, const WatchEtcd& action);
  void on(Index which, const LeaseHeld& action);
  void on(Index which, const LeaseOfOther&) { (void)which; }
  void on(Index which, const LeaseKept& action);
  void on(Index which, const LeaseInDoubt&);
  void on(Index which, const LeaseSure&);
  void on(Index which, const LeaseLost& action);
  void on(Index which, const LeaseReleased& action);
  void on(Index which, const LeaseTrouble&) { (void)which; }

  void answer(Index which, const std::string& self, std::uint64_t ask, EtcdOutcome outcome, sim::Duration after);
  EtcdOutcome apply(const EtcdRequest& request);
  void pump();
  void advance_model();
  void check();
  void check(const Process& process);

  void fault();
  void thaw(const EtcdModel& before);
  void heal();
  void every(sim::Duration interval, void (LeaseWorld::*what)());
  void decide();
  void run_until(sim::Time end);
  bool chance(int percent) { return !is_healed_ && random_.percent(percent); }

  sim::Random random_;
  sim::EventQueue queue_;
  EtcdModel etcd_;
  double etcd_rate_ = 1;
  std::optional<EtcdModel> frozen_;  // what a member believes that led until it was frozen, and has just come back
  bool asks_frozen(Process& process, const AskEtcd& action) const;
  std::vector<Process> processes_;
  int next_self_ = 0;
  int told_ = 0;  // the greatest decision that was published
  std::int64_t newest_epoch_ = 0;
  bool is_healed_ = false;
  bool is_released_ = false;
  bool restarts_ = true;
  std::uint64_t next_watch_ = 1;
  Counts counts_;
};

}  // namespace ddp::rendezvous
