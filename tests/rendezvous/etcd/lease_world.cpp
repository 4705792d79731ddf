// SPDX-License-Identifier: BSD-3-Clause
#include "tests/rendezvous/etcd/lease_world.hpp"

#include <algorithm>
#include <utility>

namespace ddp::rendezvous {

namespace {

using namespace std::chrono_literals;
using Kind = EtcdRefusal::Kind;

const std::string kJob = "job/1";
constexpr auto kFaultsFor = 60s, kHealsWithin = 120s, kDeadline = 1s, kForgottenWithin = 65s;

void promise(bool is_kept, const std::string& what) {
  if (!is_kept) throw BrokenPromise(what);
}

int value_of(const std::string& content) { return content.empty() ? 0 : std::stoi(content); }

}  // namespace

LeaseWorld::LeaseWorld(std::uint64_t seed) : random_(seed) {
  etcd_rate_ = 1 + 0.01 * random_.between(-3, 3);
  processes_.resize(static_cast<std::size_t>(random_.between(2, 4)));
  for (Process& process : processes_) {
    process.rate = 1 + 0.01 * random_.between(-2, 2);
    process.offset = std::chrono::seconds(random_.between(-500, 500));
  }
}

// ---- Time ----

LeaseTime LeaseWorld::local(const Process& process) const {
  const auto passed = static_cast<double>((queue_.now() - sim::kStart).count()) * process.rate;
  return sim::kStart + process.offset + std::chrono::nanoseconds(static_cast<std::int64_t>(passed));
}

sim::Time LeaseWorld::world(const Process& process, LeaseTime local) const {
  const auto passed = static_cast<double>((local - sim::kStart - process.offset).count()) / process.rate;
  return sim::kStart + std::chrono::nanoseconds(static_cast<std::int64_t>(passed) + 1);
}

void LeaseWorld::advance_model() {
  const auto passed = static_cast<double>((queue_.now() - sim::kStart).count()) * etcd_rate_;
  etcd_.advance(std::chrono::nanoseconds(static_cast<std::int64_t>(passed)));
  pump();
}

void LeaseWorld::every(sim::Duration interval, void (LeaseWorld::*what)()) {
  queue_.at(queue_.now() + interval, [this, interval, what] {
    (this->*what)();
    every(interval, what);
  });
}

void LeaseWorld::run_until(sim::Time end) {
  while (!queue_.empty() && queue_.next() <= end) queue_.run_next();
}

// ---- Processes ----

void LeaseWorld::start(Index which, std::optional<LeaseConfig::Inheritance> inherited) {
  Process& process = processes_[which];
  process.self = std::to_string(++next_self_);
  LeaseConfig config{.job = kJob, .self = process.self};
  config.note = "at " + process.self;
  config.head_start = std::chrono::milliseconds(random_.between(0, 50));
  config.inherited = inherited;
  process.core = std::make_unique<LeaseCore>(config);
  process.is_stopped = process.has_tick = false;
  process.waiting.clear();
  process.watch = 0;
  process.lease = 0;
  process.writes = 0;
  process.values.clear();
  if (inherited) ++counts_.inheritances;
  step(which, LeaseStart{});
}

void LeaseWorld::give(Index which, LeaseEvent event) {
  Process& process = processes_[which];
  if (process.is_stopped) {
    process.waiting.push_back(std::move(event));
  } else {
    step(which, event);
  }
}

void LeaseWorld::step(Index which, const LeaseEvent& event) {
  Process& process = processes_[which];
  if (!process.core) return;
  std::vector<LeaseAction> actions;
  const LeaseCore* const before = process.core.get();
  process.core->step(local(process), event, actions);
  for (const LeaseAction& action : actions) {
    if (process.core.get() != before) return;  // it is over
    std::visit([this, which](const auto& one) { on(which, one); }, action);
  }
  if (process.core) check(process);
  set_tick(which);
}

void LeaseWorld::set_tick(Index which) {
  Process& process = processes_[which];
  if (!process.core || process.has_tick) return;
  const auto wake_at = process.core->wake_at();
  if (!wake_at) return;
  process.has_tick = true;
  const sim::Time at = std::min(std::max(world(process, *wake_at), queue_.now()), queue_.now() + 50ms);
  queue_.at(at, [this, which, self = process.self] {
    Process& then = processes_[which];
    if (then.self != self || !then.core) return;
    then.has_tick = false;
    const auto due = then.core->wake_at();
    if (due && local(then) >= *due) return give(which, LeaseTick{});
    set_tick(which);
  });
}

// ---- What they do ----

EtcdOutcome LeaseWorld::apply(const EtcdRequest& request) {
  advance_model();
  auto outcome = etcd_.apply(request);
  pump();
  return outcome;
}

void LeaseWorld::answer(Index which, const std::string& self, std::uint64_t ask, EtcdOutcome outcome,
                        sim::Duration after) {
  queue_.at(queue_.now() + after, [this, which, self, ask, outcome = std::move(outcome)] {
    if (processes_[which].self == self && processes_[which].core) give(which, LeaseAnswered{ask, outcome});
  });
}

bool LeaseWorld::asks_frozen(Process& process, const AskEtcd& action) const {
  const bool was_settled = action.lane == LeaseLane::Leases && std::exchange(process.is_settled, false);
  const bool is_frozen = frozen_ && process.asks_frozen && !was_settled;
  if (action.lane == LeaseLane::Leases)
    process.is_settled = !is_frozen && std::holds_alternative<Transaction>(action.request);
  return is_frozen;
}

// What becomes of a request: done and answered, soon or late; done, and the answer is lost; not done; done later.
void LeaseWorld::on(Index which, const AskEtcd& action) {
  Process& process = processes_[which];
  const std::string self = process.self;
  const EtcdOutcome unknown = EtcdRefusal{Kind::Unknown, "no answer"};
  if (asks_frozen(process, action)) {  // it needs nobody else to renew a lease, and for everything else a majority
    const bool renews = std::holds_alternative<RenewLease>(action.request);
    if (renews) ++counts_.false_renewals;
    return answer(which, self, action.ask, renews ? frozen_->apply(action.request) : unknown, renews ? 2ms : kDeadline);
  }
  if (chance(3))
    return answer(which, self, action.ask, EtcdRefusal{Kind::Unsent, "refused"}, random_.between(1ms, 900ms));
  const bool is_lost = process.is_cut || !etcd_.has_leader();
  const bool is_done_later = is_lost ? random_.percent(30) && !process.is_cut : chance(4);
  if (is_lost || is_done_later || chance(3)) {
    answer(which, self, action.ask, unknown, kDeadline);
    if (!is_done_later) return;
    ++counts_.late;
    queue_.at(queue_.now() + random_.between(1ms, 9s), [this, request = action.request] {
      if (etcd_.has_leader()) apply(request);
    });
    return;
  }
  const sim::Duration there = chance(5) ? random_.between(10ms, 800ms) : random_.between(200us, 2ms);
  const sim::Duration back = random_.between(200us, 2ms);
  const bool is_answer_lost = chance(4);
  queue_.at(queue_.now() + there,
            [this, which, self, ask = action.ask, request = action.request, back, unknown, is_answer_lost, there] {
              if (!etcd_.has_leader()) return answer(which, self, ask, unknown, kDeadline - there);
              const EtcdOutcome outcome = apply(request);
              answer(which, self, ask, is_answer_lost ? unknown : outcome, is_answer_lost ? kDeadline - there : back);
            });
}

void LeaseWorld::on(Index which, const WatchEtcd& action) {
  Process& process = processes_[which];
  process.watch = next_watch_++;
  process.is_watch_silent = chance(10);
  const auto& events = etcd_.events();
  process.watched = static_cast<std::size_t>(
      std::find_if(events.begin(), events.end(), [&](const auto& one) { return one.revision >= action.what.from; }) -
      events.begin());
  process.watch_until = queue_.now();
  if (chance(15)) {
    queue_.at(queue_.now() + random_.between(1ms, 20s), [this, which, watch = process.watch] {
      if (processes_[which].watch != watch || !processes_[which].core) return;
      processes_[which].watch = 0;
      give(which, LeaseWatchOver{{Kind::Unknown, "it broke"}});
    });
  }
  pump();
}

void LeaseWorld::pump() {
  const auto& events = etcd_.events();
  for (Index which = 0; which < processes_.size(); ++which) {
    Process& process = processes_[which];
    if (process.watch == 0 || process.is_watch_silent || process.is_cut || !process.core) continue;
    for (; process.watched < events.size(); ++process.watched) {
      const auto& event = events[process.watched];
      if (event.event.key.key != leader_key(kJob)) continue;
      process.watch_until =
          std::max(process.watch_until, queue_.now() + random_.between(200us, chance(5) ? 500ms : 3ms));
      queue_.at(process.watch_until, [this, which, watch = process.watch, event] {
        if (processes_[which].watch == watch && processes_[which].core) {
          give(which, LeaseNews{{event.revision, {event.event}}});
        }
      });
    }
  }
}

void LeaseWorld::on(Index which, const LeaseHeld& action) {
  Process& process = processes_[which];
  ++counts_.leader_changes;
  process.watch = 0;
  process.lease = action.lease;
  promise(action.epoch > newest_epoch_, "epochs only grow");
  newest_epoch_ = action.epoch;
  process.value = value_of(action.content);
  promise(process.value >= told_, "each later leader knows the decisions that were published");
}

void LeaseWorld::on(Index which, const LeaseKept& action) {
  Process& process = processes_[which];
  check(process);
  promise(process.core->is_sure(local(process)), "nothing is kept for one that is in doubt");
  const auto kept = process.values.find(action.number);
  promise(kept != process.values.end(), "only what was written is kept");
  if (kept->second > told_) ++counts_.told;
  told_ = std::max(told_, kept->second);
}

void LeaseWorld::on(Index, const LeaseInDoubt&) { ++counts_.doubts; }
void LeaseWorld::on(Index, const LeaseSure&) { ++counts_.sure_again; }

void LeaseWorld::on(Index which, const LeaseLost& action) {
  promise(action.why.find("something else writes") == std::string::npos, "only the leader writes");
  ++counts_.losses;
  processes_[which].core.reset();
  if (!restarts_) return;
  queue_.at(queue_.now() + random_.between(1ms, 2s), [this, which] {
    if (!processes_[which].core && restarts_) start(which);
  });
}

void LeaseWorld::on(Index which, const LeaseReleased& action) {
  promise(action.are_keys_gone, "a job that is released leaves no key behind");
  is_released_ = true;
  processes_[which].core.reset();
}

void LeaseWorld::check(const Process& process) {
  if (!process.core || process.is_stopped || !process.core->is_sure(local(process))) return;
  const KeyValue* const leader = etcd_.find(leader_key(kJob));
  promise(leader != nullptr && leader->modified == process.core->epoch(),
          "a process that may tell its decisions is the leader in etcd");
}

void LeaseWorld::check() {
  for (const Process& process : processes_) check(process);
}

// Each leader decides something now and then.
void LeaseWorld::decide() {
  for (Index which = 0; which < processes_.size(); ++which) {
    Process& process = processes_[which];
    if (!process.core || process.is_stopped || process.lease == 0 || !random_.percent(30)) continue;
    process.values[++process.writes] = ++process.value;
    step(which, LeaseWrite{process.writes, std::to_string(process.value)});
  }
}

// ---- Faults ----

void LeaseWorld::fault() {
  if (is_healed_) return;
  const Index which = static_cast<Index>(random_.below(static_cast<int>(processes_.size())));
  Process& process = processes_[which];
  const sim::Duration lasts = random_.percent(50) ? random_.between(100ms, 3s) : random_.between(3s, 15s);
  const std::string self = process.self;
  switch (random_.below(5)) {
    case 0: {  // killed; a local successor may inherit
      if (!process.core) return;
      std::optional<LeaseConfig::Inheritance> inherited;
      if (process.lease != 0 && random_.percent(60)) inherited = {process.lease, process.core->epoch()};
      process.core.reset();
      queue_.at(queue_.now() + (inherited ? random_.between(1ms, 600ms) : lasts), [this, which, inherited, self] {
        if (processes_[which].self == self && !processes_[which].core) start(which, inherited);
      });
      return;
    }
    case 1:  // SIGSTOP
      if (!process.core || process.is_stopped) return;
      process.is_stopped = true;
      queue_.at(queue_.now() + lasts, [this, which, self] {
        Process& then = processes_[which];
        if (then.self != self || !then.core) return;
        then.is_stopped = false;
        check(then);  // before it has done anything
        std::vector<LeaseEvent> waiting = std::exchange(then.waiting, {});
        if (random_.percent(50)) std::reverse(waiting.begin(), waiting.end());
        for (const LeaseEvent& event : waiting) {
          if (then.self == self) give(which, event);
        }
      });
      return;
    case 2:  // the cable
      process.is_cut = true;
      queue_.at(queue_.now() + lasts, [this, which] { processes_[which].is_cut = false; });
      return;
    case 3:  // etcd's leader, killed or frozen
      if (!etcd_.has_leader()) return;
      ++counts_.elections;
      advance_model();
      if (random_.percent(50)) {
        queue_.at(queue_.now() + random_.between(3s, 15s), [this, before = etcd_] { thaw(before); });
      }
      etcd_.lose_leader();
      queue_.at(queue_.now() + random_.between(900ms, random_.percent(20) ? 20s : 3s), [this] {
        advance_model();
        etcd_.elect();
      });
      return;
    default:  // its disk
      etcd_.is_full = true;
      queue_.at(queue_.now() + lasts, [this] { etcd_.is_full = false; });
  }
}

void LeaseWorld::thaw(const EtcdModel& before) {
  if (is_healed_) return;
  frozen_ = before;
  for (Process& process : processes_) process.asks_frozen = random_.percent(50);
  queue_.at(queue_.now() + random_.between(100ms, 1s), [this] { frozen_.reset(); });
}

void LeaseWorld::heal() {
  is_healed_ = true;
  etcd_.is_full = false;
  for (Process& process : processes_) process.is_cut = false;  // a watch that is silent stays so
  pump();
}

void LeaseWorld::run() {
  for (Index which = 0; which < processes_.size(); ++which) {
    queue_.at(sim::kStart + random_.between(0ms, 3s), [this, which] { start(which); });
  }
  every(20ms, &LeaseWorld::check);
  every(50ms, &LeaseWorld::advance_model);
  every(100ms, &LeaseWorld::decide);
  every(random_.between(700ms, 5s), &LeaseWorld::fault);
  const sim::Time healed = sim::kStart + kFaultsFor;
  run_until(healed);
  heal();
  const int told_before = told_;
  run_until(healed + kHealsWithin);
  Index leader = processes_.size();
  for (Index which = 0; which < processes_.size(); ++which) {
    if (processes_[which].core && processes_[which].core->is_sure(local(processes_[which]))) leader = which;
  }
  promise(leader < processes_.size() && told_ > told_before, "once the faults end there is a leader that can write");

  // The job ends, and another one with its id begins.
  restarts_ = false;
  for (Index which = 0; which < processes_.size(); ++which) {
    if (which != leader) processes_[which].core.reset();
  }
  step(leader, LeaseRelease{});
  run_until(queue_.now() + 1s);
  promise(is_released_ && etcd_.size() == 0, "a job that is released leaves no key behind");
  told_ = 0;
  start(0);
  run_until(queue_.now() + 1s);
  promise(processes_[0].core->is_sure(local(processes_[0])) && processes_[0].value < 20,
          "the next job with the same id begins at once, with nothing");

  // All of it dies, and its record as well.
  processes_[0].core.reset();
  run_until(queue_.now() + kForgottenWithin);
  promise(etcd_.size() == 0, "the keys of a job whose processes are all dead go with their leases");
}

}  // namespace ddp::rendezvous
