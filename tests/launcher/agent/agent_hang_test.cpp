// SPDX-License-Identifier: BSD-3-Clause
// When an agent takes the stacks of its workers before it stops them, and what it does about a hang.
#include <catch2/catch.hpp>
#include <csignal>
#include <string>
#include <vector>

#include "launcher/agent/agent_core.hpp"
#include "tests/launcher/agent/stepped_agent.hpp"

using namespace ddp::launcher;
using ddp::rendezvous::Directive;
using ddp::rendezvous::Hang;
using ddp::rendezvous::WorkerFailure;
using std::chrono::seconds;

namespace {

// An agent that runs the two workers of round 1, and the actions of its last step.
struct Running final : SteppedAgent {
  explicit Running(int restarts_so_far, OnHang on_hang = OnHang::Tell, bool takes_stacks = true,
                   bool keeps_memory = false, int nodes = 1)
      : SteppedAgent({.job = {.id = "j", .max_nodes = nodes, .max_restarts = 2},
                      .incarnation = "i",
                      .host = "a",
                      .workers = 2,
                      .takes_stacks = takes_stacks,
                      .keeps_memory = keeps_memory,
                      .on_hang = on_hang}) {
    step(LinkUp{});
    Directive run{.kind = Directive::Kind::Run, .round = 1};
    run.assignment = {
        .node_count = 1, .world_size = 2, .role_world_size = 2, .restart_count = restarts_so_far, .max_restarts = 2};
    step(DirectiveArrived{run});
    step(WorkersStarted{{100, 101}});
  }

  // Stops the round because of a failure with this message, or for another reason, and returns what becomes of the
  // stacks.
  StacksUse stop(const std::optional<std::string>& message) {
    Directive stop{.kind = Directive::Kind::Stop, .round = 1, .stop_signal = SIGTERM, .reason = "why"};
    if (message) stop.cause = WorkerFailure{.rank = 7, .host = "b", .message = *message};
    step(DirectiveArrived{stop});
    REQUIRE(find<SignalWorkers>());
    return find<SignalWorkers>()->stacks;
  }
};

constexpr char kTimeout[] = "RuntimeError: Timed out waiting 1800000ms for send operation to complete";

}  // namespace

TEST_CASE("agent: a failure on any node with no restart left has the stacks of all nodes in the report",
          "[launcher][unit]") {
  CHECK(Running(2).stop("ValueError") == StacksUse::Reported);
  CHECK(Running(2).stop(kTimeout) == StacksUse::Reported);
}

TEST_CASE("agent: with a restart left only a timeout has its stacks taken, and not with --keep-memory",
          "[launcher][unit]") {
  CHECK(Running(1).stop("ValueError") == StacksUse::NotTaken);
  CHECK(Running(1).stop(kTimeout) == StacksUse::Logged);
  CHECK(Running(1, OnHang::Tell, true, true).stop(kTimeout) == StacksUse::NotTaken);
}

TEST_CASE("agent: a stop that no failure caused takes no stacks, nor does any with --stacks-timeout 0",
          "[launcher][unit]") {
  CHECK(Running(2).stop(std::nullopt) == StacksUse::NotTaken);
  CHECK(Running(2, OnHang::Tell, false).stop(kTimeout) == StacksUse::NotTaken);
  Running user(2);
  user.step(StopSignal{SIGTERM});
  CHECK_FALSE(user.find<SignalWorkers>());  // the coordinator decides
}

TEST_CASE("agent: a hang changes nothing, or ends the round, or the job", "[launcher][unit]") {
  Running tells(0, OnHang::Tell);
  tells.step(HangFound{"no step for 5 s"});
  CHECK(tells.actions.empty());

  Running restarts(0, OnHang::Restart);
  restarts.step(HangFound{"no step for 5 s"});
  REQUIRE(restarts.find<SendReport>());
  CHECK(restarts.find<SendReport>()->state.stopped_because == "no step for 5 s");
  REQUIRE(restarts.find<SignalWorkers>());
  CHECK(restarts.find<SignalWorkers>()->signal == SIGTERM);

  Running stops(0, OnHang::Stop);
  stops.step(HangFound{"no step for 5 s"});
  REQUIRE(stops.find<SignalWorkers>());
  for (int worker = 0; worker < 2; ++worker) stops.step(WorkerExited{worker, {.signal = SIGTERM}, {}, "", {}});
  stops.step(AllGone{});
  REQUIRE(stops.find<Leave>());
  CHECK(stops.find<Leave>()->exit_code == 1);
  CHECK(stops.find<Leave>()->directive.reason == "no step for 5 s");
}

TEST_CASE("agent: in a job of several nodes the coordinator hears that a hang is to end it, or to cost a restart",
          "[launcher][unit]") {
  for (const auto& [on_hang, told] : {std::pair(OnHang::Restart, Hang::Restart), std::pair(OnHang::Stop, Hang::End)}) {
    Running node(0, on_hang, true, false, 2);
    node.step(HangFound{"no step for 5 s"});
    REQUIRE(node.find<SendReport>());
    CHECK(node.find<SendReport>()->state.hang == told);
    CHECK(node.find<SignalWorkers>());
  }
}

TEST_CASE("agent: where a worker waits for the next round already, a hang changes nothing", "[launcher][unit]") {
  Running node(0, OnHang::Restart, true, false, 2);
  node.step(WorkerStays{0, true});
  node.step(WorkerQuiet{0, 1});
  node.step(HangFound{"no step for 5 s"});
  CHECK(node.actions.empty());
}

TEST_CASE("agent: a hang that is found while the workers are stopped changes nothing", "[launcher][unit]") {
  Running stopping(2, OnHang::Restart);
  stopping.stop("ValueError");
  stopping.step(HangFound{"no step for 5 s"});
  CHECK(stopping.actions.empty());
}
