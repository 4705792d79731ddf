// SPDX-License-Identifier: BSD-3-Clause
#include "launcher/output/trace/clock_offset.hpp"

#include <catch2/catch.hpp>

using ddp::launcher::ClockOffset;

TEST_CASE("clock offset: there is none before the first round trip", "[launcher][unit]") {
  CHECK_FALSE(ClockOffset().best());
}

TEST_CASE("clock offset: it is the coordinator's clock at the middle of the shortest round trip", "[launcher][unit]") {
  ClockOffset offset;
  offset.add(1000, 5100, 1400);  // 400 ns under way
  CHECK(offset.best() == ClockOffset::Estimate{3900, 200});
  offset.add(2000, 6040, 2100);
  CHECK(offset.best() == ClockOffset::Estimate{3990, 50});
  offset.add(3000, 9000, 3900);  // a slow one says less
  CHECK(offset.best() == ClockOffset::Estimate{3990, 50});
}

TEST_CASE("clock offset: old round trips are forgotten, since clocks drift", "[launcher][unit]") {
  ClockOffset offset;
  offset.add(1000, 5050, 1100);
  for (int i = 0; i < 60; ++i) offset.add(10'000, 20'000, 10'200);
  CHECK(offset.best() == ClockOffset::Estimate{9900, 100});
}

TEST_CASE("clock offset: a round trip that cannot be counts for nothing", "[launcher][unit]") {
  ClockOffset offset;
  offset.add(0, 5000, 100);     // an answer to a heartbeat that did not ask
  offset.add(1000, 0, 1100);    // it does not say its clock
  offset.add(1000, 5000, 900);  // back before it was sent
  CHECK_FALSE(offset.best());
}
