// SPDX-License-Identifier: BSD-3-Clause
// Nodes that come, go and fall silent: one test for each row of the table at the top of coordinator_core.hpp.
#include <catch2/catch.hpp>
#include <csignal>

#include "rendezvous/coordinator/core/coordinator_core.hpp"
#include "tests/rendezvous/coordinator/obedient_nodes.hpp"

using namespace ddp::rendezvous;
using std::chrono::milliseconds;
using std::chrono::seconds;

TEST_CASE("coordinator: the store accepts only the addresses of the round's members", "[rendezvous][unit]") {
  Job job(fixed(2));
  job.join("a");
  job.join("b");
  CHECK(job.opened.addresses == std::vector<std::string>{"10.0.0.a", "fd00::a", "10.0.0.b", "fd00::b"});
}

TEST_CASE("coordinator: workers of a role have ranks within it, in the order of nodes", "[rendezvous][unit]") {
  Job job(with_ranks(3));
  job.join("a", 0, 2, "ps");
  job.join("c", 2, 4, "ps");
  job.join("b", 1, 3, "trainer");
  job.start();
  CHECK(job.told("a").assignment.base_role_rank == 0);
  CHECK(job.told("b").assignment.base_role_rank == 0);
  CHECK(job.told("c").assignment.base_role_rank == 2);
  CHECK(job.told("c").assignment.base_rank == 5);
  CHECK(job.told("c").assignment.role_world_size == 6);
  CHECK(job.told("b").assignment.role_world_size == 3);
}

TEST_CASE("coordinator: a node of another job is refused with a message that quotes both", "[rendezvous][unit]") {
  const auto refusal = [](auto change) {
    Job job(with_ranks(2, 1));
    job.join("a", 0);
    job.job = with_ranks(2, 1);
    change(job.job);
    job.join("b", 1);
    CHECK(job.leaves("b", 1));
    CHECK(job.core.round() == 0);
    CHECK((job.said.find("its --rdzv-id is 'k', this job's 'j'") != std::string::npos) == (job.job.id == "k"));
    return job.told("b").reason;
  };
  CHECK(
      refusal([](JobShape& j) { j.id = "k"; }) ==
      "the coordinator's job has another --rdzv-id than 'k' of this host (the coordinator's log shows both): give all "
      "hosts the same");
  CHECK(refusal([](JobShape& j) { j.max_nodes = 4; }) ==
        "--nnodes is 2:4 on this host and 2 at the coordinator: give all hosts the same");
  CHECK(refusal([](JobShape& j) { j.max_restarts = 5; }) ==
        "--max-restarts is 5 on this host and 1 at the coordinator: give all hosts the same");
  CHECK(refusal([](JobShape& j) { j.node_ranks_given = false; }) ==
        "--rdzv-backend is c10d on this host and static at the coordinator: give all hosts the same");
}

TEST_CASE("coordinator: a claim to a held node rank is refused once the holder is heard again", "[rendezvous][unit]") {
  Job job(with_ranks(3));
  job.join("a", 0);
  job.join("b", 1);
  job.join("c", 1);
  CHECK(job.told("c").kind == Directive::Kind::Wait);
  job.step(AgentBeat{job.nodes["b"].link});
  CHECK(job.told("c").kind == Directive::Kind::Wait);
  job.pass(seconds(2));
  CHECK(job.leaves("c", 1));
  CHECK(job.told("c").why == Why::RankIsHeld);
  job.join("d", 0);
  CHECK(job.leaves("d", 1));  // the coordinator's own node is always there
  job.join("e", 2);
  CHECK(job.core.round() == 1);
}

TEST_CASE("coordinator: heartbeats that a dead holder had sent refuse no claim", "[rendezvous][unit]") {
  Job job(with_ranks(3));
  job.join("a", 0);
  job.join("b", 1);
  job.join("c", 1);
  for (int late = 0; late < 5; ++late) job.step(AgentBeat{job.nodes["b"].link});  // its network is back
  job.step(AgentGone{job.nodes["b"].link, "connection closed"});
  CHECK(job.told("c").kind == Directive::Kind::Wait);
  job.pass(seconds(20), "b");
  job.join("d", 2);
  CHECK(job.core.round() == 1);
  CHECK_FALSE(job.leaves("c", 1));
}

TEST_CASE("coordinator: a node that claims a held node rank hears how the job ended, and no refusal after it",
          "[rendezvous][unit]") {
  Job job(with_ranks(2, 0));
  job.join("a", 0);
  job.join("b", 1);
  job.start();
  job.fail("b", 1);
  job.end("b", false);
  job.join("c", 1);  // after the last that was heard from b
  job.stopped();
  const std::string end = job.told("b").reason;
  CHECK(job.leaves("c", 7));
  CHECK(job.told("c").reason == end);
  job.step(AgentBeat{job.nodes["b"].link});
  CHECK(job.told("c").reason == end);
}

TEST_CASE("coordinator: a held node rank goes to its claimant when the holder is lost", "[rendezvous][unit]") {
  Job job(with_ranks(2, 1));
  job.join("a", 0);
  job.join("b", 1);
  job.start();
  job.join("b2", 1);  // its host was switched off and on again
  job.pass(seconds(15), "b");
  CHECK(job.told("a").kind == Directive::Kind::Stop);
  job.nodes.erase("b");
  job.stopped();
  job.start();
  CHECK(job.runs("b2", 1));
  CHECK(job.told("a").assignment.restart_count == 1);
}

TEST_CASE("coordinator: a node that leaves gives its node rank to the node that claims it", "[rendezvous][unit]") {
  Job job(with_ranks(2, 1));
  job.join("a", 0);
  job.join("b", 1);
  job.start();
  job.join("c", 1);
  job.nodes["b"].state.left = true;
  job.end("b", false);
  CHECK_FALSE(job.leaves("c", 1));
  job.stopped();
  job.start();
  CHECK(job.runs("c", 1));
}

TEST_CASE("coordinator: a link that comes back in time costs nothing", "[rendezvous][unit]") {
  Job job(fixed(2));
  job.join("a");
  job.join("b");
  job.start();
  job.cut("b");
  job.pass(seconds(2), "b");
  job.reconnect("b");
  CHECK(job.runs("b", 1));  // told again
  job.pass(seconds(60));
  CHECK(job.runs("a", 0));
  CHECK(job.core.round() == 1);
}

TEST_CASE("coordinator: an elastic job goes on without a lost node and spends no restart", "[rendezvous][unit]") {
  Job job(elastic(2, 3));
  for (const char* host : {"a", "b", "c"}) job.join(host);
  job.start();
  job.gone("b");
  CHECK(job.told("a").kind == Directive::Kind::Stop);
  CHECK(job.told("a").why == Why::NodeLost);
  CHECK(job.core.round() == 1);  // not before all are idle
  job.stopped();
  job.start();
  CHECK(job.core.round() == 2);
  CHECK(job.runs("a", 0));
  CHECK(job.runs("c", 1));
  CHECK(job.told("c").assignment.restart_count == 0);
  CHECK(job.told("c").assignment.world_size == 2);
}

TEST_CASE("coordinator: all ranks of a lost node are published as dead", "[rendezvous][unit]") {
  Job job(elastic(2, 3));
  job.join("a", 0, 3);
  job.join("b", 0, 2);
  job.join("c", 0, 4);
  job.start();
  job.gone("b");
  CHECK(job.dead == std::vector<int>{3, 4});
}

TEST_CASE("coordinator: below min nodes a job with restarts waits for a replacement, one without ends",
          "[rendezvous][unit]") {
  for (const int restarts : {0, 1}) {
    Job job(elastic(2, 3, restarts));
    for (const char* host : {"a", "b"}) job.join(host);
    job.pass(seconds(10));
    job.start();
    job.gone("b");
    job.stopped();
    CHECK(job.leaves("a", 75) == (restarts == 0));
    if (restarts == 0) continue;
    job.join("c");
    job.start();
    CHECK(job.runs("c", 1));
    CHECK(job.core.restarts() == 0);
  }
}

TEST_CASE("coordinator: a job of a fixed size spends a restart on a replacement, and ends if none comes",
          "[rendezvous][unit]") {
  Job job(fixed(2, 1));
  job.join("a");
  job.join("b");
  job.start();
  job.gone("b");
  job.stopped();
  job.pass(seconds(30));
  CHECK(job.core.round() == 1);
  job.join("c");
  job.start();
  CHECK(job.runs("c", 1));
  CHECK(job.told("c").assignment.restart_count == 1);
  job.gone("c");
  job.stopped();
  CHECK(job.leaves("a", 75));  // the budget is used up

  Job alone(fixed(2, 1));
  alone.join("a");
  alone.join("b");
  alone.start();
  alone.gone("b");
  alone.stopped();
  alone.pass(seconds(60));
  CHECK(alone.told("a").why == Why::NotReplaced);
}

TEST_CASE("coordinator: a worker that fails with its node is the node's loss, not a failure of its own",
          "[rendezvous][unit]") {
  Job job(elastic(1, 2));
  job.join("a");
  job.join("b");
  job.start();
  job.fail("a", 0);  // "connection reset by peer", before the link is seen to break
  CHECK(job.told("a").kind == Directive::Kind::Stop);
  job.gone("b");
  job.stopped();
  job.start();
  CHECK(job.runs("a", 0));
  CHECK(job.core.restarts() == 0);
}

TEST_CASE("coordinator: a node that comes late starts a round with it, unless workers have succeeded",
          "[rendezvous][unit]") {
  Job job(elastic(1, 3));
  job.join("a");
  job.join("b");
  job.pass(seconds(10));
  job.start();
  job.join("c");
  CHECK(job.told("a").why == Why::NodeJoined);
  job.stopped();
  job.start();
  CHECK(job.runs("a", 0));
  CHECK(job.runs("b", 1));
  CHECK(job.runs("c", 2));
  CHECK(job.core.restarts() == 0);

  Job ending(elastic(1, 3));
  ending.join("a");
  ending.join("b");
  ending.pass(seconds(10));
  ending.start();
  ending.end("b", true);
  ending.join("c");
  CHECK(ending.told("a").kind == Directive::Kind::Run);
  ending.end("a", true);
  CHECK(ending.leaves("c", 0));
}

TEST_CASE("coordinator: a spare takes the place of a node that is lost", "[rendezvous][unit]") {
  Job job(elastic(1, 3));
  for (const char* host : {"a", "b", "c", "d"}) job.join(host);
  job.start();
  CHECK(job.told("d").why == Why::Spare);
  job.gone("b");
  job.stopped();
  job.start();
  CHECK(job.runs("c", 2));
  CHECK(job.runs("d", 1));
}

TEST_CASE("coordinator: a node that is told to stop leaves an elastic job, which goes on", "[rendezvous][unit]") {
  Job job(elastic(1, 3));
  for (const char* host : {"a", "b", "c"}) job.join(host);
  job.start();
  job.nodes["b"].state.stop_signal = SIGTERM;
  job.report("b");
  CHECK(job.told("c").why == Why::NodeLeft);
  job.stopped();
  CHECK(job.leaves("b", 128 + SIGTERM));
  job.start();
  CHECK(job.runs("c", 1));
  job.nodes["a"].state.stop_signal = SIGTERM;  // the coordinator's
  job.report("a");
  job.nodes.erase("b");
  job.stopped();
  CHECK(job.leaves("c", 128 + SIGTERM));
}

TEST_CASE("coordinator: a second signal kills on every node", "[rendezvous][unit]") {
  Job job(fixed(2));
  job.join("a");
  job.join("b");
  job.start();
  job.nodes["a"].state.stop_signal = SIGINT;
  job.report("a");
  CHECK(job.told("b").stop_signal == SIGINT);
  job.nodes["a"].state.stop_signal = SIGKILL;
  job.report("a");
  CHECK(job.told("b").stop_signal == SIGKILL);
  job.stopped();
  CHECK(job.leaves("b", 128 + SIGINT));
}

TEST_CASE("coordinator: a node that dies after its workers have succeeded is not missed", "[rendezvous][unit]") {
  Job job(fixed(2));
  job.join("a");
  job.join("b");
  job.start();
  job.end("b", true);
  job.gone("b");
  CHECK(job.told("a").kind == Directive::Kind::Run);
  job.end("a", true);
  CHECK(job.leaves("a", 0));
}

TEST_CASE("coordinator: its own agent is told to leave when the others have left", "[rendezvous][unit]") {
  Job job(fixed(2));
  job.join("a");
  job.join("b");
  job.start();
  job.end("a", true);
  job.end("b", true);
  CHECK(job.leaves("b", 0));
  CHECK(job.told("a").kind == Directive::Kind::Run);
  job.nodes["b"].state.left = true;
  job.report("b");
  CHECK(job.leaves("a", 0));
}

TEST_CASE("coordinator: a silent node that has succeeded delays the end by a second at most", "[rendezvous][unit]") {
  for (const auto& [silent_before, delay] :
       {std::pair(seconds(10), milliseconds(1000)), std::pair(seconds(0), milliseconds(3000))}) {
    Job job(fixed(2));
    job.join("a");
    job.join("b");
    job.start();
    job.end("b", true);
    job.pass(silent_before, "b");
    job.end("a", true);
    job.pass(delay - milliseconds(500), "b");
    CHECK(job.told("a").kind == Directive::Kind::Run);
    job.pass(milliseconds(500), "b");
    CHECK(job.leaves("a", 0));
  }
}

TEST_CASE("coordinator: a silent node whose workers were stopped has all of its time to hear the end",
          "[rendezvous][unit]") {
  Job job(fixed(2));
  job.join("a");
  job.join("b");
  job.start();
  job.fail("a", 0);
  job.stopped();
  job.pass(seconds(14), "b");
  CHECK(job.told("a").kind == Directive::Kind::Stop);
  job.pass(seconds(1), "b");
  CHECK(job.leaves("a", 7));
}

TEST_CASE("coordinator: a node whose keeper says that it has left is lost at once", "[rendezvous][unit]") {
  Job job(fixed(2));
  job.join("a");
  job.join("b");
  job.start();
  job.cut("b");
  job.nodes["b"].state.left = true;
  job.nodes["b"].state.stopped_because = "its agent was killed by SIGKILL";
  job.reconnect("b");
  CHECK(job.told("a").kind == Directive::Kind::Stop);
  CHECK(job.told("a").why == Why::NodeLeft);
}

TEST_CASE("coordinator: the replacement of a node that ends its workers waits until it has left",
          "[rendezvous][unit]") {
  Job job(with_ranks(2, 1));
  job.join("a", 0);
  job.join("b", 1);
  job.start();
  job.nodes["b"].state.stopped_because = "its connection to the head has ended";
  job.nodes["b"].state.phase = WorkersPhase::Stopping;
  job.report("b");
  CHECK(job.told("a").why == Why::NodeStopped);
  job.join("c", 1);
  job.pass(seconds(5));
  CHECK(job.told("c").kind == Directive::Kind::Wait);
  job.end("a", false);
  CHECK(job.core.restarts() == 0);
  job.nodes["b"].state.left = true;
  job.end("b", false);
  job.nodes.erase("b");
  job.start();
  CHECK(job.core.restarts() == 1);
  CHECK((job.runs("a", 0) && job.runs("c", 1)));
}

TEST_CASE("coordinator: a hang costs a restart, also in an elastic job, or ends the job", "[rendezvous][unit]") {
  for (const auto& [hang, restarts] :
       {std::pair(Hang::None, 0), std::pair(Hang::Restart, 1), std::pair(Hang::End, 0)}) {
    Job job(elastic(1, 2, 1));
    job.join("a");
    job.join("b");
    job.start();
    job.nodes["b"].state.stopped_because = "no output for 30 s: rank 0 is late";
    job.nodes["b"].state.hang = hang;
    job.report("b");
    CHECK(job.told("a").kind == Directive::Kind::Stop);
    CHECK(job.told("a").why == (hang == Hang::None ? Why::NodeStopped : Why::Hang));
    for (const char* node : {"a", "b"}) {
      job.nodes[node].state.phase = WorkersPhase::Idle;
      job.report(node);
    }
    CHECK(job.core.restarts() == restarts);
    CHECK((job.told("b").kind == Directive::Kind::Exit) == (hang == Hang::End));
    if (hang == Hang::End) CHECK(job.told("b").exit_code == 1);
  }
}

TEST_CASE("coordinator: a node that was lost with its workers comes back as a new one", "[rendezvous][unit]") {
  Job job(elastic(1, 2));
  job.join("a");
  job.join("b");
  job.start();
  job.pass(seconds(15), "b");
  job.nodes["a"].state.phase = WorkersPhase::Idle;
  job.report("a");
  job.start();
  CHECK(job.core.round() == 2);
  job.reconnect("b");  // still in round 1
  CHECK(job.told("b").kind == Directive::Kind::Stop);
  CHECK(job.core.round() == 2);
  job.nodes["b"].state.round = 2;
  job.end("b", false);
  CHECK(job.told("a").why == Why::NodeJoined);
}

TEST_CASE("coordinator: after its own process was stopped, nodes have all of their time again", "[rendezvous][unit]") {
  Job job(fixed(2));
  job.join("a");
  job.join("b");
  job.start();
  job.pass(seconds(1));
  job.now += seconds(40);
  job.step(CoordinatorTick{});
  CHECK(job.runs("b", 1));
  job.pass(seconds(15), "b");
  CHECK(job.told("a").kind == Directive::Kind::Stop);
}

TEST_CASE("coordinator: a job whose store cannot be opened ends and says why", "[rendezvous][unit]") {
  Job job(fixed(2));
  job.join("a");
  job.join("b");
  job.step(StoreOpened{1, "", 0, "too many open files"});
  CHECK(job.leaves("b", 1));
  CHECK(job.told("b").why == Why::NoStore);
}

TEST_CASE("coordinator: the end waits a second for a node without workers, whatever it sends", "[rendezvous][unit]") {
  Job job(elastic(1, 2));
  for (const char* host : {"a", "b", "stranger"}) job.join(host);
  job.start();
  REQUIRE(job.told("stranger").kind == Directive::Kind::Wait);
  for (const char* host : {"a", "b"}) job.end(host, true);
  REQUIRE(job.leaves("b", 0));
  job.nodes["b"].state.left = true;
  job.report("b");
  job.nodes.erase("b");
  CHECK_FALSE(job.leaves("a", 0));
  job.pass(kAnswerToEnd);  // the stranger beats, and does not leave
  CHECK(job.leaves("a", 0));
}

TEST_CASE("coordinator: a node that stopped its workers while it was silent explains what its peers reported meanwhile",
          "[rendezvous][unit]") {
  Job job(elastic(1, 2, 1));
  for (const char* host : {"a", "b"}) job.join(host);
  job.start();
  job.pass(seconds(10), "b");
  job.fail("a", 0);  // its connections to b's workers were reset
  job.pass(seconds(3), "b");
  job.nodes["b"].state.stopped_because = "its agent did not run";
  job.report("b");  // over the same link
  job.stopped();
  job.start();
  CHECK(job.core.round() == 2);
  CHECK(job.core.restarts() == 0);
}

TEST_CASE(
    "coordinator: with --on-failure replace the next round opens once all nodes are quiet or idle, and spends a "
    "restart",
    "[rendezvous][unit]") {
  JobShape shape = fixed(3, 1);
  shape.survivors_stay = true;
  Job job(shape);
  for (const char* host : {"a", "b", "c"}) job.join(host);
  job.start();
  job.fail("b", 1);
  for (const char* host : {"a", "b", "c"}) {
    CHECK(job.told(host).kind == Directive::Kind::Stop);
    CHECK(job.told(host).survivors_stay);
  }
  const auto become_quiet = [&](const std::string& host) {
    job.nodes[host].state.phase = WorkersPhase::Quiet;
    job.report(host);
  };
  become_quiet("a");
  job.end("b", false);
  CHECK(job.core.round() == 1);
  become_quiet("c");
  CHECK(job.core.round() == 2);
  job.start();
  CHECK(job.told("a").assignment.restart_count == 1);

  job.fail("c", 2);  // no restart is left: nobody stays
  CHECK(job.told("a").kind == Directive::Kind::Stop);
  CHECK_FALSE(job.told("a").survivors_stay);
}

TEST_CASE("coordinator: workers that stay wait for the replacement of a lost node, and end if there is none",
          "[rendezvous][unit]") {
  JobShape shape = fixed(2, 1);
  shape.survivors_stay = true;
  Job job(shape);
  job.join("a");
  job.join("b");
  job.start();
  job.gone("b");
  CHECK(job.told("a").survivors_stay);
  job.nodes["a"].state.phase = WorkersPhase::Quiet;
  job.report("a");
  SECTION("it comes") {
    job.join("c");
    CHECK(job.core.round() == 2);
  }
  SECTION("it does not") {
    job.pass(seconds(61));
    CHECK(job.told("a").kind == Directive::Kind::Stop);  // its workers first
    CHECK_FALSE(job.told("a").survivors_stay);
    CHECK_FALSE(job.core.over());
    job.stopped();
    CHECK(job.leaves("a", 75));
  }
}

TEST_CASE("coordinator: a user's signal ends workers that stay", "[rendezvous][unit]") {
  JobShape shape = fixed(2, 3);
  shape.survivors_stay = true;
  Job job(shape);
  job.join("a");
  job.join("b");
  job.start();
  job.fail("b", 1);
  job.nodes["a"].state.phase = WorkersPhase::Quiet;
  job.nodes["a"].state.stop_signal = SIGTERM;
  job.report("a");
  CHECK(job.told("a").kind == Directive::Kind::Stop);
  CHECK_FALSE(job.told("a").survivors_stay);
}

TEST_CASE("coordinator: a node that was lost with workers that wait is told to kill them", "[rendezvous][unit]") {
  JobShape shape = fixed(2, 3);
  shape.survivors_stay = true;
  Job job(shape);
  job.join("a");
  Job::Node lost;
  lost.link = ++job.links;
  lost.state.job = shape;
  lost.state.incarnation = lost.state.host = "b";
  lost.state.addresses = {"fd00::b"};
  lost.state.slots = 1;
  lost.state.epoch = "e";
  lost.state.phase = WorkersPhase::Quiet;
  job.nodes["b"] = lost;
  job.report("b");
  CHECK(job.told("b").stop_signal == SIGKILL);
}

TEST_CASE("coordinator: a node that has served a coordinator before this one is to be started again",
          "[rendezvous][unit]") {
  Job job(with_ranks(2));
  job.join("a", 0);
  Job::Node& served = job.nodes["b"];
  served.link = ++job.links;
  served.state.job = with_ranks(2);
  served.state.incarnation = served.state.host = "b";
  served.state.node_rank = 1;
  served.state.epoch = "of another one";
  job.report("b");
  CHECK(job.leaves("b", 75));
  CHECK(job.told("b").why == Why::JobIsGone);
}

TEST_CASE("coordinator: all nodes are to be given the same --on-failure", "[rendezvous][unit]") {
  Job job(fixed(2, 3));
  job.join("a");
  job.job.survivors_stay = true;
  job.join("b");
  CHECK(job.leaves("b", 1));
  CHECK(job.told("b").why == Why::OptionsDiffer);
}
