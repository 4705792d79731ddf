// SPDX-License-Identifier: BSD-3-Clause
// Nodes that come, go, fall silent and return. Each case is a bug that the simulator (tests/sim) has found.
#include <catch2/catch.hpp>
#include <csignal>

#include "tests/rendezvous/coordinator/small_job.hpp"

using namespace ddp::rendezvous;
using std::chrono::seconds;

namespace {

struct FailingJob : SmallJob {
  FailingJob() : SmallJob(1, "") {}

  bool opens_store() const {
    return std::any_of(last.begin(), last.end(), [](const auto& a) { return std::holds_alternative<OpenStore>(a); });
  }
  AgentState failed(const std::string& host, WorkersPhase phase, bool stopped = false) const {
    AgentState state = on(host, phase);
    state.failures.push_back(
        {.rank = host == "a" ? 0 : 1, .host = host, .status = {.code = 1}, .stopped_by_ddprun = stopped});
    return state;
  }
};

}  // namespace

TEST_CASE("coordinator: no round without its own agent, even if it is the last to come", "[rendezvous][unit]") {
  FailingJob job;
  job.report(2, job.on("b"));
  CHECK_FALSE(job.opens_store());
  job.report(1, job.on("a"));
  REQUIRE(job.opens_store());
  job.step(StoreOpened{1, "", 1});
  CHECK(job.told(1).assignment.node_rank == 0);
  CHECK(job.told(2).assignment.node_rank == 1);
}

TEST_CASE("coordinator: of two nodes that are lost at once, neither is in the next round", "[rendezvous][unit]") {
  FailingJob job;
  job.report(3, job.on("c"));
  job.start();
  job.report(3, job.on("c", WorkersPhase::Running));
  job.report(1, job.failed("a", WorkersPhase::Idle));
  job.report(3, job.on("c"));
  job.wait(seconds(60));  // b, which has not stopped yet, and c say nothing
  CHECK(job.core.round() == 2);
  job.step(StoreOpened{2, "", 1});
  CHECK(job.told(1).assignment.node_count == 1);
}

TEST_CASE("coordinator: its own agent is the last to leave, even if it is the last to come", "[rendezvous][unit]") {
  FailingJob job;
  job.shape = {.id = "j", .min_nodes = 2, .max_nodes = 2};
  job.core = CoordinatorCore({.job = job.shape, .epoch = "e", .own_incarnation = "a"});
  AgentState stopped = job.on("b");
  stopped.stop_signal = SIGINT;
  job.report(2, stopped);
  REQUIRE(job.told(2).kind == Directive::Kind::Exit);
  job.report(1, job.on("a"));
  CHECK(job.told(1).kind == Directive::Kind::Wait);
  stopped.left = true;
  job.report(2, stopped);
  CHECK(job.told(1).kind == Directive::Kind::Exit);
}

TEST_CASE("coordinator: a node that killed its workers explains its peers' failures, even those reported before",
          "[rendezvous][unit]") {
  FailingJob job;
  job.start();
  job.report(1, job.failed("a", WorkersPhase::Idle));
  AgentState killed = job.failed("b", WorkersPhase::Idle, true);
  killed.stopped_because = "it had lost the coordinator";
  job.report(2, killed);
  REQUIRE(job.opens_store());
  CHECK(job.core.restarts() == 0);
}

TEST_CASE("coordinator: a node that leaves explains its peers' failures", "[rendezvous][unit]") {
  FailingJob job;
  job.start();
  job.report(1, job.failed("a", WorkersPhase::Running));
  AgentState leaving = job.on("b", WorkersPhase::Running);
  leaving.stop_signal = SIGKILL;  // a second signal kills them
  job.report(2, leaving);
  leaving.phase = WorkersPhase::Idle;
  job.report(2, leaving);
  job.report(1, job.failed("a", WorkersPhase::Idle));
  REQUIRE(job.opens_store());
  CHECK(job.core.restarts() == 0);
  CHECK(job.told(2).kind == Directive::Kind::Exit);
}

TEST_CASE("coordinator: two nodes that leave at once end a job that needs one of them", "[rendezvous][unit]") {
  FailingJob job;
  job.shape = {.id = "j", .min_nodes = 2, .max_nodes = 3};
  job.core = CoordinatorCore({.job = job.shape, .epoch = "e", .own_incarnation = "a", .last_call = seconds(0)});
  job.report(1, job.on("a"));
  job.report(2, job.on("b"));
  job.step(StoreOpened{1, "", 1});
  job.report(3, job.on("c"));
  job.report(1, job.on("a"));
  job.report(2, job.on("b"));
  job.step(StoreOpened{2, "", 1});
  for (const auto& [link, host] : {std::pair(2, "b"), std::pair(3, "c")}) {
    AgentState leaving = job.on(host, WorkersPhase::Running);
    leaving.stop_signal = SIGTERM;
    job.report(link, leaving);
  }
  CHECK(job.told(1).why == Why::StopSignal);
}

TEST_CASE("coordinator: a lost node that comes back kills what it still runs", "[rendezvous][unit]") {
  FailingJob job;
  job.start();
  job.step(AgentGone{2, "reset"});
  job.wait(seconds(4));
  job.report(3, job.on("b", WorkersPhase::Running));
  CHECK(job.told(3).kind == Directive::Kind::Stop);
  CHECK(job.told(3).stop_signal == SIGKILL);
}

TEST_CASE("coordinator: a node with processes that cannot be killed gets no seat", "[rendezvous][unit][P18]") {
  FailingJob job;
  job.start();
  AgentState stuck = job.on("c");
  stuck.unkillable = {77};
  job.report(3, stuck);
  CHECK(job.core.phase() == CoordinatorCore::Phase::Running);
}

TEST_CASE("coordinator: its own sleep does not separate a loss from the failures it explains", "[rendezvous][unit]") {
  FailingJob job;
  job.start();
  job.step(AgentGone{2, "reset"});
  job.report(1, job.failed("a", WorkersPhase::Idle));
  job.now += seconds(20);  // this process was stopped
  job.wait(seconds(4));
  CHECK(job.core.round() == 2);
  CHECK(job.core.restarts() == 0);
}

TEST_CASE("coordinator: a message about missing nodes does not replace the order to stop", "[rendezvous][unit]") {
  FailingJob job;
  job.shape = {.id = "j", .min_nodes = 3, .max_nodes = 4};
  job.core = CoordinatorCore({.job = job.shape, .epoch = "e", .own_incarnation = "a"});
  job.report(1, job.on("a"));
  job.report(2, job.on("b", WorkersPhase::Running));
  job.wait(seconds(3));
  CHECK(job.told(1).why == Why::NodesMissing);
  job.report(3, job.on("b", WorkersPhase::Running));  // on a new link
  CHECK(job.told(3).kind == Directive::Kind::Stop);
}

TEST_CASE(
    "coordinator: however few nodes are left, the end of a round names no more failures than all of them may hear",
    "[rendezvous][unit]") {
  constexpr int kNodes = 100, kWorkers = 4;
  SmallJob job(0, "10.0.0.2");
  job.shape.min_nodes = job.shape.max_nodes = kNodes;
  job.core = CoordinatorCore({.job = job.shape, .epoch = "e", .own_incarnation = "a"});
  const auto report = [&job](int link, WorkersPhase phase) {
    AgentState state = job.on(link == 1 ? "a" : "b" + std::to_string(link), phase);
    state.slots = kWorkers;
    for (int i = 0; i < kWorkers && phase == WorkersPhase::Stopping; ++i) {
      const int rank = (link - 1) * kWorkers + i;
      state.failures.push_back({.rank = rank, .local_rank = i, .host = state.host, .status = {.code = 1}});
    }
    job.report(link, state);
  };
  for (int link = kNodes; link > 0; --link) report(link, WorkersPhase::Idle);
  job.step(StoreOpened{1, "", 1});
  for (int link = kNodes; link > 0; --link) report(link, WorkersPhase::Stopping);
  for (int link = kNodes; link > 1; --link) job.step(AgentGone{link, "its network is gone"});
  job.wait(seconds(10));
  report(1, WorkersPhase::Idle);
  REQUIRE(job.told(1).kind == Directive::Kind::Exit);
  CHECK(job.told(1).failures.size() <= 4096 / kNodes);  // each node that comes back hears them, too
}
