// SPDX-License-Identifier: BSD-3-Clause
#include "runtime/training/ddp/join_core.hpp"

#include <catch2/catch.hpp>
#include <vector>

using ddp::runtime::JoinCore;
using ddp::runtime::JoinVerdict;
using ddp::runtime::JoinWord;

namespace {

constexpr JoinWord kStep = {1, 1};
constexpr JoinWord kLocalStep = {1, 0};
constexpr JoinWord kNoInput = {0, 0};

JoinVerdict decide(JoinCore& core, const std::vector<JoinWord>& words) { return core.decide(words); }

}  // namespace

TEST_CASE("join: buffers come from the highest rank that has input", "[training][unit]") {
  JoinCore core({}, 4);
  const JoinVerdict all = decide(core, {kStep, kStep, kStep, kStep});
  CHECK(all.active == 4);
  CHECK(all.authority == 3);
  CHECK(all.synchronizes);
  const JoinVerdict two = decide(core, {kNoInput, kStep, kStep, kNoInput});
  CHECK(two.active == 2);
  CHECK(two.authority == 2);
  CHECK_FALSE(two.early);
}

TEST_CASE("join: the model at the end comes from the highest rank among the last ones with input", "[training][unit]") {
  JoinCore core({}, 3);
  decide(core, {kStep, kStep, kStep});
  decide(core, {kStep, kStep, kNoInput});
  const JoinVerdict end = decide(core, {kNoInput, kNoInput, kNoInput});
  CHECK(end.active == 0);
  CHECK(end.authority == 1);
}

TEST_CASE("join: if no rank ever had input, the last rank's model counts", "[training][unit]") {
  JoinCore core({}, 3);
  CHECK(decide(core, {kNoInput, kNoInput, kNoInput}).authority == 2);
}

TEST_CASE("join: a step under no_sync has no reductions", "[training][unit]") {
  JoinCore core({}, 2);
  CHECK_FALSE(decide(core, {kLocalStep, kNoInput}).synchronizes);
  CHECK(decide(core, {kStep, kNoInput}).synchronizes);
}

TEST_CASE("join: sums are divided by the number of ranks, or on request by the number of ranks with input",
          "[training][unit]") {
  JoinCore by_all({}, 3);
  JoinCore by_active({false, false}, 3);
  decide(by_all, {kStep, kNoInput, kStep});
  decide(by_active, {kStep, kNoInput, kStep});
  CHECK(by_all.divisor(3) == 3);
  CHECK(by_active.divisor(3) == 2);
}

TEST_CASE("join: throw_on_early_termination names the first rank without input", "[training][unit]") {
  JoinCore core({true, true}, 4);
  CHECK_FALSE(decide(core, {kStep, kStep, kStep, kStep}).early);
  CHECK(decide(core, {kStep, kNoInput, kStep, kNoInput}).early ==
        "rank 1 has no more input while 2 of 4 ranks have: all stop, as throw_on_early_termination asks");
}

TEST_CASE("join: running out of input on all ranks at once is not an early termination", "[training][unit]") {
  JoinCore core({true, true}, 2);
  CHECK_FALSE(decide(core, {kNoInput, kNoInput}).early);
}
