// SPDX-License-Identifier: BSD-3-Clause
// Workers that stay when others fail: one node's side of it.
#include <catch2/catch.hpp>
#include <csignal>
#include <vector>

#include "launcher/agent/agent_core.hpp"
#include "tests/launcher/agent/stepped_agent.hpp"

using Catch::Matchers::Contains;
using namespace ddp::launcher;
using ddp::rendezvous::Directive;
using ddp::rendezvous::ExitStatus;
using ddp::rendezvous::WallTime;
using ddp::rendezvous::WorkersPhase;
using std::chrono::milliseconds;
using std::chrono::seconds;

namespace {

// A node of three workers, of which some have said that they can stay.
struct Node final : SteppedAgent {
  explicit Node(const std::vector<int>& staying = {0, 1, 2})
      : SteppedAgent({.job = {.id = "j", .max_restarts = 3, .survivors_stay = true},
                      .incarnation = "i",
                      .host = "a",
                      .workers = 3,
                      .shutdown_timeout = seconds(5)}) {
    step(LinkUp{});
    run(1);
    step(WorkersStarted{{100, 101, 102}});
    for (const int local_rank : staying) step(WorkerStays{local_rank, true});
  }

  bool reads_words = true;  // answers ReadWords at once

  void step(const AgentEvent& event) override {
    SteppedAgent::step(event);
    const auto* const read = find<ReadWords>();
    if (!read || !reads_words) return;
    WordsRead words{read->local_ranks, {}};
    for (const int local_rank : read->local_ranks) words.words.push_back(words_of(local_rank));
    core.step(now, words, actions);
  }
  static WorkerWords words_of(int local_rank) {
    return {.message = "out of luck", .stderr_tail = {"worker " + std::to_string(local_rank) + " says goodbye"}};
  }
  void run(int round, int base_rank = 0, int world_size = 3) {
    Directive directive{.kind = Directive::Kind::Run, .round = round};
    directive.assignment = {.node_count = 1,
                            .base_rank = base_rank,
                            .world_size = world_size,
                            .role_world_size = world_size,
                            .max_restarts = 3};
    directive.reason = "restart";
    step(DirectiveArrived{directive});
  }
  void stop(int round, bool survivors_stay, int signal = SIGTERM) {
    step(DirectiveArrived{
        {.kind = Directive::Kind::Stop, .round = round, .stop_signal = signal, .survivors_stay = survivors_stay}});
  }
  void exit(int local_rank, ExitStatus status) {
    step(WorkerExited{local_rank, status, WallTime(milliseconds(1)), "", {}});
  }
  WorkersPhase phase() const { return core.state().phase; }
};

}  // namespace

TEST_CASE("agent survivors: a round is revoked, all become quiet, and the next one starts only what is missing",
          "[launcher][unit]") {
  Node node;
  node.exit(1, {.signal = SIGKILL});
  CHECK(node.core.state().failures.size() == 1);
  node.stop(1, true);
  CHECK(node.find<RevokeRound>());
  CHECK_FALSE(node.find<SignalWorkers>());
  CHECK_FALSE(node.find<SignalWorker>());
  node.step(WorkerQuiet{0, 1});
  CHECK(node.phase() == WorkersPhase::Stopping);
  node.step(WorkerQuiet{2, 1});
  REQUIRE(node.find<SendReport>());
  CHECK(node.find<SendReport>()->state.phase == WorkersPhase::Quiet);

  node.run(2);
  REQUIRE(node.find<StartMissing>());
  CHECK(node.find<StartMissing>()->local_ranks == std::vector<int>{1});
  CHECK_THAT(node.find<LogLine>()->text, Contains("2 of 3 workers of this node stay"));
  CHECK(node.find<SendReport>()->state.phase == WorkersPhase::Running);
  CHECK(node.core.state().failures.empty());
  node.step(MissingStarted{1, 103});
  for (const int local_rank : {0, 1, 2}) node.exit(local_rank, {});
  node.step(AllGone{{{}, {}, {}}});
  CHECK(node.core.state().succeeded);
}

TEST_CASE("agent survivors: the next round waits until each worker is quiet or reaped", "[launcher][unit]") {
  Node node;
  node.step(WorkerDying{1, {.signal = SIGSEGV}, WallTime(milliseconds(1)), {}});
  node.step(WorkerQuiet{0, 1});  // before this node hears of the stop
  node.step(WorkerQuiet{2, 1});
  node.stop(1, true);
  CHECK(node.phase() == WorkersPhase::Stopping);  // one is dying, and still has its memory
  node.exit(1, {.signal = SIGSEGV});
  CHECK(node.phase() == WorkersPhase::Quiet);
}

TEST_CASE("agent survivors: a worker that was quiet and has exited before the stop came belongs to the round that ends",
          "[launcher][unit]") {
  Node node;
  node.step(WorkerQuiet{0, 1});
  node.step(WorkerQuiet{1, 1});
  DirectiveArrived stop{{.kind = Directive::Kind::Stop, .round = 1, .stop_signal = SIGTERM, .survivors_stay = true}};
  stop.exiting = {0};
  node.step(stop);
  node.step(WorkerQuiet{0, 1});  // late
  node.step(WorkerQuiet{2, 1});
  CHECK(node.phase() == WorkersPhase::Stopping);
  node.exit(0, {.code = 1});
  CHECK(node.phase() == WorkersPhase::Quiet);
  node.run(2);
  CHECK(node.find<StartMissing>()->local_ranks == std::vector<int>{0});
  CHECK(node.core.state().failures.empty());
}

TEST_CASE("agent survivors: what a worker says about another round counts for nothing", "[launcher][unit]") {
  Node node;
  node.exit(1, {.signal = SIGKILL});
  node.step(WorkerQuiet{0, 7});
  node.stop(1, true);
  node.step(WorkerQuiet{2, 1});
  CHECK(node.phase() == WorkersPhase::Stopping);
}

TEST_CASE("agent survivors: a worker that cannot stay is told to end, and it is no cause", "[launcher][unit]") {
  Node node(std::vector<int>{0});
  node.exit(1, {.signal = SIGKILL});
  node.stop(1, true);
  REQUIRE(node.find<SignalWorker>());
  CHECK(node.find<SignalWorker>()->local_rank == 2);
  CHECK(node.find<SignalWorker>()->signal == SIGTERM);
  CHECK_THAT(node.find<LogLine>()->text, Contains("rank 2"));
  node.step(WorkerQuiet{0, 1});
  node.exit(2, {.signal = SIGTERM});
  CHECK(node.phase() == WorkersPhase::Quiet);
  CHECK(node.core.state().failures.back().stopped_by_ddprun);
  node.run(2);
  CHECK(node.find<StartMissing>()->local_ranks == std::vector<int>{1, 2});
}

TEST_CASE("agent survivors: a worker that was told to end ends, also if it says then that it stays and is quiet",
          "[launcher][unit]") {
  Node node(std::vector<int>{0, 1});
  node.exit(1, {.signal = SIGKILL});
  node.stop(1, true);
  REQUIRE(node.find<SignalWorker>());
  node.step(WorkerQuiet{0, 1});
  node.step(WorkerStays{2, true});  // this node was suspended, and reads it late
  node.step(WorkerQuiet{2, 1});
  CHECK(node.phase() == WorkersPhase::Stopping);
  node.exit(2, {.signal = SIGTERM});
  CHECK(node.phase() == WorkersPhase::Quiet);
}

TEST_CASE("agent survivors: where no worker can stay, all are stopped as in every restart", "[launcher][unit]") {
  Node node(std::vector<int>{});
  node.exit(1, {.signal = SIGKILL});
  node.stop(1, true);
  CHECK(node.find<SignalWorkers>());
  CHECK_FALSE(node.find<RevokeRound>());
}

TEST_CASE("agent survivors: a worker that does not become quiet in time is killed, and its place is filled",
          "[launcher][unit]") {
  Node node;
  node.exit(1, {.signal = SIGKILL});
  node.stop(1, true);
  node.step(WorkerQuiet{0, 1});
  node.now += seconds(5);
  node.step(Tick{});
  REQUIRE(node.find<SignalWorker>());
  CHECK(node.find<SignalWorker>()->local_rank == 2);
  CHECK(node.find<SignalWorker>()->signal == SIGKILL);
  SECTION("it dies") {
    node.exit(2, {.signal = SIGKILL});
    CHECK(node.phase() == WorkersPhase::Quiet);
  }
  SECTION("it has said meanwhile that it is quiet: it is waited for all the same, since it dies") {
    node.step(WorkerQuiet{2, 1});
    CHECK(node.phase() == WorkersPhase::Stopping);
    node.exit(2, {.signal = SIGKILL});
    CHECK(node.phase() == WorkersPhase::Quiet);
    node.run(2);
    CHECK(node.find<StartMissing>()->local_ranks == std::vector<int>{1, 2});
  }
  SECTION("it cannot be killed: then no worker stays") {
    node.now += kUnkillableAfter;
    node.step(Tick{});
    CHECK(node.find<KillDescendants>());
  }
}

TEST_CASE("agent survivors: a node that kills workers that were quiet is not quiet, and waits until they are reaped",
          "[launcher][unit]") {
  Node node;
  node.stop(1, true);
  for (const int local_rank : {0, 1, 2}) node.step(WorkerQuiet{local_rank, 1});
  REQUIRE(node.phase() == WorkersPhase::Quiet);
  node.stop(1, false, SIGKILL);
  CHECK(node.find<KillDescendants>());
  CHECK(node.phase() == WorkersPhase::Stopping);
  node.run(2);  // it was on its way
  for (const int local_rank : {0, 1}) node.exit(local_rank, {.signal = SIGKILL});
  SECTION("then it begins the next round") {
    node.exit(2, {.signal = SIGKILL});
    node.step(AllGone{});
    CHECK(node.find<StartWorkers>());
  }
  SECTION("beside one that cannot be killed it begins none") {
    node.now += kUnkillableAfter;
    node.step(Tick{});
    CHECK_FALSE(node.find<StartWorkers>());
    const auto& state = node.core.state();
    CHECK(state.round == 2);
    CHECK(state.phase == WorkersPhase::Idle);
    CHECK_THAT(state.stopped_because, Contains("cannot be killed"));
    CHECK(state.unkillable == std::vector<int>{102});
  }
}

TEST_CASE("agent survivors: one that dies while it is quiet is started again", "[launcher][unit]") {
  Node node;
  node.exit(1, {.signal = SIGKILL});
  node.stop(1, true);
  node.step(WorkerQuiet{0, 1});
  node.step(WorkerQuiet{2, 1});
  node.exit(2, {.signal = SIGKILL});
  CHECK(node.phase() == WorkersPhase::Quiet);
  node.run(2);
  CHECK(node.find<StartMissing>()->local_ranks == std::vector<int>{1, 2});
}

TEST_CASE("agent survivors: those that wait end with the job, whatever ends it", "[launcher][unit]") {
  Node node;
  node.exit(1, {.signal = SIGKILL});
  node.stop(1, true);
  node.step(WorkerQuiet{0, 1});
  node.step(WorkerQuiet{2, 1});
  SECTION("a stop without survivors") {
    node.stop(1, false, SIGINT);
    REQUIRE(node.find<SignalWorkers>());
    CHECK(node.find<SignalWorkers>()->signal == SIGINT);
  }
  SECTION("the end") {
    node.step(DirectiveArrived{{.kind = Directive::Kind::Exit, .round = 1, .exit_code = 1, .reason = "over"}});
    CHECK(node.find<SignalWorkers>());
    CHECK_FALSE(node.find<Leave>());
  }
  SECTION("SIGKILL") {
    node.stop(1, false, SIGKILL);
    CHECK(node.find<KillDescendants>());
  }
  SECTION("the guardian's death") {
    node.step(GuardianGone{});
    CHECK(node.find<KillDescendants>());
  }
}

TEST_CASE("agent survivors: a failure of the new round revokes it as well", "[launcher][unit]") {
  Node node;
  node.exit(1, {.signal = SIGKILL});
  node.stop(1, true);
  node.step(WorkerQuiet{0, 1});
  node.step(WorkerQuiet{2, 1});
  node.run(2);
  node.exit(1, {.code = 1});
  CHECK(node.core.state().failures.front().rank == 1);
  node.stop(2, true);
  CHECK(node.phase() == WorkersPhase::Stopping);
  node.step(WorkerQuiet{0, 2});
  node.step(WorkerQuiet{2, 2});
  CHECK(node.phase() == WorkersPhase::Quiet);
}

TEST_CASE("agent survivors: quiet is reported once it is known what the dead have written", "[launcher][unit]") {
  Node node;
  node.reads_words = false;
  node.exit(1, {.signal = SIGSEGV});
  node.stop(1, true);
  node.step(WorkerQuiet{0, 1});
  node.step(WorkerQuiet{2, 1});
  REQUIRE(node.find<ReadWords>());
  CHECK(node.find<ReadWords>()->local_ranks == std::vector<int>{1});
  CHECK(node.phase() == WorkersPhase::Stopping);
  node.step(WordsRead{{1}, {Node::words_of(1)}});
  REQUIRE(node.find<SendReport>());
  const auto& state = node.find<SendReport>()->state;
  CHECK(state.phase == WorkersPhase::Quiet);
  CHECK(state.failures.front().message == "out of luck");
  CHECK(state.failures.front().stderr_tail == std::vector<std::string>{"worker 1 says goodbye"});

  node.exit(2, {.signal = SIGKILL});  // the words of one that dies while it waits come first, too
  CHECK_FALSE(node.find<SendReport>());
  REQUIRE(node.find<ReadWords>());
  CHECK(node.find<ReadWords>()->local_ranks == std::vector<int>{2});
  node.step(WordsRead{{2}, {Node::words_of(2)}});
  CHECK(node.find<SendReport>()->state.failures.back().stderr_tail.front() == "worker 2 says goodbye");

  node.run(2);
  node.step(WordsRead{{1}, {Node::words_of(1)}});  // late: it is another process's place now
  CHECK(node.core.state().failures.empty());
}

TEST_CASE("agent survivors: ranks and the world's size are those of the new round", "[launcher][unit]") {
  Node node;
  node.stop(1, true);  // another node was lost
  for (const int local_rank : {0, 1, 2}) node.step(WorkerQuiet{local_rank, 1});
  CHECK(node.phase() == WorkersPhase::Quiet);
  CHECK_FALSE(node.find<ReadWords>());
  node.run(2, 2, 5);
  REQUIRE(node.find<StartMissing>());
  CHECK(node.find<StartMissing>()->local_ranks.empty());
  CHECK(node.find<StartMissing>()->assignment.world_size == 5);
  node.exit(1, {.signal = SIGKILL});
  CHECK(node.core.state().failures.front().rank == 3);
}

TEST_CASE("agent survivors: a worker that stays no longer is about to end, and its node says so once",
          "[launcher][unit]") {
  Node node(std::vector<int>{0, 1});
  node.step(WorkerStays{2, false});  // it never could
  CHECK_FALSE(node.core.state().is_ending);
  node.step(WorkerStays{1, false});
  REQUIRE(node.find<SendReport>());
  CHECK(node.find<SendReport>()->state.is_ending);
  node.step(WorkerStays{0, false});
  CHECK_FALSE(node.find<SendReport>());
  node.exit(0, {.signal = SIGKILL});
  node.stop(1, true);  // now none can stay
  for (const int local_rank : {1, 2}) node.exit(local_rank, {.signal = SIGTERM});
  node.step(AllGone{{{}, {}, {}}});
  node.run(2);
  CHECK_FALSE(node.core.state().is_ending);
}

TEST_CASE("agent survivors: a worker that was quiet and dies is waited for until it is reaped", "[launcher][unit]") {
  Node node;
  for (const int local_rank : {0, 1, 2}) node.step(WorkerQuiet{local_rank, 1});  // a peer on another node has died
  node.step(WorkerDying{1, {.signal = SIGSEGV}, WallTime(milliseconds(1)), {}});
  node.step(WorkerQuiet{1, 1});  // what it said before
  node.stop(1, true);
  CHECK(node.phase() == WorkersPhase::Stopping);
  node.exit(1, {.signal = SIGSEGV});
  CHECK(node.phase() == WorkersPhase::Quiet);
  CHECK_FALSE(node.core.state().failures.front().stderr_tail.empty());
}

TEST_CASE("agent survivors: the next round waits for one that begins to die while it is quiet", "[launcher][unit]") {
  Node node;
  node.stop(1, true);
  for (const int local_rank : {0, 1, 2}) node.step(WorkerQuiet{local_rank, 1});
  REQUIRE(node.phase() == WorkersPhase::Quiet);
  node.step(WorkerDying{2, {.signal = SIGKILL}, WallTime(milliseconds(1)), {}});
  CHECK(node.phase() == WorkersPhase::Stopping);
  node.run(2);
  CHECK_FALSE(node.find<StartMissing>());
  node.exit(2, {.signal = SIGKILL});
  REQUIRE(node.find<StartMissing>());
  CHECK(node.find<StartMissing>()->local_ranks == std::vector<int>{2});
}
