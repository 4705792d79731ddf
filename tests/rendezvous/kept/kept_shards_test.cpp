// SPDX-License-Identifier: BSD-3-Clause
// What the next processes do with kept memory where ranks have tensors that no other rank has: each state by name, all
// states of three ranks, then jobs that are killed at every instant, also while they recover.
#include <catch2/catch.hpp>
#include <optional>
#include <random>
#include <string>
#include <vector>

#include "tests/rendezvous/kept/kept_ranks.hpp"

using namespace ddp::testing;
using Catch::Matchers::Contains;

TEST_CASE("kept core: ranks with tensors of their own that are whole go on as others do", "[rendezvous][unit]") {
  const KeptPlan done = plan_of({with_own(done_with(0, 2, 5)), with_own(done_with(1, 2, 5))});
  CHECK(done.go_on == GoOn::AfterStep);
  CHECK(done.step == 5);
  CHECK(done.copies == std::vector<bool>{false, false});
  CHECK_FALSE(done.restores_own);
  const KeptPlan again = plan_of({with_own(updated(0, 2, 6)), with_own(done_with(1, 2, 6))});
  CHECK(again.go_on == GoOn::WithinStep);
  CHECK(again.step == 6);
  CHECK(again.copies == std::vector<bool>{false, false});
}

TEST_CASE("kept core: a torn rank with tensors of its own has all go back by their shadows", "[rendezvous][unit]") {
  const KeptPlan plan =
      plan_of({with_own(within(0, 3, 6), 5), with_own(updated(1, 3, 6), 5), with_own(done_with(2, 3, 6), 5)});
  CHECK(plan.go_on == GoOn::AfterStep);
  CHECK(plan.step == 5);
  CHECK(plan.source == -1);
  CHECK(plan.restores_own);
  CHECK(plan.copies == std::vector<bool>{true, true, true});
  CHECK(plan.parts == std::vector<int>{0, 1, 2});
  CHECK(plan.reason ==
        "every rank goes on after step 5; tensors that no other rank has are taken from the shadow by rank 0, rank 1, "
        "rank 2");
}

TEST_CASE("kept core: a rank that is behind keeps its own tensors, and the others take theirs from their shadows",
          "[rendezvous][unit]") {
  const KeptPlan plan =
      plan_of({with_own(within(0, 3, 6), 5), with_own(done_with(1, 3, 5), 4), with_own(done_with(2, 3, 6), 5)});
  CHECK(plan.step == 5);
  CHECK(plan.source == 1);
  CHECK(plan.parts.empty());
  CHECK(plan.restores_own);
  CHECK(plan.copies == std::vector<bool>{true, false, true});
  // Where nothing is equal on all ranks, no source is needed.
  std::vector<KeptFacts> shards = {with_own(within(0, 2, 6), 5), with_own(within(1, 2, 6), 5)};
  for (KeptFacts& one : shards) one.tensor_bytes = 0;
  CHECK(plan_of(shards).usable());
  CHECK(plan_of(shards).parts.empty());
}

TEST_CASE("kept core: without a shadow, torn tensors of a rank's own send all to the checkpoint",
          "[rendezvous][unit]") {
  const std::string torn =
      "rank 1 was within update 6, and no other rank has its own tensors (--keep-memory=shadow would have a copy)";
  CHECK(plan_of({with_own(updated(0, 2, 6)), with_own(within(1, 2, 6))}).reason == torn);
  CHECK(plan_of({with_own(done_with(0, 2, 5)), with_own(within(1, 2, 6))}).reason == torn);
  CHECK(plan_of({with_own(done_with(0, 2, 5)), with_own(done_with(1, 2, 6))}).reason ==
        "rank 0 was not through with update 6, and rank 1, which was, has no copy of its own tensors from before it "
        "(--keep-memory=shadow would have a copy)");
  CHECK(plan_of({with_own(within(0, 2, 6), 5), with_own(within(1, 2, 6), 4)}).reason ==
        "rank 1 was within update 6, and no other rank has its own tensors, and its shadow is of another step");
}

TEST_CASE("kept core: tensors of a lost node's own are nowhere, and nothing is used", "[rendezvous][unit]") {
  const KeptFacts nothing;
  const KeptPlan plan = plan_recovery_of_job({nothing, with_own(done_with(1, 2, 5), 4)});
  CHECK_FALSE(plan.usable());
  CHECK(plan.reason == "rank 0 has kept nothing, and no other rank has its own tensors");
  CHECK_THAT(plan_of({with_own(done_with(0, 2, 5)), done_with(1, 2, 5)}).reason,
             Contains("one has kept tensors that no other rank has"));
}

TEST_CASE("kept core: a worker finishes its update before it is stopped where another can use its tensors",
          "[rendezvous][unit]") {
  CHECK(is_update_worth_finishing(within(0, 2, 6)));
  CHECK(is_update_worth_finishing(with_part(within(0, 2, 6), 5)));
  CHECK(is_update_worth_finishing(with_own(within(0, 2, 6))));
  CHECK_FALSE(is_update_worth_finishing(with_own(within(0, 2, 6), 5)));
  CHECK_FALSE(is_update_worth_finishing(updated(0, 2, 6)));
}

namespace {

// Returns each state in which a rank can be that is done with step 4, within step 5, or done with it.
std::vector<KeptFacts> states_of(int rank) {
  KeptFacts saving = with_own(done_with(rank, 3, 4), kNoStep);  // its shadow, before update 5
  return {with_own(done_with(rank, 3, 4), 3), saving,
          with_own(done_with(rank, 3, 4), 4), with_own(within(rank, 3, 5), 4),
          with_own(updated(rank, 3, 5), 4),   with_own(done_with(rank, 3, 5), 4)};
}

}  // namespace

TEST_CASE("kept core: whatever the marks of three ranks with tensors of their own, each goes on with its own",
          "[rendezvous][unit]") {
  for (const KeptFacts& zero : states_of(0)) {
    for (const KeptFacts& one : states_of(1)) {
      for (const KeptFacts& two : states_of(2)) {
        const std::vector<KeptFacts> workers = {zero, one, two};
        const KeptPlan plan = plan_of(workers);
        CAPTURE(plan.reason);
        REQUIRE(plan.usable());
        bool all_whole = true;
        for (const KeptFacts& worker : workers) all_whole = all_whole && worker.is_whole() && worker.begun == 5;
        REQUIRE(plan.step == (all_whole ? 5 : 4));
        for (std::size_t i = 0; i < 3; ++i) {
          const bool is_whole = workers[i].is_whole() && workers[i].begun == plan.step;
          REQUIRE(plan.copies[i] == !is_whole);
          if (!is_whole) REQUIRE(workers[i].shadow == plan.step);
          if (plan.source == static_cast<int>(i)) REQUIRE(is_whole);
        }
      }
    }
  }
}

namespace {

std::vector<Rank> sharded_job(int world, bool has_shadow) {
  std::vector<Rank> ranks(static_cast<std::size_t>(world));
  for (int r = 0; r < world; ++r) {
    const KeptFacts start = done_with(r, world, 0);
    ranks[static_cast<std::size_t>(r)].marks = has_shadow ? with_own(start, kNoStep) : with_own(start);
  }
  return ranks;
}

void check_recovered(const std::vector<Rank>& ranks, const KeptPlan& plan) {
  for (const Rank& rank : ranks) {
    REQUIRE(rank.own == plan.step);
    REQUIRE(rank.tensors == plan.step);
    REQUIRE(rank.state == rank.step);
  }
}

}  // namespace

TEST_CASE("kept core: three ranks with shadows of tensors of their own can be killed between any two stores",
          "[rendezvous][unit]") {
  const bool has_collectives = GENERATE(false, true);  // within the update
  CAPTURE(has_collectives);
  int from_shadow = 0;
  const std::size_t states = visit_states(sharded_job(3, true), has_collectives, [&](const std::vector<Rank>& ranks) {
    from_shadow += die_anywhere(ranks, check_recovered).restores_own ? 1 : 0;
  });
  CHECK(states > 1000);
  CHECK(from_shadow > 100);
}

TEST_CASE("kept core: a job whose ranks have tensors of their own loses none with a shadow, and is never wrong without",
          "[rendezvous][unit]") {
  const unsigned seed = std::random_device()();
  const bool has_shadow = GENERATE(false, true), has_collectives = GENERATE(false, true);
  CAPTURE(seed, has_shadow, has_collectives);
  std::mt19937 random(seed);
  int lost = 0, recoveries = 0, deaths_within = 0;
  for (int job = 0; job < 1000; ++job) {
    std::vector<Rank> ranks = sharded_job(2 + static_cast<int>(random() % 3), has_shadow);
    for (int life = 0; life < 8; ++life) {
      for (int stores = static_cast<int>(random() % 80); stores > 0; --stores) {
        advance(ranks[random() % ranks.size()], slowest_of(ranks, has_collectives));
      }
      std::optional<KeptPlan> plan;
      do {  // killed, and killed again while it recovers
        plan = plan_of_ranks(ranks);
      } while (plan->usable() && !recover(ranks, *plan, random() % 3 == 0 ? static_cast<int>(random() % 12) : 1000) &&
               ++deaths_within);
      if (!plan->usable()) {
        CAPTURE(plan->reason);
        REQUIRE_THAT(plan->reason, Contains("--keep-memory=shadow would have a copy"));
        ++lost;
        break;
      }
      ++recoveries;
      check_recovered(ranks, *plan);
    }
  }
  CHECK(recoveries > 200);
  CHECK((lost > 0) != has_shadow);
  CHECK((deaths_within > 0) == has_shadow);
}
