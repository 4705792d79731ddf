// SPDX-License-Identifier: BSD-3-Clause
// Another node coordinates: its coordinator has the record of the one before, and an epoch of its own.
#include <algorithm>
#include <catch2/catch.hpp>
#include <csignal>
#include <optional>
#include <string>
#include <variant>

#include "rendezvous/coordinator/core/coordinator_core.hpp"
#include "tests/rendezvous/coordinator/small_job.hpp"

using namespace ddp::rendezvous;
using Catch::Matchers::Contains;
using std::chrono::seconds;

namespace {

// An elastic or a fixed job of nodes a and b, which a has coordinated with epoch 99 until `b_takes_over`.
struct MovingJob : SmallJob {
  explicit MovingJob(int max_restarts, int min_nodes = 1) : SmallJob(max_restarts, "10.0.0.2") {
    shape.min_nodes = min_nodes;
    shape.max_nodes = std::max(2, min_nodes);
    begin_on("a", "99", "", std::nullopt);
  }

  CoordinatorConfig config(const std::string& host, const std::string& epoch, const std::string& own_epoch) const {
    return {.job = shape,
            .epoch = epoch,
            .epoch_is_number = true,
            .node = "node-" + host,
            .host = host,
            .own_epoch = own_epoch,
            .own_is_here = false,
            .keeps_record = true,
            .last_call = seconds(0)};
  }
  void begin_on(const std::string& host, const std::string& epoch, const std::string& own_epoch,
                const std::optional<JobRecord>& left) {
    own = host;
    newest_epoch = epoch;
    core = CoordinatorCore(config(host, epoch, own_epoch));
    actions.clear();
    step(Recovered{left, seconds(0)});
  }
  AgentState serving(const std::string& host, WorkersPhase phase, const std::string& epoch = "99") const {
    AgentState state = on(host, phase);
    state.epoch = epoch;
    state.instance = "node-a.99";
    return state;
  }
  // The host's only worker has exited with code 3.
  AgentState failed(const std::string& host, int rank) const {
    AgentState state = serving(host, WorkersPhase::Idle);
    state.failures = {{.rank = rank, .local_rank = 0, .host = host, .pid = 7, .status = {.code = 3}}};
    return state;
  }
  // The agent of the coordinator's node reports without an address.
  void hear(AgentId link, const AgentState& state) {
    step(AgentReported{link, state, state.host == own ? "" : "10.0.0." + state.host, "10.0.0.9"});
  }
  void run_round() {
    hear(2, on("b"));
    hear(1, on("a"));
    step(StoreOpened{core.round(), "", 1});
    hear(1, serving("a", WorkersPhase::Running));
    hear(2, serving("b", WorkersPhase::Running));
  }
  // All workers of the round exit with code 0.
  void succeed() {
    for (const std::string host : {"a", "b"}) {
      AgentState done = serving(host, WorkersPhase::Idle);
      done.succeeded = true;
      hear(host == "a" ? 1 : 2, done);
    }
  }
  void b_takes_over() {
    const JobRecord left = record();
    begin_on("b", "101", "99", left);
  }
  void pass(seconds time, AgentId heard) {
    for (seconds done(0); done < time; done += seconds(1)) {
      wait(seconds(1));
      step(AgentBeat{heard});
    }
  }
  bool has(const CoordinatorAction& wanted) const {
    return std::any_of(actions.begin(), actions.end(),
                       [&](const CoordinatorAction& action) { return action.index() == wanted.index(); });
  }

  std::string own, newest_epoch;
};

}  // namespace

TEST_CASE("takeover: the round ends with a reason that names both nodes, and the new coordinator's has node rank 0",
          "[rendezvous][unit]") {
  MovingJob job(1);
  job.run_round();
  REQUIRE(job.told(2).assignment.node_rank == 1);
  job.b_takes_over();
  job.hear(3, job.serving("b", WorkersPhase::Running));
  const Directive stop = job.told(3);
  CHECK(stop.kind == Directive::Kind::Stop);
  CHECK(stop.why == Why::NewLeader);
  CHECK(stop.epoch == "101");
  CHECK(stop.instance == "node-a.99");
  job.hear(3, job.serving("b", WorkersPhase::Idle, "101"));
  job.pass(seconds(10), 3);
  CHECK(job.core.round() == 1);  // the workers of node a may still run
  job.pass(seconds(2), 3);
  CHECK(job.core.round() == 2);
  job.step(StoreOpened{2, "", 1});
  CHECK(job.told(3).assignment.node_rank == 0);
  CHECK(job.told(3).assignment.restart_count == 0);  // an elastic job spends no restart for a lost node
}

TEST_CASE("takeover: the node that coordinated before is a node like any other, and gets the rank that is free",
          "[rendezvous][unit]") {
  MovingJob job(1);
  job.run_round();
  job.b_takes_over();
  job.hear(3, job.serving("b", WorkersPhase::Idle));
  job.hear(4, job.serving("a", WorkersPhase::Idle));
  CHECK(job.core.round() == 2);
  job.step(StoreOpened{2, "", 1});
  CHECK(job.told(3).assignment.node_rank == 0);
  CHECK(job.told(4).assignment.node_rank == 1);
}

TEST_CASE("takeover: a newcomer that coordinates displaces the one with node rank 0", "[rendezvous][unit]") {
  MovingJob job(1, 2);
  job.shape.min_nodes = 1;
  job.shape.max_nodes = 3;
  job.begin_on("a", "99", "", std::nullopt);
  job.run_round();
  const JobRecord left = job.record();
  const AgentState a = job.serving("a", WorkersPhase::Idle), b = job.serving("b", WorkersPhase::Idle);
  job.begin_on("c", "120", "", left);
  job.hear(3, job.on("c"));
  job.hear(4, a);
  job.hear(5, b);
  job.step(StoreOpened{2, "", 1});
  CHECK(job.told(3).assignment.node_rank == 0);
  CHECK(job.told(4).assignment.node_rank == 2);
  CHECK(job.told(5).assignment.node_rank == 1);
}

TEST_CASE("takeover: --exclude-after counts on for the node that coordinated before", "[rendezvous][unit]") {
  MovingJob job(9);
  job.shape.exclude_after = 1;
  job.begin_on("a", "99", "", std::nullopt);
  job.run_round();
  job.hear(1, job.failed("a", 0));
  job.hear(2, job.serving("b", WorkersPhase::Idle));
  job.step(StoreOpened{2, "", 1});
  REQUIRE_THAT(job.told(1).reason,
               Contains("node a was the first cause of 1 failure (--exclude-after) and coordinates"));
  job.b_takes_over();
  job.hear(3, job.serving("b", WorkersPhase::Idle));
  job.hear(5, job.on("c"));
  job.hear(4, job.serving("a", WorkersPhase::Idle));
  job.step(StoreOpened{3, "", 1});
  CHECK(job.told(3).kind == Directive::Kind::Run);
  CHECK(job.told(5).kind == Directive::Kind::Run);
  CHECK(job.told(4).kind == Directive::Kind::Wait);
  CHECK_THAT(job.told(4).reason, Contains("--exclude-after"));
}

TEST_CASE("takeover: a fixed job spends a restart and waits for a replacement", "[rendezvous][unit]") {
  MovingJob job(1, 2);
  job.run_round();
  job.b_takes_over();
  job.hear(3, job.serving("b", WorkersPhase::Idle));
  job.pass(seconds(16), 3);
  CHECK(job.core.phase() == CoordinatorCore::Phase::Gathering);
  CHECK(job.core.restarts() == 1);
  job.hear(6, job.on("c"));
  CHECK(job.core.round() == 2);
}

TEST_CASE("takeover: the restart budget goes on as it was", "[rendezvous][unit]") {
  MovingJob job(1, 2);
  job.run_round();
  job.hear(2, job.failed("b", 1));
  job.hear(1, job.serving("a", WorkersPhase::Idle));
  job.step(StoreOpened{2, "", 1});
  REQUIRE(job.core.restarts() == 1);
  job.b_takes_over();
  job.hear(3, job.serving("b", WorkersPhase::Idle));
  job.hear(4, job.serving("a", WorkersPhase::Idle));
  CHECK(job.core.over());  // none is left for the round that the takeover ends
  CHECK(job.told(4).exit_code == kStartAgain);
  CHECK(job.told(4).why == Why::NewLeader);
}

TEST_CASE("takeover: a round whose workers have all succeeded is not repeated", "[rendezvous][unit]") {
  MovingJob job(1);
  job.run_round();
  job.b_takes_over();
  AgentState done = job.serving("b", WorkersPhase::Idle);
  done.succeeded = true;
  job.hear(3, done);
  done = job.serving("a", WorkersPhase::Idle);
  done.succeeded = true;
  job.hear(4, done);
  CHECK(job.told(4).kind == Directive::Kind::Exit);
  CHECK(job.told(4).exit_code == 0);
}

TEST_CASE("takeover: where the job waits for nodes it goes on waiting", "[rendezvous][unit]") {
  MovingJob job(1, 2);
  job.hear(1, job.on("a"));
  job.b_takes_over();
  CHECK(job.core.phase() == CoordinatorCore::Phase::Gathering);
  job.hear(3, job.on("b"));
  job.hear(4, job.serving("a", WorkersPhase::Idle));
  CHECK(job.core.round() == 1);
  job.step(StoreOpened{1, "", 1});
  CHECK(job.told(3).assignment.node_rank == 0);
}

TEST_CASE("takeover: on the same node nothing is stopped, and what is sent again has the new epoch",
          "[rendezvous][unit]") {
  MovingJob job(1);
  job.run_round();
  const JobRecord left = job.record();
  job.begin_on("a", "101", "99", left);
  job.hear(3, job.serving("a", WorkersPhase::Running));
  job.hear(4, job.serving("b", WorkersPhase::Running));
  CHECK(job.core.phase() == CoordinatorCore::Phase::Running);
  CHECK(job.told(4).kind == Directive::Kind::Run);
  CHECK(job.told(4).epoch == "101");
}

TEST_CASE("takeover: an agent of another job with this id is refused with a reason, never merged",
          "[rendezvous][unit]") {
  MovingJob job(1);
  job.run_round();
  AgentState other = job.on("c");
  other.epoch = "50";
  other.instance = "node-x.50";
  job.hear(7, other);
  CHECK(job.told(7).kind == Directive::Kind::Exit);
  CHECK(job.told(7).exit_code == kStartAgain);
  CHECK(job.told(7).why == Why::JobIsGone);
}

TEST_CASE("takeover: an agent that has obeyed a newer coordinator gets nothing, and its link is closed",
          "[rendezvous][unit]") {
  MovingJob job(1);
  job.run_round();
  job.actions.clear();
  job.hear(8, job.serving("b", WorkersPhase::Running, "101"));
  CHECK(job.told(8).epoch.empty());
  CHECK(job.has(CloseLink{}));
}

TEST_CASE("takeover: a node that was part of a job that is over tells the others how it ended", "[rendezvous][unit]") {
  MovingJob job(0);
  job.run_round();
  job.succeed();
  REQUIRE(job.core.over());
  job.b_takes_over();
  job.hear(3, job.serving("b", WorkersPhase::Idle));
  CHECK(job.told(3).kind == Directive::Kind::Wait);  // its own agent is the last
  job.hear(4, job.serving("a", WorkersPhase::Idle));
  CHECK(job.told(4).exit_code == 0);
  CHECK(job.told(4).kind == Directive::Kind::Exit);
  AgentState gone = job.serving("a", WorkersPhase::Idle);
  gone.left = true;
  job.hear(4, gone);
  CHECK(job.told(3).kind == Directive::Kind::Exit);
  gone = job.serving("b", WorkersPhase::Idle);
  gone.left = true;
  job.hear(3, gone);
  CHECK(job.has(JobDone{}));
}

TEST_CASE("takeover: for a node that was no part of a job that is over the next one begins", "[rendezvous][unit]") {
  MovingJob job(0);
  job.run_round();
  job.succeed();
  const JobRecord left = job.record();
  job.begin_on("c", "200", "", left);
  CHECK(job.core.phase() == CoordinatorCore::Phase::Gathering);
  job.hear(3, job.serving("b", WorkersPhase::Idle));
  CHECK(job.told(3).kind == Directive::Kind::Exit);
  CHECK(job.told(3).exit_code == 0);
  CHECK(job.told(3).why == Why::JobIsGone);
  job.hear(4, job.on("c"));
  CHECK(job.told(4).kind == Directive::Kind::Wait);
  CHECK(job.told(4).instance == "node-c.200");
  REQUIRE(job.record().before);
}

TEST_CASE("takeover: without a record the job is over for a node that was part of it, and begins for another one",
          "[rendezvous][unit]") {
  MovingJob job(1);
  job.begin_on("b", "101", "99", std::nullopt);
  CHECK(job.core.over());
  job.hear(3, job.on("c"));
  CHECK(job.told(3).exit_code == kStartAgain);
  CHECK(job.told(3).why == Why::JobIsGone);
  job.begin_on("c", "102", "", std::nullopt);
  CHECK_FALSE(job.core.over());
}

TEST_CASE("takeover: a node whose link broke is lost when none of its workers can act any more", "[rendezvous][unit]") {
  MovingJob job(1);
  job.run_round();
  CHECK(job.told(2).back_within == seconds(15));
  job.step(AgentGone{2, "reset"});
  job.pass(seconds(10), 1);
  CHECK(job.core.phase() == CoordinatorCore::Phase::Running);
  job.pass(seconds(2), 1);
  CHECK(job.core.phase() == CoordinatorCore::Phase::Stopping);
}

// ---- The coordinator's own node leaves ----

TEST_CASE("takeover: a stop signal on the node that coordinates lets it leave, and the others go on",
          "[rendezvous][unit]") {
  MovingJob job(0);
  job.run_round();
  AgentState stopped = job.serving("a", WorkersPhase::Running);
  stopped.stop_signal = SIGTERM;
  job.hear(1, stopped);
  CHECK(job.told(2).kind == Directive::Kind::Stop);
  CHECK(job.told(2).why == Why::NodeLeft);
  job.hear(2, job.serving("b", WorkersPhase::Idle));
  stopped.phase = WorkersPhase::Idle;
  job.hear(1, stopped);
  CHECK(job.told(1).kind == Directive::Kind::Exit);
  CHECK(job.told(1).exit_code == 128 + SIGTERM);
  CHECK(job.core.round() == 1);  // another node's coordinator opens the next one
  CHECK_FALSE(job.has(StepDown{}));
  stopped.left = true;
  job.hear(1, stopped);
  job.step(AgentGone{1, "closed"});
  CHECK(job.has(StepDown{}));

  job.b_takes_over();
  job.hear(3, job.serving("b", WorkersPhase::Idle));
  CHECK(job.core.round() == 2);  // at once: nothing of node a is left
  job.step(StoreOpened{2, "", 1});
  CHECK(job.told(3).assignment.node_rank == 0);
  CHECK(job.core.restarts() == 0);
}

TEST_CASE("takeover: the coordinator steps down when its own agent has left by itself", "[rendezvous][unit]") {
  MovingJob job(0);
  job.run_round();
  AgentState gone = job.serving("a", WorkersPhase::Idle);
  gone.left = true;
  gone.stopped_because = "ddprun was killed";
  job.hear(1, gone);
  CHECK(job.has(StepDown{}));
  CHECK(job.told(2).kind == Directive::Kind::Stop);
  job.b_takes_over();
  job.hear(3, job.serving("b", WorkersPhase::Idle));
  CHECK(job.core.round() == 2);
}

TEST_CASE("takeover: the coordinator does not wait for ever for its own node to leave", "[rendezvous][unit]") {
  MovingJob job(0);
  job.hear(1, job.on("a"));
  job.hear(2, job.on("b"));
  job.step(StoreOpened{1, "", 1});
  AgentState stopped = job.serving("a", WorkersPhase::Idle);
  stopped.stop_signal = SIGTERM;
  job.hear(2, job.serving("b", WorkersPhase::Idle));
  job.hear(1, stopped);
  job.pass(seconds(16), 2);
  CHECK(job.has(StepDown{}));
}

TEST_CASE("takeover: a stop signal on the node that coordinates ends the job where nobody could go on",
          "[rendezvous][unit]") {
  const bool is_fixed = GENERATE(false, true);
  MovingJob job(1, is_fixed ? 2 : 1);
  job.hear(1, job.on("a"));
  if (is_fixed) job.hear(2, job.on("b"));
  job.step(StoreOpened{1, "", 1});
  AgentState stopped = job.serving("a", WorkersPhase::Running);
  stopped.stop_signal = SIGTERM;
  job.hear(1, stopped);
  CHECK(job.told(1).why == Why::StopSignal);
  job.hear(2, job.serving("b", WorkersPhase::Idle));
  stopped.phase = WorkersPhase::Idle;
  job.hear(1, stopped);
  CHECK(job.core.over());
}

// ---- The record of a job that may be gone ----

TEST_CASE("takeover: a job of which no node lives leaves nothing to the next one with its --rdzv-id",
          "[rendezvous][unit]") {
  MovingJob job(1, 2);
  job.run_round();
  job.hear(2, job.failed("b", 1));
  job.hear(1, job.serving("a", WorkersPhase::Idle));
  REQUIRE(job.core.restarts() == 1);
  const JobRecord left = job.record();
  job.begin_on("c", "200", "", left);
  job.hear(3, job.on("c"));
  job.hear(4, job.on("d"));
  job.wait(seconds(10));
  CHECK(job.core.asks());
  CHECK(job.told(3).epoch.empty());  // workers of the old job may act until then
  job.wait(seconds(2));
  CHECK_FALSE(job.core.asks());
  CHECK(job.core.round() == 1);
  CHECK(job.core.restarts() == 0);
  job.step(StoreOpened{1, "", 1});
  CHECK(job.told(3).kind == Directive::Kind::Run);
  CHECK(job.told(3).instance == "node-c.200");
  CHECK(job.told(4).assignment.node_rank == 1);
  // A node of the old job that comes back is no part of this one.
  job.hear(5, job.serving("b", WorkersPhase::Idle));
  CHECK(job.told(5).kind == Directive::Kind::Exit);
  CHECK(job.told(5).exit_code == kStartAgain);
  CHECK(job.told(5).why == Why::JobIsGone);
}

TEST_CASE("takeover: a new node goes on with the job as soon as one of its nodes answers", "[rendezvous][unit]") {
  MovingJob job(1, 2);
  job.run_round();
  const JobRecord left = job.record();
  const AgentState b = job.serving("b", WorkersPhase::Running);
  job.begin_on("c", "200", "", left);
  job.hear(3, job.on("c"));
  job.wait(seconds(5));
  CHECK(job.core.asks());
  job.hear(4, b);
  CHECK_FALSE(job.core.asks());
  CHECK(job.told(4).kind == Directive::Kind::Stop);
  CHECK(job.told(3).instance == "node-a.99");
  CHECK(job.core.round() == 1);
}

TEST_CASE("takeover: a node that is stopped while it waits for an answer of the job before leaves at once",
          "[rendezvous][unit]") {
  MovingJob job(1);
  job.run_round();
  const JobRecord left = job.record();
  job.begin_on("c", "200", "", left);
  AgentState stopped = job.on("c");
  job.hear(3, stopped);
  stopped.stop_signal = SIGINT;
  job.hear(3, stopped);
  CHECK(job.told(3).exit_code == 128 + SIGINT);
  job.step(AgentGone{3, "closed"});
  CHECK(job.has(StepDown{}));
}

TEST_CASE("takeover: a job that has had no round goes on at once, and its nodes have all of their time again",
          "[rendezvous][unit]") {
  MovingJob job(1, 2);
  job.hear(1, job.on("a"));
  job.wait(seconds(500));
  const JobRecord left = job.record();
  job.begin_on("c", "200", "", left);
  job.hear(3, job.on("c"));
  CHECK(job.told(3).kind == Directive::Kind::Wait);
  job.pass(seconds(400), 3);
  CHECK_FALSE(job.core.over());
}
