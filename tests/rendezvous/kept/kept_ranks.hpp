// SPDX-License-Identifier: BSD-3-Clause
// Workers with kept memory as tests need them: what their marks say, and a model of one that trains.
#pragma once

#include <algorithm>
#include <catch2/catch.hpp>
#include <cstdint>
#include <set>
#include <utility>
#include <vector>

#include "rendezvous/kept/kept_core.hpp"

namespace ddp::testing {

using namespace ddp::rendezvous;

// A worker that has done all of steps 0 to s.
inline KeptFacts done_with(int rank, int world, std::int64_t s) {
  KeptFacts facts;
  facts.is_there = true;
  facts.layout = 7;
  facts.tensor_bytes = 100;
  facts.rank = rank;
  facts.world_size = world;
  facts.begun = facts.updated = facts.done = s;
  for (const std::int64_t step : {s - 1, s}) {
    facts.done_records[KeptPlaces::slot(step)] = facts.begun_records[KeptPlaces::slot(step)] = step;
  }
  return facts;
}

// A worker within update s.
inline KeptFacts within(int rank, int world, std::int64_t s) {
  KeptFacts facts = done_with(rank, world, s - 1);
  facts.begun = facts.begun_records[KeptPlaces::slot(s)] = s;
  return facts;
}

// A worker that has made update s and is not done with the step.
inline KeptFacts updated(int rank, int world, std::int64_t s) {
  KeptFacts facts = within(rank, world, s);
  facts.updated = s;
  return facts;
}

// The worker with a part of the shadow, one for each rank, after a step.
inline KeptFacts with_part(KeptFacts facts, std::int64_t step) {
  facts.shadow_part = facts.rank;
  facts.shadow_parts = facts.world_size;
  facts.shadow = step;
  return facts;
}

// The worker in a job whose ranks have tensors of their own.
inline KeptFacts with_own(KeptFacts facts) {
  facts.is_sharded = true;
  facts.own_bytes = 50;
  return facts;
}

// The worker in such a job with its part of the shadow, and one of its own tensors, after a step.
inline KeptFacts with_own(const KeptFacts& facts, std::int64_t shadow) { return with_own(with_part(facts, shadow)); }

inline KeptPlan plan_of(const std::vector<KeptFacts>& workers) {
  return plan_recovery(workers, 0, static_cast<int>(workers.size()));
}

inline constexpr std::int64_t kTorn = -100;

// A rank of a training that is nothing but its marks: its tensors, and those of its own, are the number of updates in
// them, its record and its state are the number of forward passes that it has made.
struct Rank {
  KeptFacts marks;
  std::int64_t tensors = 0, own = 0;
  std::int64_t begun_record[2] = {}, done_record[2] = {};
  std::int64_t shadow = kTorn, own_shadow = kTorn;  // its part, as the number of updates in it
  // What dies with the process:
  std::int64_t state = 0, step = 0;
  bool is_in_tensors = false;  // the update of the step that is under way
  int at = 0;                  // the next store
};

// How far all ranks are.
struct Progress {
  std::int64_t contribution = 0;  // the step to which all have contributed their gradients
  std::int64_t begun = 0;         // the update that all have begun, for one with collectives; else more than any
};

// Does the rank's next store. Returns false where it has to wait for the others.
inline bool advance(Rank& rank, const Progress& slowest) {
  const std::int64_t s = rank.step + 1;
  const std::size_t slot = KeptPlaces::slot(s);
  switch (rank.at) {
    case 0:
      ++rank.state;  // the forward pass
      break;
    case 1:
      if (slowest.contribution < s) return false;  // the all_reduce
      if (rank.is_in_tensors) {
        rank.state = rank.begun_record[slot];
        rank.at = 7;
        return true;
      }
      rank.marks.begun_records[slot] = kNoStep;
      rank.begun_record[slot] = kTorn;
      break;
    case 2:
      rank.begun_record[slot] = rank.state;
      rank.marks.begun_records[slot] = s;
      break;
    case 3:
      rank.marks.shadow = kNoStep;
      rank.shadow = rank.own_shadow = kTorn;
      break;
    case 4:
      rank.shadow = rank.tensors;
      rank.own_shadow = rank.own;
      rank.marks.shadow = s - 1;
      break;
    case 5:
      rank.marks.begun = s;
      rank.tensors = rank.own = kTorn;
      break;
    case 6:
      if (slowest.begun < s) return false;
      rank.tensors = rank.own = s;
      rank.marks.updated = s;
      break;
    case 7:
      rank.marks.done_records[slot] = kNoStep;
      rank.done_record[slot] = kTorn;
      break;
    case 8:
      rank.done_record[slot] = rank.state;
      rank.marks.done_records[slot] = s;
      break;
    default:
      rank.marks.done = s;
      rank.step = s;
      rank.is_in_tensors = false;
      rank.at = 0;
      return true;
  }
  ++rank.at;
  return true;
}

inline KeptPlan plan_of_ranks(const std::vector<Rank>& ranks) {
  std::vector<KeptFacts> marks;
  for (const Rank& rank : ranks) marks.push_back(rank.marks);
  return plan_of(marks);
}

// has_collectives: within the update, which then no rank gets through before all have begun it.
inline Progress slowest_of(const std::vector<Rank>& ranks, bool has_collectives = false) {
  Progress slowest = {ranks[0].step + 1, ranks[0].step + 2};
  for (const Rank& rank : ranks) {
    slowest.contribution = std::min(slowest.contribution, rank.step + (rank.at > 0 ? 1 : 0));
    if (has_collectives) slowest.begun = std::min(slowest.begun, rank.marks.begun);
  }
  return slowest;
}

// Returns what a rank gets that does as the plan says: the source's tensors, or those of all parts.
inline std::int64_t copy_for(const std::vector<Rank>& ranks, const KeptPlan& plan) {
  if (plan.parts.empty()) return ranks[static_cast<std::size_t>(plan.source)].tensors;
  for (const int part : plan.parts) {
    if (ranks[static_cast<std::size_t>(part)].shadow != plan.step) return kTorn;
  }
  return plan.parts.size() == ranks.size() ? plan.step : kTorn;
}

// Does what a new process does. With `dies_after` stores it is killed then, and false is returned.
inline bool recover(std::vector<Rank>& ranks, const KeptPlan& plan, int dies_after) {
  for (std::size_t i = 0; i < ranks.size(); ++i) {
    Rank& rank = ranks[i];
    if (plan.copies[i]) {
      const auto store = [&](auto change) { return dies_after-- > 0 && (change(), true); };
      if (!store([&] { rank.marks.updated = kNoStep; })) return false;
      if (plan.restores_own && !store([&] { rank.own = kTorn; })) return false;
      if (plan.restores_own && !store([&] { rank.own = rank.own_shadow; })) return false;
      if (!store([&] { rank.tensors = kTorn; })) return false;
      if (!store([&] { rank.tensors = copy_for(ranks, plan); })) return false;
      if (plan.go_on == GoOn::AfterStep && !store([&] { rank.marks.done = plan.step; })) return false;
      if (!store([&] { rank.marks.begun = plan.step; })) return false;
      if (!store([&] { rank.marks.updated = plan.step; })) return false;
    }
    rank.is_in_tensors = plan.go_on == GoOn::WithinStep;
    rank.step = plan.step - (rank.is_in_tensors ? 1 : 0);
    rank.state = rank.done_record[KeptPlaces::slot(rank.step)];
    rank.at = 0;
  }
  return true;
}

// Kills all, and again after each store of the recovery. `check` takes the ranks that have recovered, and the plan that
// they followed. Returns the plan of the first death.
template <typename Check>
KeptPlan die_anywhere(const std::vector<Rank>& ranks, const Check& check) {
  const KeptPlan first = plan_of_ranks(ranks);
  CAPTURE(first.reason);
  REQUIRE(first.usable());
  for (int dies_after = 0;; ++dies_after) {
    std::vector<Rank> recovered = ranks;
    const bool is_through = recover(recovered, first, dies_after);
    KeptPlan plan = first;
    if (!is_through) {
      plan = plan_of_ranks(recovered);
      CAPTURE(dies_after, plan.reason);
      REQUIRE(plan.usable());
      REQUIRE(plan.step == first.step);
      REQUIRE(recover(recovered, plan, 1000));
    }
    check(recovered, plan);
    for (std::size_t i = 0; i < ranks.size(); ++i) REQUIRE(recovered[i].step >= ranks[i].step - 1);
    if (is_through) return first;
  }
}

// Visits each state that these ranks can come to within three steps, once. Returns how many there are.
template <typename Visit>
std::size_t visit_states(const std::vector<Rank>& start, bool has_collectives, const Visit& visit) {
  std::set<std::vector<std::int64_t>> seen;  // step and next store of each
  std::vector<std::vector<Rank>> open = {start};
  while (!open.empty()) {
    const std::vector<Rank> ranks = std::move(open.back());
    open.pop_back();
    std::vector<std::int64_t> at;
    for (const Rank& rank : ranks) at.insert(at.end(), {rank.step, rank.at});
    if (!seen.insert(at).second) continue;
    CAPTURE(at);
    visit(ranks);
    for (std::size_t r = 0; r < ranks.size(); ++r) {
      if (ranks[r].step == 3) continue;
      std::vector<Rank> next = ranks;
      if (advance(next[r], slowest_of(ranks, has_collectives))) open.push_back(std::move(next));
    }
  }
  return seen.size();
}

}  // namespace ddp::testing
