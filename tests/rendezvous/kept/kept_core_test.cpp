// SPDX-License-Identifier: BSD-3-Clause
// What the next processes do with kept memory: each state by name, then a job of a few ranks that is killed at every
// instant, also while it recovers.
#include "rendezvous/kept/kept_core.hpp"

#include <catch2/catch.hpp>
#include <optional>
#include <random>
#include <string>
#include <vector>

#include "tests/rendezvous/kept/kept_ranks.hpp"

using namespace ddp::testing;
using Catch::Matchers::Contains;

TEST_CASE("kept core: ranks that are done with a step go on after it, and nothing is copied", "[rendezvous][unit]") {
  const KeptPlan plan = plan_of({done_with(0, 2, 5), done_with(1, 2, 5)});
  CHECK(plan.go_on == GoOn::AfterStep);
  CHECK(plan.step == 5);
  CHECK(plan.copies == std::vector<bool>{false, false});
  CHECK(plan.reason == "every rank goes on after step 5");
}

TEST_CASE("kept core: a rank within an update takes the tensors of one that is through", "[rendezvous][unit]") {
  const KeptPlan plan = plan_of({within(0, 3, 6), updated(1, 3, 6), done_with(2, 3, 6)});
  CHECK(plan.go_on == GoOn::WithinStep);
  CHECK(plan.step == 6);
  CHECK(plan.source == 1);
  CHECK(plan.copies == std::vector<bool>{true, false, false});
  CHECK(plan.reason == "every rank does step 6 again, whose update is complete; the tensors of rank 1 go to rank 0");
}

TEST_CASE("kept core: a rank that is behind takes all of them back", "[rendezvous][unit]") {
  const KeptPlan plan = plan_of({within(0, 3, 6), done_with(1, 3, 5), done_with(2, 3, 6)});
  CHECK(plan.go_on == GoOn::AfterStep);
  CHECK(plan.step == 5);
  CHECK(plan.source == 1);
  CHECK(plan.copies == std::vector<bool>{true, false, true});
  CHECK_THAT(plan.reason, Contains("rank 1 had not begun the next update"));
}

TEST_CASE("kept core: where each rank was within the update nothing is left", "[rendezvous][unit]") {
  const KeptPlan plan = plan_of({within(0, 2, 6), within(1, 2, 6)});
  CHECK_FALSE(plan.usable());
  CHECK_THAT(plan.reason, Contains("every rank was within update 6"));
  CHECK_FALSE(plan_of({within(0, 1, 6)}).usable());  // alone, there is nobody to copy from
}

TEST_CASE("kept core: where each rank was within the update, all put their tensors together from the shadow",
          "[rendezvous][unit]") {
  std::vector<KeptFacts> workers = {with_part(within(0, 3, 6), 5), with_part(within(1, 3, 6), 5),
                                    with_part(within(2, 3, 6), 5)};
  std::swap(workers[0].shadow_part, workers[2].shadow_part);
  const KeptPlan plan = plan_of(workers);
  CHECK(plan.go_on == GoOn::AfterStep);
  CHECK(plan.step == 5);
  CHECK(plan.source == -1);
  CHECK(plan.parts == std::vector<int>{2, 1, 0});
  CHECK(plan.copies == std::vector<bool>{true, true, true});
  CHECK_THAT(plan.reason, Contains("every rank goes on after step 5") && Contains("put together from the shadow"));
  // One of them was killed in that recovery, before its last mark.
  workers[1].begun = 5;
  workers[1].updated = kNoStep;
  CHECK(plan_of(workers).parts == plan.parts);
  // One of them was through with it, so that it has whole tensors.
  workers[1].updated = 5;
  CHECK(plan_of(workers).source == 1);
  CHECK(plan_of(workers).parts.empty());
  CHECK(plan_of({with_part(within(0, 1, 6), 5)}).parts == std::vector<int>{0});  // its own copy of all
}

TEST_CASE("kept core: ranks of several nodes go on together, whatever each node's ranks would do",
          "[rendezvous][unit]") {
  // Node 0 would do step 5 again, node 1 would go on after it.
  const std::vector<KeptFacts> differ = {within(0, 4, 5), updated(1, 4, 5), done_with(2, 4, 5), done_with(3, 4, 5)};
  const KeptPlan plan = plan_recovery_of_job(differ);
  CHECK(plan.go_on == GoOn::WithinStep);
  CHECK(plan.step == 5);
  CHECK(plan.source == 1);
  CHECK(plan.copies == std::vector<bool>{true, false, false, false});
  CHECK(plan.fills.empty());
  // A node of one worker that was killed within its update has no whole tensors.
  const KeptPlan alone = plan_recovery_of_job({within(0, 2, 5), done_with(1, 2, 5)});
  CHECK(alone.go_on == GoOn::WithinStep);
  CHECK(alone.source == 1);
}

TEST_CASE("kept core: ranks of a node that replaces a lost one are filled by one that is whole", "[rendezvous][unit]") {
  const KeptFacts nothing;
  const KeptPlan plan = plan_recovery_of_job({nothing, nothing, within(2, 4, 5), updated(3, 4, 5)});
  CHECK(plan.go_on == GoOn::WithinStep);
  CHECK(plan.step == 5);
  CHECK(plan.source == 3);
  CHECK(plan.copies == std::vector<bool>{true, true, true, false});
  CHECK(plan.fills == std::vector<bool>{true, true, false, false});
  CHECK_THAT(plan.reason, Contains("rank 0, rank 1 had nothing, and gets tensors and records of rank 3"));

  CHECK_FALSE(plan_recovery_of_job({nothing, nothing}).usable());
  CHECK_FALSE(plan_recovery_of_job({nothing, within(1, 2, 5)}).usable());
  const KeptPlan moved = plan_recovery_of_job({nothing, done_with(0, 2, 5)});
  CHECK_THAT(moved.reason, Contains("the memory of rank 1 of 2 was kept by rank 0 of 2"));
  // A shadow has tensors for its own node.
  const KeptPlan shadow = plan_recovery_of_job({nothing, with_part(within(1, 2, 5), 4)});
  CHECK_FALSE(shadow.usable());
}

TEST_CASE("kept core: a shadow that is not whole is not used", "[rendezvous][unit]") {
  const auto reason = [](const KeptFacts& second) {
    const KeptPlan plan = plan_of({with_part(within(0, 2, 6), 5), second});
    CHECK_FALSE(plan.usable());
    return plan.reason;
  };
  CHECK_THAT(reason(within(1, 2, 6)), Contains("a part of the shadow is missing"));
  CHECK_THAT(reason(with_part(within(1, 2, 6), 4)), Contains("a part of the shadow is missing"));
  KeptFacts twice = with_part(within(1, 2, 6), 5);
  twice.shadow_part = 0;
  CHECK_THAT(reason(twice), Contains("a part of the shadow is missing"));
  KeptFacts recordless = with_part(within(1, 2, 6), 5);
  recordless.done_records = {kNoStep, kNoStep};
  CHECK_THAT(reason(recordless), Contains("rank 1 has no record of that step"));
  KeptFacts absurd = with_part(within(0, 1, 6), 5);
  absurd.shadow_parts = std::int64_t{1} << 60;
  CHECK_THAT(plan_of({absurd}).reason, Contains("the shadow is not complete"));
  absurd = with_part(within(0, 1, 6), 3);
  CHECK_THAT(plan_of({absurd}).reason, Contains("the shadow is of step 3"));
  CHECK_THAT(plan_of({within(0, 1, 6)}).reason, Contains("--keep-memory=shadow would have a copy"));
}

TEST_CASE("kept arena: the parts of a shadow are all of the tensors, each byte once", "[rendezvous][unit]") {
  for (const std::size_t bytes : std::vector<std::size_t>{0, 1, 63, 64, 65, 1000, 4096, 100'003}) {
    for (const std::size_t parts : std::vector<std::size_t>{1, 2, 3, 7, 64}) {
      std::size_t end = 0;
      for (std::size_t part = 0; part < parts; ++part) {
        const KeptPart one(bytes, part, parts);
        CHECK(one.begin == end);
        CHECK(one.bytes <= KeptPart::most(bytes, parts));
        end += one.bytes;
      }
      CHECK(end == bytes);
      CHECK(KeptPart(bytes, parts, parts).bytes == 0);
    }
  }
  CHECK(KeptPlaces(100'003, 256, 4).all == KeptPlaces(100'003, 256).all + 7 * kKeptPage);
}

TEST_CASE("kept core: on any doubt nothing is used, and the reason is said", "[rendezvous][unit]") {
  CHECK_THAT(plan_of({}).reason, Contains("no worker"));
  CHECK_THAT(plan_of({done_with(0, 2, 5), KeptFacts()}).reason, Contains("rank 1 has kept nothing"));
  CHECK_THAT(plan_of({done_with(0, 2, 5), done_with(1, 2, 3)}).reason, Contains("not in step"));
  CHECK_THAT(plan_of({done_with(0, 3, 5), done_with(1, 2, 5)}).reason, Contains("was kept by rank 0 of 3"));
  CHECK_THAT(plan_recovery({done_with(0, 1, 5)}, 1, 1).reason, Contains("of rank 1 of 1 was kept by rank 0"));
  KeptFacts other = done_with(1, 2, 5);
  other.layout = 8;
  CHECK_THAT(plan_of({done_with(0, 2, 5), other}).reason, Contains("rank 1 has kept other tensors"));
  KeptFacts fresh = done_with(1, 2, 0);
  fresh.done = kNoStep;
  CHECK_THAT(plan_of({done_with(0, 2, 0), fresh}).reason, Contains("not come to its first step"));
  KeptFacts recordless = updated(1, 2, 6);
  recordless.begun_records = {kNoStep, kNoStep};
  CHECK_THAT(plan_of({updated(0, 2, 6), recordless}).reason, Contains("rank 1 has no record of step 6"));
}

TEST_CASE("kept core: whenever a job is killed, each rank goes on with the right tensors and its record",
          "[rendezvous][unit]") {
  const unsigned seed = std::random_device()();
  const bool has_shadow = GENERATE(false, true);
  CAPTURE(seed, has_shadow);
  std::mt19937 random(seed);
  int lost = 0, recoveries = 0, deaths_within = 0, from_shadow = 0;
  for (int job = 0; job < 3000; ++job) {
    const int world = 2 + static_cast<int>(random() % 3);
    std::vector<Rank> ranks(static_cast<std::size_t>(world));
    for (int r = 0; r < world; ++r) {
      KeptFacts& marks = ranks[static_cast<std::size_t>(r)].marks;
      marks = done_with(r, world, 0);
      if (has_shadow) marks = with_part(marks, kNoStep);
    }
    std::int64_t all_done = 0;
    for (int life = 0; life < 8; ++life) {
      for (int stores = static_cast<int>(random() % 80); stores > 0; --stores) {
        Rank& rank = ranks[random() % ranks.size()];
        advance(rank, slowest_of(ranks));
      }
      std::int64_t done = ranks[0].step;
      for (const Rank& rank : ranks) done = std::min(done, rank.step);
      all_done = std::max(all_done, done);
      std::optional<KeptPlan> plan;
      do {  // killed, and killed again while it recovers
        plan = plan_of_ranks(ranks);
        if (!plan->usable()) break;
        from_shadow += plan->parts.empty() ? 0 : 1;
      } while (!recover(ranks, *plan, random() % 3 == 0 ? static_cast<int>(random() % 12) : 1000) && ++deaths_within);
      if (!plan->usable()) {
        CAPTURE(plan->reason);
        REQUIRE_THAT(plan->reason, Contains("every rank was within update"));
        ++lost;
        break;
      }
      ++recoveries;
      for (const Rank& rank : ranks) {
        REQUIRE(rank.tensors == plan->step);
        REQUIRE(rank.state == rank.step);
        REQUIRE(rank.step >= all_done);  // no step is lost that all were done with
      }
    }
  }
  CHECK(recoveries > 10'000);
  CHECK(deaths_within > 100);
  CHECK((lost > 0) != has_shadow);
  CHECK((from_shadow > 0) == has_shadow);
}

TEST_CASE("kept core: with a shadow, three ranks can be killed between any two stores of theirs",
          "[rendezvous][unit]") {
  std::vector<Rank> start(3);
  for (std::size_t r = 0; r < 3; ++r) start[r].marks = with_part(done_with(static_cast<int>(r), 3, 0), kNoStep);
  const auto check = [](const std::vector<Rank>& recovered, const KeptPlan& plan) {
    for (const Rank& rank : recovered) {
      REQUIRE(rank.tensors == plan.step);
      REQUIRE(rank.state == rank.step);
    }
  };
  int from_shadow = 0;
  const std::size_t states = visit_states(start, false, [&](const std::vector<Rank>& ranks) {
    from_shadow += die_anywhere(ranks, check).parts.empty() ? 0 : 1;
  });
  CHECK(states > 1000);
  CHECK(from_shadow == 3);  // all within the update: one instant of each step
}
