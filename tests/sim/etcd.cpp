// SPDX-License-Identifier: BSD-3-Clause
// A journal in etcd, as rendezvous/etcd/etcd_journal.hpp keeps it, and the nodes that may coordinate. A holder has a
// lease, renews it, and is sure for a little less than its time. When the lease ends another node claims the job: its
// coordinator has a greater epoch, and whatever the one before writes after that is refused. What lease_core does with
// etcd's single answers is simulated in tests/rendezvous/etcd/lease_world.hpp.
#include <algorithm>

#include "tests/sim/world.hpp"

namespace ddp::sim {

using namespace rendezvous;

namespace {

constexpr seconds kLease{5};
constexpr milliseconds kSureFor{4500}, kBetweenRenewals{1667};

}  // namespace

// Returns from when on etcd answers a machine.
Time World::etcd_answers(int machine) const {
  const auto cut_off = scene_.etcd.cut_off.find(machine);
  const Time open = cut_off == scene_.etcd.cut_off.end() ? Time() : cut_off->second;
  return std::max(open, scene_.etcd.stalls_until);
}

bool World::may_tell(const Coordinator& coordinator) const {
  return !scene_.plan.has_etcd || now() < coordinator.sure_until;
}

// ---- Claims ----

void World::keeper_starts(int machine) {
  MachineState& state = scene_.machine(machine);
  if (std::exchange(state.has_keeper, true)) return;  // it starts another agent
  ++state.keepers;
  state.newest_obeyed.clear();
  queue_.at(now() + etcd_random_.between(milliseconds(1), milliseconds(20)),
            [this, machine] { try_to_claim(machine); });
}

// Claims the job if nobody holds it, or if the holder was this machine's coordinator, which was killed.
void World::try_to_claim(int machine) {
  scene_.now = now();
  const MachineState& state = scene_.machine(machine);
  const Etcd& etcd = scene_.etcd;
  if (!state.has_keeper || !state.powered) return;
  const bool is_taken = std::any_of(scene_.coordinators.begin(), scene_.coordinators.end(),
                                    [&](const Coordinator& c) { return c.machine == machine && c.alive; });
  if (is_taken) return;  // it has lost the job and does not know yet; when it ends the keeper starts another
  const Coordinator* const holder =
      etcd.holder < 0 ? nullptr : &scene_.coordinators[static_cast<std::size_t>(etcd.holder)];
  const bool inherits = holder && holder->machine == machine && !holder->alive;
  if (holder && !inherits) return;  // it tries when that lease has ended
  const Time answers = std::max(etcd_answers(machine), state.frozen_until);
  if (answers > now()) {
    return queue_.at(answers + etcd_random_.between(milliseconds(1), milliseconds(100)),
                     [this, machine] { try_to_claim(machine); });
  }
  // Another job with the same id is not simulated.
  const bool is_over = scene_.coordinator && scene_.coordinator->core.over();
  const bool is_other_job =
      state.newest_obeyed.empty() && (is_over || (invariants_.is_begun() && etcd.content.empty()));
  if (!is_other_job) claim(machine);
}

void World::claim(int machine) {
  Etcd& etcd = scene_.etcd;
  etcd.revision += etcd_random_.between(1, 5);
  etcd.epoch = etcd.revision;
  etcd.holder = static_cast<int>(scene_.coordinators.size());
  etcd.lease_until = now() + kLease;
  queue_.at(etcd.lease_until, [this, epoch = etcd.epoch] { lease_ends(epoch); });
  begin_life(machine, etcd.epoch, now());
}

// A node that has written the record was part of that job, even if its own agent never heard of it.
bool World::has_written_record(const Process& process) const {
  const auto read = decode_record(scene_.etcd.content);
  const auto* const record = std::get_if<JobRecord>(&read);
  return record && record->node == coordinators_config(process).node;
}

// The coordinator of this machine has the job. What it finds is what its claim has read.
void World::begin_life(int machine, std::int64_t epoch, Time asked) {
  const auto newest = std::find_if(scene_.processes.rbegin(), scene_.processes.rend(), [&](const Process& process) {
    return process.machine == machine && process.role == Process::Role::Wanted;
  });
  const bool is_takeover = scene_.coordinator && scene_.coordinator->machine != machine;
  const bool is_first = scene_.coordinator == nullptr;
  Coordinator& coordinator = add_coordinator(*newest);
  coordinator.epoch = epoch;
  coordinator.sure_until = asked + kSureFor;
  coordinator.awake_since = now();
  if (!scene_.etcd.content.empty()) coordinator.kept = scene_.etcd.content;
  coordinator.kept_at = scene_.etcd.kept_at;
  coordinator.is_newcomer = is_takeover && !scene_.etcd.content.empty() && invariants_.is_begun() &&
                            scene_.machine(machine).newest_obeyed.empty() && !has_written_record(*newest);
  mark(9, coordinator.index, machine);
  note(name_of(coordinator), [&] { return "it has the job, with epoch " + std::to_string(epoch); });
  if (is_takeover) coverage_.reached(Branch::TakenOver);
  if (!is_first) disturb_all(Duration(0));
  begin_with_record(coordinator);
  deliver_at(now() + kBetweenRenewals, coordinator, [this, &coordinator] { renew(coordinator); });
  tell_of_newest();
}

// ---- Agents learn where the newest coordinator is ----

void World::tell_of_newest() {
  for (Process& process : scene_.processes) {
    if (!process.alive) continue;
    // Some do not hear of it, and find out that their link is silent.
    const bool hears = is_within(process) || etcd_random_.percent(75);
    const Time answers = std::max(now(), is_within(process) ? now() : etcd_answers(process.machine));
    const Duration takes = etcd_random_.between(milliseconds(1), milliseconds(etcd_random_.percent(10) ? 2000 : 20));
    if (!hears) continue;
    deliver_at(answers + takes, process.index,
               [this, index = process.index] { hears_of_newest(scene_.process(index)); });
  }
}

void World::hears_of_newest(Process& process) {
  if (!process.alive) return;
  process.target = scene_.coordinator->index;
  if (!process.up) return;
  const Link& link = scene_.network.link(process.link);
  if (link.coordinator == process.target && (link.local || !is_within(process))) return;
  close_agents_end(process.link);
  handle(process, launcher::LinkDown{"another node coordinates now"});
  if (process.alive) connect(process);
}

// Chooses which coordinator an agent tries to reach: the newest, unless it has not heard of it.
void World::choose_target(Process& process) {
  if (!scene_.plan.has_etcd || !scene_.coordinator) return;
  const bool asks = process.target < 0 || etcd_random_.percent(90);
  if (asks && etcd_answers(process.machine) <= now()) process.target = scene_.coordinator->index;
}

// ---- The lease ----

void World::renew(Coordinator& coordinator) {
  Etcd& etcd = scene_.etcd;
  if (const Time answers = etcd_answers(coordinator.machine); answers > now()) {
    if (answers > coordinator.sure_until) coverage_.reached(Branch::Doubts);
    return deliver_at(answers + etcd_random_.between(milliseconds(1), milliseconds(1000)), coordinator,
                      [this, &coordinator] { renew(coordinator); });
  }
  const bool is_late = etcd_random_.percent(3);
  const Duration takes = etcd_random_.between(milliseconds(1), milliseconds(is_late ? 1000 : 10));
  if (etcd.holder != coordinator.index) {
    return deliver_at(now() + takes, coordinator, [this, &coordinator] {
      note(name_of(coordinator), [] { return "it has lost the job, and ends"; });
      coverage_.reached(Branch::HolderLost);
      end(coordinator);
      queue_.at(now() + milliseconds(100), [this, machine = coordinator.machine] { try_to_claim(machine); });
    });
  }
  etcd.lease_until = now() + kLease;
  queue_.at(etcd.lease_until, [this, epoch = etcd.epoch] { lease_ends(epoch); });
  deliver_at(now() + takes, coordinator, [this, &coordinator, asked = now()] {
    if (scene_.etcd.holder != coordinator.index) return;  // it has given the lease up
    if (!may_tell(coordinator)) {
      coordinator.doubted_until = now();
      coverage_.reached(Branch::SureAgain);
    }
    coordinator.sure_until = asked + kSureFor;
    carry_out_due(coordinator);
  });
  deliver_at(now() + kBetweenRenewals, coordinator, [this, &coordinator] { renew(coordinator); });
}

// A new leader of etcd gives each lease its whole time again.
void World::lease_ends(std::int64_t epoch) {
  Etcd& etcd = scene_.etcd;
  scene_.now = now();
  if (etcd.epoch != epoch || etcd.holder < 0) return;
  if (etcd.stalls_until > now()) etcd.lease_until = std::max(etcd.lease_until, etcd.stalls_until + kLease);
  if (etcd.lease_until > now()) {
    return queue_.at(etcd.lease_until, [this, epoch] { lease_ends(epoch); });
  }
  note("etcd", [] { return "the holder's lease ends"; });
  disturb_all(Duration(0));
  give_up_lease();
}

void World::give_up_lease() {
  scene_.etcd.holder = -1;
  for (std::size_t machine = 0; machine < scene_.machines.size(); ++machine) {
    queue_.at(now() + etcd_random_.between(milliseconds(1), milliseconds(50)),
              [this, which = static_cast<int>(machine)] { try_to_claim(which); });
  }
}

void World::carry_out(Coordinator& coordinator, const JobDone& action) {
  if (scene_.etcd.holder != coordinator.index) return;
  coverage_.reached(action.may_be_forgotten ? Branch::RecordRemoved : Branch::EndIsLeftToOthers);
  if (action.may_be_forgotten) scene_.etcd.content.clear();
  coordinator.sure_until = Time();
  give_up_lease();
}

void World::carry_out(Coordinator& coordinator, const StepDown&) {
  coverage_.reached(Branch::SteppedDown);
  disturb_all(Duration(0));
  end(coordinator);
  if (scene_.etcd.holder == coordinator.index) give_up_lease();
}

// The coordinator has found that all nodes of the job are gone. What begins then is another job, which is not
// simulated: its node is taken away.
void World::begins_another_job(Coordinator& coordinator) {
  note(name_of(coordinator), [] { return "it begins another job"; });
  coverage_.reached(Branch::AnotherJobBegins);
  disturb_all(Duration(0));
  for (Process& process : scene_.processes) {
    if (process.alive && process.machine == coordinator.machine) kill_agent(process);
  }
  end(coordinator);
}

// ---- Writes ----

// One write is under way at a time. It is applied only if nobody else has claimed the job, also when its writer is
// stopped or dead by then. Its answer may be lost, and is found by a second try.
void World::write_to_etcd(Coordinator& coordinator) {
  if (coordinator.is_written || coordinator.writing.empty()) return;
  coordinator.is_written = true;
  coordinator.write_began = now();
  const Record record = coordinator.writing.back();  // the newest one stands for those before it
  coordinator.writing.clear();
  const Duration takes = etcd_random_.between(Duration(0), milliseconds(etcd_random_.percent(5) ? 1500 : 3));
  queue_.at(now() + takes, [this, index = coordinator.index, record] { apply_write(index, record); });
}

void World::apply_write(int index, const Record& record) {
  scene_.now = now();
  Coordinator& coordinator = scene_.coordinators[static_cast<std::size_t>(index)];
  Etcd& etcd = scene_.etcd;
  if (const Time answers = etcd_answers(coordinator.machine); answers > now()) {
    if (!coordinator.alive && etcd_random_.percent(50)) return;  // it was never sent
    return queue_.at(answers + etcd_random_.between(milliseconds(1), milliseconds(1000)),
                     [this, index, record] { apply_write(index, record); });
  }
  if (etcd.holder != index) return coverage_.reached(Branch::WriteFencedOff);  // the writer learns it by its renewal
  if (coordinator.alive || etcd_random_.percent(50)) {
    etcd.content = record.content;
    etcd.kept_at = now();
    if (!coordinator.alive) coverage_.reached(Branch::UntoldIsKept);
  }
  const bool is_lost = etcd_random_.percent(4);
  const Duration takes = etcd_random_.between(Duration(0), milliseconds(is_lost ? 2500 : 3));
  // The coordinator says nothing meanwhile, and agents may take it for gone.
  if (now() + takes - coordinator.write_began > scene_.plan.lost_after / 4) disturb_all(takes);
  deliver_at(now() + takes, coordinator, [this, &coordinator, number = record.number] {
    coordinator.is_written = false;
    coordinator.gate.kept(number);
    carry_out_due(coordinator);
    write_to_etcd(coordinator);
  });
}

}  // namespace ddp::sim
