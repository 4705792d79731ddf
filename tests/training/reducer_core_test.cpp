// SPDX-License-Identifier: BSD-3-Clause
#include "runtime/training/reducer_core.hpp"

#include <catch2/catch.hpp>

#include "rendezvous/error.hpp"

using Catch::Matchers::Message;
using ddp::rendezvous::Error;
using ddp::runtime::ReducerCore;
using Launch = std::vector<std::size_t>;

namespace {

// Parameters 0..4 in the buckets {4, 3}, {2}, {1, 0}.
ReducerCore core() { return {{"a", "b", "c", "", "e"}, {{4, 3}, {2}, {1, 0}}}; }

Launch mark(ReducerCore& core, std::initializer_list<std::size_t> parameters) {
  Launch launch;
  for (const std::size_t i : parameters) core.mark_ready(i, launch);
  return launch;
}

}  // namespace

TEST_CASE("reducer: a bucket goes when its last gradient is there", "[runtime][unit]") {
  ReducerCore c = core();
  CHECK(mark(c, {4}).empty());
  CHECK(mark(c, {3}) == Launch{0});
  CHECK(mark(c, {2}) == Launch{1});
  CHECK(mark(c, {1, 0}) == Launch{2});
  CHECK(c.synchronize());
}

TEST_CASE("reducer: buckets go strictly in order, a complete one waits for those before it", "[runtime][unit]") {
  ReducerCore c = core();
  CHECK(mark(c, {0, 1, 2}).empty());
  CHECK(mark(c, {3}).empty());
  CHECK(mark(c, {4}) == Launch{0, 1, 2});
}

TEST_CASE("reducer: every step begins afresh", "[runtime][unit]") {
  ReducerCore c = core();
  for (int step = 0; step < 3; ++step) {
    CHECK(mark(c, {4, 3, 2, 1, 0}) == Launch{0, 1, 2});
    CHECK(c.in_step());
    CHECK(c.synchronize());
    CHECK_FALSE(c.in_step());
  }
}

TEST_CASE("reducer: under no_sync marks and synchronize do nothing", "[runtime][unit]") {
  ReducerCore c = core();
  c.set_no_sync(true);
  Launch launch;
  CHECK_FALSE(c.mark_ready(4, launch));
  CHECK_FALSE(c.mark_ready(4, launch));
  CHECK_FALSE(c.synchronize());
  c.set_no_sync(false);
  CHECK(mark(c, {4, 3, 2, 1, 0}) == Launch{0, 1, 2});
}

TEST_CASE("reducer: no_sync cannot change in the middle of a step", "[runtime][unit]") {
  ReducerCore c = core();
  mark(c, {4});
  c.set_no_sync(false);  // no change
  CHECK_THROWS_MATCHES(
      c.set_no_sync(true), Error,
      Message("DistributedDataParallel: no_sync changed in the middle of a step: 1 of 5 parameters are "
              "marked ready; call synchronize() first"));
}

TEST_CASE("reducer: a parameter marked twice is named, and that is final", "[runtime][unit]") {
  ReducerCore c = core();
  mark(c, {4});
  const auto text = Message(
      "DistributedDataParallel: parameter 4 (e) was marked ready twice in one step: mark it once, after the last use "
      "that adds to its gradient, and call synchronize() before the next backward (or accumulate under no_sync())");
  CHECK_THROWS_MATCHES(mark(c, {4}), Error, text);
  CHECK_THROWS_MATCHES(mark(c, {3}), Error, text);
  CHECK_THROWS_MATCHES(c.synchronize(), Error, text);
}

TEST_CASE("reducer: parameters never marked are named", "[runtime][unit]") {
  ReducerCore c = core();
  mark(c, {4, 2, 1, 0});
  CHECK_THROWS_MATCHES(
      c.synchronize(), Error,
      Message(
          "DistributedDataParallel: parameter 3 was never marked ready in this step: every parameter must be marked "
          "in every step, one that was not used with a gradient of zero"));
}

TEST_CASE("reducer: of many parameters never marked the first five are named", "[runtime][unit]") {
  ReducerCore c(std::vector<std::string>(8, ""), {{7, 6, 5, 4, 3, 2, 1, 0}});
  mark(c, {1});
  CHECK_THROWS_WITH(c.synchronize(),
                    Catch::Contains("parameter 0, parameter 2, parameter 3, parameter 4, parameter 5 and "
                                    "2 more were never marked"));
}

TEST_CASE("reducer: a parameter that does not exist is an error", "[runtime][unit]") {
  ReducerCore c = core();
  CHECK_THROWS_MATCHES(mark(c, {5}), Error,
                       Message("DistributedDataParallel: there is no parameter 5: the model has 5"));
}

TEST_CASE("reducer: a model without parameters has nothing to wait for", "[runtime][unit]") {
  ReducerCore c({}, {});
  CHECK(c.synchronize());
}
