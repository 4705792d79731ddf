// SPDX-License-Identifier: BSD-3-Clause
#include "runtime/training/ddp/reducer_core.hpp"

#include <catch2/catch.hpp>

using Catch::Contains;
using Catch::Matchers::Message;
using ddp::rendezvous::Error;
using ddp::rendezvous::ErrorCode;
using ddp::runtime::ReducerActions;
using ddp::runtime::ReducerCore;
using ddp::runtime::StepShape;
using Numbers = std::vector<std::size_t>;

namespace {

// Parameters 0..4 in the buckets {4, 3}, {2}, {1, 0}.
ReducerCore core(StepShape shape = StepShape::All) {
  return {{"parameter 0 (a)", "parameter 1 (b)", "parameter 2 (c)", "parameter 3", "parameter 4 (e)"},
          {{4, 3}, {2}, {1, 0}},
          shape};
}

ReducerActions mark(ReducerCore& core, std::initializer_list<std::size_t> parameters) {
  ReducerActions actions;
  for (const std::size_t i : parameters) core.mark_ready(i, actions);
  return actions;
}

ReducerActions synchronize(ReducerCore& core) {
  ReducerActions actions;
  const bool synchronizes = core.synchronize(actions);
  CHECK(synchronizes);
  return actions;
}

// Takes a whole step as the driver does. `anywhere` is what all ranks together used.
void step(ReducerCore& core, std::initializer_list<std::size_t> parameters,
          const std::vector<std::uint8_t>& anywhere = {1, 1, 1, 1, 1}) {
  mark(core, parameters);
  synchronize(core);
  if (core.asks_who_used()) core.set_used_anywhere(anywhere);
  core.end_step();
}

}  // namespace

TEST_CASE("reducer: a bucket is launched when its last gradient is ready", "[training][unit]") {
  ReducerCore c = core();
  CHECK(mark(c, {4}).launch.empty());
  CHECK(mark(c, {3}).launch == Numbers{0});
  CHECK(mark(c, {2}).launch == Numbers{1});
  const ReducerActions last = mark(c, {1, 0});
  CHECK(last.fill == Numbers{1, 0});
  CHECK(last.launch == Numbers{2});
  const ReducerActions end = synchronize(c);
  CHECK((end.fill.empty() && end.launch.empty()));
}

TEST_CASE("reducer: buckets are launched strictly in order, a complete one waits for those before it",
          "[training][unit]") {
  ReducerCore c = core();
  CHECK(mark(c, {0, 1, 2}).launch.empty());
  CHECK(mark(c, {3}).launch.empty());
  CHECK(mark(c, {4}).launch == Numbers{0, 1, 2});
}

TEST_CASE("reducer: every step starts from a clean state", "[training][unit]") {
  ReducerCore c = core();
  for (int n = 0; n < 3; ++n) {
    CHECK(mark(c, {4, 3, 2, 1, 0}).launch == Numbers{0, 1, 2});
    CHECK(c.in_step());
    synchronize(c);
    c.end_step();
    CHECK_FALSE(c.in_step());
  }
}

TEST_CASE("reducer: under no_sync marks and synchronize do nothing", "[training][unit]") {
  ReducerCore c = core();
  c.set_no_sync(true);
  CHECK(mark(c, {4, 4}).fill.empty());
  ReducerActions actions;
  CHECK_FALSE(c.synchronize(actions));
  c.set_no_sync(false);
  CHECK(mark(c, {4, 3, 2, 1, 0}).launch == Numbers{0, 1, 2});
}

TEST_CASE("reducer: no_sync cannot change in the middle of a step", "[training][unit]") {
  ReducerCore c = core();
  mark(c, {4});
  c.set_no_sync(false);  // no change
  CHECK_THROWS_MATCHES(
      c.set_no_sync(true), Error,
      Message("DistributedDataParallel: no_sync changed in the middle of a step: 1 of 5 parameters are "
              "marked ready; call synchronize() first"));
}

TEST_CASE("reducer: a parameter marked twice is named, and that is final", "[training][unit]") {
  ReducerCore c = core();
  mark(c, {4});
  const auto text = Message(
      "DistributedDataParallel: parameter 4 (e) was marked ready twice in one step: mark it once, after the last use "
      "that adds to its gradient, and call synchronize() before the next backward (or accumulate under no_sync())");
  CHECK_THROWS_MATCHES(mark(c, {4}), Error, text);
  CHECK_THROWS_MATCHES(mark(c, {3}), Error, text);
  CHECK_THROWS_MATCHES(synchronize(c), Error, text);
  CHECK_THROWS_MATCHES(c.before_forward(), Error, text);
}

TEST_CASE("reducer: parameters never marked are named", "[training][unit]") {
  ReducerCore c = core();
  mark(c, {4, 2, 1, 0});
  CHECK_THROWS_MATCHES(
      synchronize(c), Error,
      Message(
          "DistributedDataParallel: parameter 3 was never marked ready in this step: every parameter must be marked "
          "in every step, one that was not used with a gradient of zero, or set find_unused_parameters"));
}

TEST_CASE("reducer: of many parameters never marked the first five are named", "[training][unit]") {
  std::vector<std::string> names;
  for (int i = 0; i < 8; ++i) names.push_back("p" + std::to_string(i));
  ReducerCore c(names, {{7, 6, 5, 4, 3, 2, 1, 0}});
  mark(c, {1});
  CHECK_THROWS_WITH(synchronize(c), Contains("p0, p2, p3, p4, p5 and 2 more were never marked"));
}

TEST_CASE("reducer: a parameter that does not exist is an error", "[training][unit]") {
  ReducerCore c = core();
  CHECK_THROWS_MATCHES(mark(c, {5}), Error,
                       Message("DistributedDataParallel: there is no parameter 5: the model has 5"));
}

TEST_CASE("reducer: a model without parameters has nothing to wait for", "[training][unit]") {
  ReducerCore c({}, {});
  CHECK(synchronize(c).launch.empty());
}

TEST_CASE("reducer: an error from elsewhere is final too, with its own message", "[training][unit]") {
  ReducerCore c = core();
  c.give_up(Error(ErrorCode::PeerLost, "world: all_reduce #5: rank 1 is gone"));
  c.give_up(Error(ErrorCode::Aborted, "a later one"));
  CHECK_THROWS_MATCHES(mark(c, {0}), Error, Message("world: all_reduce #5: rank 1 is gone"));
}

// ---- unused parameters ----

TEST_CASE("reducer: with find_unused, unmarked gradients are sent as they are when the step ends", "[training][unit]") {
  ReducerCore c = core(StepShape::Any);
  CHECK(mark(c, {4, 2, 0}).launch.empty());
  const ReducerActions end = synchronize(c);
  CHECK(end.fill == Numbers{3, 1});
  CHECK(end.launch == Numbers{0, 1, 2});
  CHECK(c.used_here() == std::vector<std::uint8_t>{1, 0, 1, 0, 1});
}

TEST_CASE("reducer: marking a parameter unused lets its bucket be launched at once", "[training][unit]") {
  ReducerCore c = core(StepShape::Any);
  mark(c, {4});
  ReducerActions actions;
  c.mark_unused(3, actions);
  c.mark_unused(3, actions);  // repeats it, without effect
  CHECK(actions.fill == Numbers{3});
  CHECK(actions.launch == Numbers{0});
}

TEST_CASE("reducer: used and unused in the same step is an error that names the parameter", "[training][unit]") {
  ReducerCore c = core(StepShape::Any);
  ReducerActions actions;
  SECTION("unused first") {
    c.mark_unused(2, actions);
    CHECK_THROWS_MATCHES(mark(c, {2}), Error,
                         Message("DistributedDataParallel: parameter 2 (c) was marked ready, but it was marked "
                                 "unused in the same step"));
  }
  SECTION("used first") {
    mark(c, {2});
    CHECK_THROWS_MATCHES(c.mark_unused(2, actions), Error,
                         Message("DistributedDataParallel: parameter 2 (c) was marked unused, but it was marked "
                                 "ready in the same step"));
  }
}

TEST_CASE("reducer: without find_unused no parameter can be marked unused", "[training][unit]") {
  ReducerCore c = core();
  ReducerActions actions;
  CHECK_THROWS_WITH(c.mark_unused(2, actions), Contains("parameter 2 (c) was marked unused, but "
                                                        "find_unused_parameters is off"));
}

TEST_CASE("reducer: use under no_sync counts in the step that follows, but not in the next one", "[training][unit]") {
  ReducerCore c = core(StepShape::Any);
  c.set_no_sync(true);
  mark(c, {1});
  c.set_no_sync(false);
  mark(c, {4, 3, 2});
  const ReducerActions end = synchronize(c);
  CHECK(end.fill == Numbers{1, 0});
  CHECK(c.used_here() == std::vector<std::uint8_t>{0, 1, 1, 1, 1});
  c.end_step();
  CHECK(c.used_here() == std::vector<std::uint8_t>{0, 0, 0, 0, 0});
}

TEST_CASE("reducer: ranks exchange what they used in every step, if steps may differ", "[training][unit]") {
  ReducerCore all = core();
  CHECK_FALSE(all.asks_who_used());
  CHECK(all.used_anywhere(2));
  ReducerCore any = core(StepShape::Any);
  step(any, {4}, {0, 0, 0, 1, 1});
  CHECK(any.asks_who_used());
  CHECK(any.used_anywhere(3));
  CHECK_FALSE(any.used_anywhere(2));
}

// ---- a static graph ----

TEST_CASE("reducer: a static graph's first step is launched when it ends", "[training][unit]") {
  ReducerCore c = core(StepShape::AsFirst);
  const ReducerActions marks = mark(c, {4, 4, 3, 2, 0});
  CHECK((marks.fill.empty() && marks.launch.empty()));
  const ReducerActions end = synchronize(c);
  CHECK(end.fill == Numbers{4, 3, 2, 1, 0});
  CHECK(end.launch == Numbers{0, 1, 2});
}

TEST_CASE("reducer: in later steps a gradient is ready after as many marks as in the first", "[training][unit]") {
  ReducerCore c = core(StepShape::AsFirst);
  step(c, {4, 4, 3, 2, 0}, {1, 0, 1, 1, 1});
  const ReducerActions first = mark(c, {3});
  CHECK(first.fill == Numbers{1, 3});  // parameter 1 is known from the start
  CHECK(mark(c, {4}).fill.empty());
  CHECK(mark(c, {4}).launch == Numbers{0});
  CHECK(mark(c, {2, 0}).launch == Numbers{1, 2});
  CHECK(synchronize(c).launch.empty());
}

TEST_CASE("reducer: with a static graph, ranks exchange once what they used", "[training][unit]") {
  ReducerCore c = core(StepShape::AsFirst);
  CHECK(c.asks_who_used());
  step(c, {4, 3, 2, 0}, {1, 0, 1, 1, 1});
  CHECK_FALSE(c.asks_who_used());
  step(c, {4, 3, 2, 0});
  CHECK_FALSE(c.used_anywhere(1));
}

TEST_CASE("reducer: a step unlike the static graph's first is an error that names the parameter", "[training][unit]") {
  ReducerCore c = core(StepShape::AsFirst);
  step(c, {4, 4, 3, 2, 0}, {1, 1, 1, 1, 1});
  const std::string alike = ": static_graph promises that all steps are alike";
  SECTION("more often") {
    CHECK_THROWS_MATCHES(mark(c, {4, 4, 4}), Error,
                         Message("DistributedDataParallel: parameter 4 (e) was marked ready 3 times in this step, but "
                                 "2 times in the first" +
                                 alike));
  }
  SECTION("unused before") {
    CHECK_THROWS_MATCHES(mark(c, {1}), Error,
                         Message("DistributedDataParallel: parameter 1 (b) was marked ready once in this step, but "
                                 "never in the first" +
                                 alike));
  }
  SECTION("less often") {
    mark(c, {4, 3, 2, 0});
    CHECK_THROWS_MATCHES(synchronize(c), Error,
                         Message("DistributedDataParallel: parameter 4 (e) was marked ready once in this step, but 2 "
                                 "times in the first" +
                                 alike));
  }
  SECTION("no longer") {
    mark(c, {4, 4, 2, 0});
    CHECK_THROWS_MATCHES(synchronize(c), Error,
                         Message("DistributedDataParallel: parameter 3 was never marked ready in this step, but once "
                                 "in the first" +
                                 alike));
  }
}

TEST_CASE("reducer: what no rank used in a static graph's first step cannot come later, not even under no_sync",
          "[training][unit]") {
  ReducerCore c = core(StepShape::AsFirst);
  step(c, {4, 3, 2, 0}, {1, 0, 1, 1, 1});
  c.set_no_sync(true);
  CHECK_THROWS_WITH(mark(c, {1}), Contains("parameter 1 (b) was marked ready, but no rank used it in the first step"));
}

// ---- the order of gradients ----

TEST_CASE("reducer: knows the order in which gradients came, with those that never came last", "[training][unit]") {
  ReducerCore c = core(StepShape::AsFirst);
  mark(c, {0, 3, 4, 0});
  CHECK(c.ready_order() == Numbers{3, 4, 0, 2, 1});
}

TEST_CASE("reducer: after a replan, buckets are launched in the new order", "[training][unit]") {
  ReducerCore c = core();
  step(c, {0, 1, 2, 3, 4});
  c.replan({{0, 1, 2}, {3, 4}});
  CHECK(mark(c, {4, 3}).launch.empty());
  CHECK(mark(c, {2, 1, 0}).launch == Numbers{0, 1});
}

// ---- forwards, and ranks that have no input ----

TEST_CASE("reducer: buffers are due before a forward unless the one before it was under no_sync", "[training][unit]") {
  ReducerCore c = core();
  CHECK(c.before_forward());
  step(c, {0, 1, 2, 3, 4});
  c.set_no_sync(true);
  CHECK(c.before_forward());
  CHECK_FALSE(c.before_forward());
  c.set_no_sync(false);
  CHECK_FALSE(c.before_forward());
  step(c, {0, 1, 2, 3, 4});
  CHECK(c.before_forward());
}

TEST_CASE("reducer: a forward in the middle of a step is an error", "[training][unit]") {
  ReducerCore c = core();
  mark(c, {4});
  CHECK_THROWS_WITH(c.before_forward(), Contains("before_forward() was called in the middle of a step"));
}

TEST_CASE("reducer: a step of the other ranks sends all buckets, in order", "[training][unit]") {
  ReducerCore c = core();
  CHECK(c.shadow_forward(true));
  ReducerActions actions;
  c.shadow_step(actions);
  CHECK(actions.fill.empty());
  CHECK(actions.launch == Numbers{0, 1, 2});
  c.end_step();
  CHECK(c.shadow_forward(false));
  CHECK_FALSE(c.shadow_forward(true));
}

TEST_CASE("reducer: a rank without input in a static graph's first step takes its own first step as the reference",
          "[training][unit]") {
  ReducerCore c = core(StepShape::AsFirst);
  ReducerActions actions;
  c.shadow_step(actions);
  CHECK(c.asks_who_used());
  c.set_used_anywhere({1, 1, 1, 1, 0});
  c.end_step();
  CHECK_FALSE(c.asks_who_used());
  CHECK(mark(c, {3, 2, 1, 0}).launch.empty());
  CHECK(synchronize(c).launch == Numbers{0, 1, 2});
  c.end_step();
  CHECK(mark(c, {3, 2}).launch == Numbers{0, 1});
}

TEST_CASE("reducer: inside join each step needs its before_forward", "[training][unit]") {
  ReducerCore c = core();
  c.set_joining(true);
  SECTION("none at all") { CHECK_THROWS_WITH(mark(c, {4}), Contains("a step began without before_forward()")); }
  SECTION("one too many") {
    c.before_forward();
    CHECK_THROWS_WITH(c.before_forward(), Contains("or wrap forward and backward in no_sync()"));
  }
  SECTION("as it should be") {
    for (int n = 0; n < 2; ++n) {
      c.before_forward();
      step(c, {4, 3, 2, 1, 0});
    }
    c.set_no_sync(true);
    c.before_forward();
    c.before_forward();
    c.set_no_sync(false);
    c.set_joining(false);
    mark(c, {4});
  }
}

TEST_CASE("reducer: what ranks without input expect holds until the step ends", "[training][unit]") {
  ReducerCore c = core();
  c.set_joining(true);
  c.before_forward();
  SECTION("no_sync") {
    CHECK_THROWS_WITH(c.set_no_sync(true), Contains("no_sync changed between before_forward() and synchronize()"));
  }
  SECTION("the end of join") { CHECK_THROWS_WITH(c.set_joining(false), Contains("join ends in the middle of a step")); }
  SECTION("unless join is cancelled") {
    c.cancel_joining();
    CHECK(mark(c, {4, 3}).launch == Numbers{0});
  }
}

TEST_CASE("reducer: a join cannot begin in the middle of a step", "[training][unit]") {
  ReducerCore c = core();
  mark(c, {4});
  CHECK_THROWS_WITH(c.set_joining(true), Contains("join begins in the middle of a step"));
}
