// SPDX-License-Identifier: BSD-3-Clause
// A coordinator that lies to a real agent.
#include <signal.h>

#include <catch2/catch.hpp>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "rendezvous/net/listen.hpp"
#include "tests/attacks/link_speaker.hpp"
#include "tests/integration/ddprun.hpp"

using Catch::Matchers::Contains;
using ddp::rendezvous::AgentState;
using ddp::rendezvous::Directive;
using ddp::rendezvous::WorkersPhase;
using ddp::testing::ddprun;
using ddp::testing::LinkSpeaker;
using ddp::testing::Process;

namespace {

using Kind = Directive::Kind;

// A port at which a test plays the coordinator.
class FalseCoordinator {
 public:
  FalseCoordinator() : listening_(ddp::rendezvous::listen_on({"127.0.0.1"}, 0)) {}
  int port() const { return listening_.port; }
  // Waits for an agent's link.
  LinkSpeaker accept() const {
    pollfd ready{listening_.sockets[0].get(), POLLIN, 0};
    if (::poll(&ready, 1, 20'000) != 1) throw std::runtime_error("no agent comes");
    const int fd = ::accept4(ready.fd, nullptr, nullptr, SOCK_CLOEXEC);
    return LinkSpeaker::coordinator(fd);
  }

 private:
  ddp::rendezvous::Listeners listening_;
};

std::vector<std::string> node1(int port, const std::vector<std::string>& verbs) {
  return ddprun({"--nproc-per-node=2", "--nnodes=2", "--node-rank=1", "--max-restarts=0", "--master-addr=127.0.0.1",
                 "--master-port=" + std::to_string(port)},
                verbs);
}

Directive some(Kind kind, const std::string& reason = "a reason") {
  Directive directive;
  directive.kind = kind;
  directive.epoch = "e";
  directive.lost_after = std::chrono::seconds(15);
  directive.reason = reason;
  return directive;
}

Directive honest_run() {
  Directive run = some(Kind::Run);
  run.round = 1;
  run.assignment = {.node_rank = 1,
                    .node_count = 2,
                    .base_rank = 2,
                    .world_size = 4,
                    .base_role_rank = 2,
                    .role_world_size = 4,
                    .master_addr = "127.0.0.1",
                    .master_port = 29500};
  return run;
}

}  // namespace

TEST_CASE("directives: one that cannot be meant closes the link with the reason, and is not obeyed",
          "[attacks][integration]") {
  const FalseCoordinator coordinator;
  Process node(node1(coordinator.port(), {"say=up", "wait"}));
  const auto run_with = [](const std::function<void(ddp::rendezvous::Assignment&)>& change) {
    Directive run = honest_run();
    change(run.assignment);
    return run;
  };
  const auto stop_with = [](int signal) {
    Directive stop = some(Kind::Stop);
    stop.round = 1;
    stop.stop_signal = signal;
    return stop;
  };
  const auto exit_with = [](int code, ddp::rendezvous::ExitStatus status) {
    Directive exit = some(Kind::Exit);
    exit.exit_code = code;
    exit.cause.emplace().status = status;
    return exit;
  };
  Directive busy = some(Kind::Wait);
  busy.lost_after = std::chrono::milliseconds(1);
  Directive ever = some(Kind::Wait);
  ever.lost_after = std::chrono::milliseconds::max();
  const std::vector<std::pair<std::string, Directive>> kLies = {
      {"stop_signal is 200", stop_with(200)},
      {"stop_signal is 64", stop_with(64)},
      {"stop_signal is 33", stop_with(33)},
      {"stop_signal is -1", stop_with(-1)},
      {"exit_code is 256", exit_with(256, {.code = 1})},
      {"exit_code is 0, and workers failed", exit_with(0, {.code = 1})},
      {"a failure has exit code 0", exit_with(1, {})},
      {"exit_code and the cause's code differ", exit_with(1, {.code = 7})},
      {"master_addr has characters", run_with([](auto& a) { a.master_addr = std::string("127.0.0.1\0-x", 12); })},
      {"node_rank is -5", run_with([](auto& a) { a.node_rank = -5; })},
      {"world_size is 2000000000", run_with([](auto& a) { a.world_size = 2'000'000'000; })},
      {"base_rank is 10000000", run_with([](auto& a) { a.base_rank = 10'000'000; })},
      {"restart_count is -1", run_with([](auto& a) { a.restart_count = -1; })},
      {"lost_after_ms is 1", busy},
      {"lost_after_ms is 9223372036854775807", ever},
  };
  for (const auto& [reason, lie] : kLies) {
    INFO(reason);
    LinkSpeaker link = coordinator.accept();
    REQUIRE(link.is_up());
    const auto state = link.hear<AgentState>();
    REQUIRE(state);
    CHECK(state->phase == WorkersPhase::Idle);
    CHECK(state->round == 0);
    REQUIRE(link.say(some(Kind::Wait, "")));
    REQUIRE(link.say(lie));
    CHECK(link.is_closed());
    node.wait_for(reason);
  }
  LinkSpeaker link = coordinator.accept();
  Directive exit = some(Kind::Exit, "it was \x1b[2Jenough\a\nfor today");
  exit.exit_code = 3;
  REQUIRE(link.say(exit));
  const auto result = node.wait();
  CHECK(result.code == 3);
  CHECK_THAT(result.err, Contains("it was enough\\x07\\x0afor today") && !Contains("\x1b") && !Contains("\a"));
  CHECK(result.out.empty());  // no worker ran
  CHECK(node.left_over().empty());
}

TEST_CASE("directives: ranks that are not a node's own end it, and no worker runs", "[attacks][integration]") {
  const FalseCoordinator coordinator;
  Process node(node1(coordinator.port(), {"say=up", "wait"}));
  LinkSpeaker link = coordinator.accept();
  REQUIRE(link.hear<AgentState>());
  Directive run = honest_run();
  run.assignment.base_rank = run.assignment.base_role_rank = 3;
  REQUIRE(link.say(run));
  const auto result = node.wait();
  CHECK(result.code == 1);
  CHECK_THAT(result.err, Contains("gives this node what cannot be its own: 2 workers from rank 3 of 4"));
  CHECK(result.out.empty());
  CHECK(node.left_over().empty());
}

TEST_CASE("directives: an end with code 0 while a node's workers run is no success there", "[attacks][integration]") {
  const FalseCoordinator coordinator;
  Process node(node1(coordinator.port(), {"say=up", "wait"}));
  LinkSpeaker link = coordinator.accept();
  REQUIRE(link.hear<AgentState>());
  REQUIRE(link.say(honest_run()));
  node.wait_for("up", 2);
  Directive exit = some(Kind::Exit, "all workers exited with code 0");
  exit.round = 1;
  REQUIRE(link.say(exit));
  const auto result = node.wait();
  CHECK(result.code == 1);
  CHECK_THAT(result.err, Contains("but not all workers of this node have succeeded"));
  CHECK(node.left_over().empty());
}
