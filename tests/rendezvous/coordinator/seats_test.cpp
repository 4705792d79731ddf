// SPDX-License-Identifier: BSD-3-Clause
// Which node gets which node rank, and which makes room for another one.
#include <catch2/catch.hpp>

#include "rendezvous/coordinator/core/seats.hpp"
#include "tests/rendezvous/coordinator/obedient_nodes.hpp"

using namespace ddp::rendezvous;
using Catch::Matchers::Contains;
using std::chrono::seconds;

namespace {

JobShape excluding(JobShape job, int after) {
  job.exclude_after = after;
  return job;
}

// Rank `rank` of this host fails, all nodes stop, and the next round runs.
void fail_and_go_on(Job& job, const std::string& host, int rank) {
  job.fail(host, rank);
  job.stopped();
  job.start();
}

}  // namespace

TEST_CASE("seat order: numbers in host names count as numbers", "[rendezvous][unit]") {
  CHECK(goes_before("gpu2", "gpu10"));
  CHECK_FALSE(goes_before("gpu10", "gpu2"));
  CHECK(goes_before("a1-9", "a1-10"));
  CHECK(goes_before("a", "a1"));
  CHECK(goes_before("a9z", "b1"));
  CHECK(goes_before("r2n10", "r10n2"));
  CHECK_FALSE(goes_before("gpu7", "gpu7"));
  CHECK(goes_before("gpu07", "gpu7") != goes_before("gpu7", "gpu07"));  // one order, whichever
  CHECK(goes_before("n99999999999999999999", "n100000000000000000000"));
}

TEST_CASE("seat order: a rank that was given goes before the place in the network, and that before the name",
          "[rendezvous][unit]") {
  const SeatOrder order({{"x", 0}, {"b", 1}, {"a", 2}});
  const auto on = [](const std::string& host, int wanted = -1) {
    AgentState state;
    state.host = host;
    state.wanted_rank = wanted;
    return state;
  };
  CHECK(order(on("b"), on("a")));
  CHECK(order(on("a.cluster.example"), on("0")));  // a host that the file lacks comes last
  CHECK(order(on("1"), on("2")));
  CHECK(order(on("2", 1), on("x")));
  CHECK(order(on("x", 1), on("x", 2)));
  CHECK_FALSE(order(on("x"), on("x")));
  CHECK(order.lacks("y"));
  CHECK_FALSE(order.lacks("b.cluster.example"));
  CHECK_FALSE(SeatOrder().lacks("y"));
}

TEST_CASE("coordinator: nodes that come together are ranked by name after its own, not as they came",
          "[rendezvous][unit]") {
  Job job(fixed(4));
  for (const char* host : {"n10", "n9", "a", "n2"}) job.join(host);
  job.start();
  CHECK(job.runs("a", 0));
  CHECK(job.runs("n2", 1));
  CHECK(job.runs("n9", 2));
  CHECK(job.runs("n10", 3));
}

TEST_CASE("coordinator: its own node has a place even if enough others came before", "[rendezvous][unit]") {
  Job job(fixed(2));
  for (const char* host : {"c", "b", "a"}) job.join(host);
  job.start();
  CHECK(job.runs("a", 0));
  CHECK(job.runs("c", 1));  // it came before b
}

TEST_CASE("coordinator: a newcomer takes the rank of a lost node, and the others keep theirs", "[rendezvous][unit]") {
  Job job(fixed(3, 1));
  for (const char* host : {"a", "c", "d"}) job.join(host);
  job.start();
  job.gone("c");
  job.stopped();
  job.join("z");
  job.start();
  CHECK(job.runs("a", 0));
  CHECK(job.runs("z", 1));
  CHECK(job.runs("d", 2));
}

TEST_CASE("coordinator: a node that was the first cause too often makes room for a spare", "[rendezvous][unit]") {
  Job job(excluding(fixed(2, 9), 2));
  for (const char* host : {"a", "b", "c"}) job.join(host);
  job.start();
  fail_and_go_on(job, "b", 1);
  CHECK(job.runs("b", 1));
  fail_and_go_on(job, "b", 1);
  CHECK_THAT(job.told("a").reason, Contains("; node b (10.0.0.b) was the first cause of 2 failures (--exclude-after)"));
  CHECK(job.runs("c", 1));
  CHECK(job.told("b").kind == Directive::Kind::Wait);
  CHECK_THAT(job.told("b").reason, Contains("--exclude-after"));
  SECTION("it has a place again if no other node is there") {
    job.gone("c");
    job.stopped();
    job.start();
    CHECK(job.runs("b", 1));
  }
  SECTION("and the next spare takes its place") {
    job.gone("c");
    job.join("d");
    job.stopped();
    job.start();
    CHECK(job.runs("d", 1));
    CHECK(job.told("b").kind == Directive::Kind::Wait);
  }
}

TEST_CASE("coordinator: a node that is lost again and again makes room, too, by whatever process it comes back",
          "[rendezvous][unit]") {
  Job job(excluding(elastic(1, 2, 9), 2));
  job.join("a");
  job.join("b");
  job.start();
  for (int i = 0; i < 2; ++i) {
    job.gone("b");
    job.stopped();
    job.start();
    job.join("b");
    job.stopped();
    job.start();
    CHECK(job.runs("b", 1));  // nobody else is there
  }
  job.join("c");
  fail_and_go_on(job, "a", 0);
  CHECK(job.runs("c", 1));
  CHECK(job.told("b").kind == Directive::Kind::Wait);
}

TEST_CASE("coordinator: its own node cannot make room, and the line says so", "[rendezvous][unit]") {
  Job job(excluding(fixed(2, 9), 1));
  for (const char* host : {"a", "b", "c"}) job.join(host);
  job.start();
  fail_and_go_on(job, "a", 0);
  CHECK(job.runs("a", 0));
  CHECK(job.runs("b", 1));
  CHECK_THAT(job.told("b").reason, Contains("coordinates, so it cannot make room"));
}

TEST_CASE("coordinator: workers that would stay end with a node that makes room", "[rendezvous][unit]") {
  JobShape shape = excluding(fixed(2, 9), 1);
  shape.survivors_stay = true;
  Job job(shape);
  for (const char* host : {"a", "b", "c"}) job.join(host, 0, 2);
  job.start();
  job.fail("b", 2);
  for (const char* host : {"a", "b"}) {
    job.nodes[host].state.phase = WorkersPhase::Quiet;
    job.report(host);
  }
  job.step(StoreOpened{job.core.round(), "", 1000});
  CHECK(job.runs("c", 1));
  CHECK(job.told("b").kind == Directive::Kind::Stop);
  CHECK(job.told("b").stop_signal == 15);
  CHECK_FALSE(job.told("b").survivors_stay);
}

TEST_CASE("coordinator: with a window only restarts within it count", "[rendezvous][unit]") {
  JobShape shape = fixed(2, 1);
  shape.restart_window = seconds(60);
  Job job(shape);
  job.join("a");
  job.join("b");
  job.start();
  fail_and_go_on(job, "b", 1);
  CHECK(job.runs("b", 1));
  CHECK(job.told("b").restarts_left == 0);
  CHECK_THAT(job.told("b").reason, Contains("restart 1, 1 of 1 within 60 s: "));
  SECTION("one after it is another restart") {
    job.pass(seconds(61));
    fail_and_go_on(job, "b", 1);
    CHECK(job.runs("b", 1));
    CHECK(job.told("b").assignment.restart_count == 2);
  }
  SECTION("one within it ends the job") {
    job.pass(seconds(50));
    job.fail("b", 1);
    job.stopped();
    CHECK(job.leaves("b", 7));
  }
}

TEST_CASE("coordinator: all nodes are to be given the same --exclude-after and --restart-window",
          "[rendezvous][unit]") {
  Job job(fixed(2, 1));
  job.join("a");
  job.job.exclude_after = 3;
  job.join("b");
  CHECK(job.told("b").why == Why::OptionsDiffer);
  job.job.exclude_after = 0;
  job.job.restart_window = seconds(5);
  job.join("c");
  CHECK(job.told("c").why == Why::OptionsDiffer);
}
