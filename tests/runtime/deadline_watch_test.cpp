// SPDX-License-Identifier: BSD-3-Clause
#include "runtime/src/deadline_watch.hpp"

#include <atomic>
#include <catch2/catch.hpp>
#include <chrono>
#include <future>
#include <vector>

using ddp::runtime::DeadlineWatch;
using namespace std::chrono_literals;

namespace {

constexpr auto kPatience = 60s;  // only a hang takes that long

DeadlineWatch::Time in(std::chrono::milliseconds time) { return std::chrono::steady_clock::now() + time; }

}  // namespace

TEST_CASE("deadline watch: of those that passed each is told once, in their order", "[runtime][unit]") {
  std::vector<int> told;
  std::promise<void> all;
  {
    DeadlineWatch watch;
    watch.add(in(20ms), [&] {
      told.push_back(2);
      all.set_value();
    });
    watch.add(in(10ms), [&] { told.push_back(1); });
    REQUIRE(all.get_future().wait_for(kPatience) == std::future_status::ready);
  }
  CHECK(told == std::vector{1, 2});
}

TEST_CASE("deadline watch: what comes while it sleeps for something later is told in time", "[runtime][unit]") {
  DeadlineWatch watch;
  for (const auto sleep : {std::chrono::milliseconds(1h), std::chrono::milliseconds(30min)}) {
    watch.add(in(sleep), [] {});
    std::promise<void> passed;
    watch.add(in(1ms), [&] { passed.set_value(); });
    REQUIRE(passed.get_future().wait_for(kPatience) == std::future_status::ready);
  }
}

TEST_CASE("deadline watch: what was forgotten is not told, and delays nothing after it", "[runtime][unit]") {
  std::atomic<int> told{0};
  DeadlineWatch watch;
  for (int i = 0; i < 100; ++i) watch.forget(watch.add(in(5ms), [&] { ++told; }));
  std::promise<void> passed;
  watch.add(in(10ms), [&] { passed.set_value(); });
  REQUIRE(passed.get_future().wait_for(kPatience) == std::future_status::ready);
  CHECK(told == 0);
}

TEST_CASE("deadline watch: goes on after nothing was left to watch", "[runtime][unit]") {
  DeadlineWatch watch;
  for (int i = 0; i < 50; ++i) {
    std::promise<void> passed;
    watch.add(in(2ms), [&] { passed.set_value(); });
    REQUIRE(passed.get_future().wait_for(kPatience) == std::future_status::ready);
  }
}
