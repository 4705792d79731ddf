// SPDX-License-Identifier: BSD-3-Clause
#include "rendezvous/coordinator/core/coordinator_core.hpp"

#include <catch2/catch.hpp>
#include <csignal>

#include "tests/rendezvous/coordinator/worker_failure.hpp"

using namespace ddp::rendezvous;
using std::chrono::milliseconds;

namespace {

JobShape shape(int max_restarts, int nodes) {
  return {.id = "j", .min_nodes = nodes, .max_nodes = nodes, .max_restarts = max_restarts, .node_ranks_given = true};
}

AgentState agent_on(const std::string& host, int node_rank, int slots, int max_restarts = 0, int nodes = 1) {
  AgentState state;
  state.job = shape(max_restarts, nodes);
  state.incarnation = host;
  state.host = host;
  state.node_rank = node_rank;
  state.slots = slots;
  return state;
}

struct Fixture {
  explicit Fixture(int max_restarts = 0, int nodes = 1)
      : core({.job = shape(max_restarts, nodes), .epoch = "e", .own_incarnation = "a"}),
        agent(agent_on("a", 0, 2, max_restarts, nodes)) {}

  CoordinatorCore core;
  std::vector<CoordinatorAction> actions;
  AgentState agent;
  TimePoint now{};

  void step(const CoordinatorEvent& event) {
    actions.clear();
    core.step(now, event, actions);
  }
  void report() { step(AgentReported{1, agent}); }
  // Returns the newest directive to an agent in the last step; null: there was none.
  const Directive* sent(AgentId id = 1) const {
    const Directive* found = nullptr;
    for (const auto& action : actions) {
      const auto* send = std::get_if<SendDirective>(&action);
      if (send && send->agent == id) found = &send->directive;
    }
    return found;
  }
  bool opens_store() const {
    for (const auto& action : actions) {
      if (std::holds_alternative<OpenStore>(action)) return true;
    }
    return false;
  }
  void start(int round = 1) {
    report();
    step(StoreOpened{round, "127.0.0.1", 1234});
    running(round);
  }
  void running(int round) {
    agent.round = round;
    agent.phase = WorkersPhase::Running;
    agent.failures.clear();
    report();
  }
  void idle(bool succeeded = false) {
    agent.phase = WorkersPhase::Idle;
    agent.succeeded = succeeded;
    report();
  }
};

}  // namespace

TEST_CASE("coordinator: opens a store, then gives every node its ranks", "[rendezvous][unit]") {
  Fixture job(0, 2);
  job.step(AgentReported{1, agent_on("b", 1, 3, 0, 2)});
  CHECK_FALSE(job.opens_store());  // one is missing
  job.step(AgentReported{2, agent_on("a", 0, 2, 0, 2)});
  REQUIRE(job.opens_store());
  job.step(StoreOpened{1, "10.0.0.1", 29500});
  REQUIRE(job.sent(2));
  CHECK(job.sent(2)->kind == Directive::Kind::Run);
  CHECK(job.sent(2)->assignment.base_rank == 0);
  CHECK(job.sent(1)->assignment.base_rank == 2);
  CHECK(job.sent(1)->assignment.world_size == 5);
  CHECK(job.sent(1)->assignment.master_port == 29500);
  CHECK(job.sent(1)->assignment.node_rank == 1);
}

TEST_CASE("coordinator: success of all workers ends the job with 0", "[rendezvous][unit]") {
  Fixture job;
  job.start();
  job.idle(true);
  REQUIRE(job.sent());
  CHECK(job.sent()->kind == Directive::Kind::Exit);
  CHECK(job.sent()->exit_code == 0);
  CHECK(job.core.over());
}

TEST_CASE("coordinator: a failure stops all workers, and the exit code of the cause ends the job",
          "[rendezvous][unit]") {
  Fixture job;
  job.start();
  job.agent.failures = {failure_of(1, {.code = 7}, 5)};
  job.report();
  REQUIRE(job.sent());
  CHECK(job.sent()->kind == Directive::Kind::Stop);
  CHECK(job.sent()->why == Why::WorkerFailed);
  CHECK_FALSE(job.core.over());
  job.idle();
  REQUIRE(job.sent());
  CHECK(job.sent()->kind == Directive::Kind::Exit);
  CHECK(job.sent()->exit_code == 7);
  CHECK(job.sent()->cause->rank == 1);
}

TEST_CASE("coordinator: the store says which rank died, for the workers still running", "[rendezvous][unit]") {
  Fixture job;
  job.start();
  job.agent.failures = {failure_of(1, {.signal = SIGKILL}, 5)};
  job.report();
  REQUIRE(std::holds_alternative<PublishFailure>(job.actions.at(0)));
  CHECK(std::get<PublishFailure>(job.actions.at(0)).text == "rank 1 on node a was killed by SIGKILL");
  CHECK(std::get<PublishFailure>(job.actions.at(0)).ranks == std::vector<int>{1});
}

TEST_CASE("coordinator: ranks that died together are published together, in order", "[rendezvous][unit]") {
  Fixture job;
  job.start();
  job.agent.failures = {failure_of(1, {.code = 1}, 5), failure_of(0, {.signal = SIGSEGV}, 6)};
  job.agent.failures[0].local_rank = 1;
  job.report();
  REQUIRE(std::holds_alternative<PublishFailure>(job.actions.at(0)));
  CHECK(std::get<PublishFailure>(job.actions.at(0)).text == "rank 0 on node a was killed by SIGSEGV");
  CHECK(std::get<PublishFailure>(job.actions.at(0)).ranks == std::vector<int>{0, 1});
}

TEST_CASE("coordinator: a restart waits until the old round is gone, and counts for the whole job",
          "[rendezvous][unit]") {
  Fixture job(1);
  job.start();
  job.agent.failures = {failure_of(0, {.code = 1}, 5)};
  job.report();
  CHECK_FALSE(job.opens_store());
  job.agent.phase = WorkersPhase::Stopping;
  job.report();
  CHECK_FALSE(job.opens_store());
  job.idle();
  REQUIRE(job.opens_store());
  job.step(StoreOpened{2, "127.0.0.1", 1234});
  CHECK(job.sent()->round == 2);
  CHECK(job.sent()->assignment.restart_count == 1);
  CHECK(job.sent()->why == Why::WorkerFailed);
  job.running(2);
  job.agent.failures = {failure_of(0, {.code = 3}, 9)};
  job.report();
  job.idle();
  CHECK(job.sent()->exit_code == 3);  // the budget is used up
}

TEST_CASE("coordinator: a stop signal ends the job with 128 + its number and is no failure", "[rendezvous][unit]") {
  Fixture job(3);
  job.start();
  job.agent.stop_signal = SIGINT;
  job.report();
  CHECK(job.sent()->kind == Directive::Kind::Stop);
  CHECK(job.sent()->stop_signal == SIGINT);
  WorkerFailure stopped = failure_of(0, {.signal = SIGINT}, 5, false);
  stopped.stopped_by_ddprun = true;
  job.agent.failures = {stopped};
  job.idle();
  CHECK(job.sent()->exit_code == 128 + SIGINT);
  CHECK_FALSE(job.sent()->cause);
}

TEST_CASE("coordinator: a stop signal during a restart ends the job instead", "[rendezvous][unit]") {
  Fixture job(3);
  job.start();
  job.agent.failures = {failure_of(0, {.code = 1}, 5)};
  job.report();
  job.agent.stop_signal = SIGTERM;
  job.report();
  job.idle();
  CHECK_FALSE(job.opens_store());
  CHECK(job.sent()->exit_code == 128 + SIGTERM);
}

TEST_CASE("coordinator: a stop signal before the first round ends the job without one", "[rendezvous][unit]") {
  Fixture job;
  job.report();
  job.agent.stop_signal = SIGTERM;
  job.report();
  CHECK(job.sent()->kind == Directive::Kind::Stop);
  job.step(StoreOpened{1, "127.0.0.1", 1234});
  CHECK(job.actions.empty());  // too late: nothing starts
  job.agent.round = 1;
  job.idle();
  CHECK(job.sent()->kind == Directive::Kind::Exit);
}

TEST_CASE("coordinator: processes that cannot be killed forbid a restart", "[rendezvous][unit][P18]") {
  Fixture job(3);
  job.start();
  job.agent.failures = {failure_of(0, {.code = 1}, 5)};
  job.report();
  job.agent.unkillable = {77};
  job.idle();
  CHECK_FALSE(job.opens_store());
  CHECK(job.sent()->kind == Directive::Kind::Exit);
  CHECK(job.sent()->why == Why::Unkillable);
  CHECK(job.sent()->exit_code == 1);
}

TEST_CASE("coordinator: a worker whose program cannot run is not restarted", "[rendezvous][unit]") {
  Fixture job(3);
  job.start();
  job.agent.failures = {failure_of(0, {.code = 127}, 5)};
  job.agent.failures[0].never_ran = true;
  job.report();
  job.idle();
  CHECK_FALSE(job.opens_store());
  CHECK(job.sent()->kind == Directive::Kind::Exit);
  CHECK(job.sent()->exit_code == 127);
  CHECK(job.sent()->why == Why::NeverRan);
}
