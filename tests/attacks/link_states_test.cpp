// SPDX-License-Identifier: BSD-3-Clause
// Members of a job who lie: agents with absurd states against a real coordinator.
#include <signal.h>

#include <catch2/catch.hpp>
#include <fstream>
#include <functional>
#include <future>
#include <string>
#include <utility>
#include <vector>

#include "tests/attacks/link_speaker.hpp"
#include "tests/integration/ddprun.hpp"
#include "tests/integration/diagnosis/page.hpp"
#include "tests/support/ports.hpp"

using Catch::Matchers::Contains;
using ddp::rendezvous::AgentState;
using ddp::rendezvous::Directive;
using ddp::rendezvous::ExitStatus;
using ddp::rendezvous::Heartbeat;
using ddp::rendezvous::WorkersPhase;
using ddp::testing::agent_of;
using ddp::testing::ddprun;
using ddp::testing::exchange;
using ddp::testing::free_port;
using ddp::testing::kUntilTold;
using ddp::testing::LinkSpeaker;
using ddp::testing::page_request;
using ddp::testing::Process;
using ddp::testing::run;
using ddp::testing::tell_workers;

namespace {

const std::string kEscapes = "\x1b]0;title\a\x1b[2J\x1b]52;c;ZXZpbA==\a";

// The coordinator's node of a job, whose worker waits for SIGUSR1 and exits with 0.
std::vector<std::string> node0(const std::vector<std::string>& options) {
  std::vector<std::string> words = {"--nproc-per-node=1", "--rdzv-id=job", "--max-restarts=0"};
  words.insert(words.end(), options.begin(), options.end());
  return ddprun(words, kUntilTold);
}
std::vector<std::string> static_node0(int port) {
  return node0({"--nnodes=2", "--node-rank=0", "--master-addr=127.0.0.1", "--master-port=" + std::to_string(port)});
}
std::vector<std::string> elastic_node0(int port) {
  return node0({"--nnodes=1:2", "--rdzv-backend=c10d", "--rdzv-endpoint=127.0.0.1:" + std::to_string(port),
                "--rdzv-conf=last_call_timeout=0,keep_alive_interval=1,keep_alive_max_attempt=3"});
}

AgentState state_of(const std::string& host, int min_nodes) {
  AgentState state;
  state.job = {.id = "job", .min_nodes = min_nodes, .max_nodes = 2, .node_ranks_given = min_nodes == 2};
  state.incarnation = "incarnation of " + host;
  state.host = host;
  state.endpoint_host = state.coordinator_address = "127.0.0.1";
  state.node_rank = 1;
  state.role = "default";
  state.slots = 1;
  return state;
}

// Returns the directive with which round 1 begins.
Directive wait_for_run(LinkSpeaker& speaker) {
  while (const auto directive = speaker.hear<Directive>()) {
    if (directive->kind == Directive::Kind::Run) return *directive;
  }
  throw std::runtime_error("no Run");
}

AgentState running(AgentState state, const Directive& run) {
  state.epoch = run.epoch;
  state.round = run.round;
  state.phase = WorkersPhase::Running;
  return state;
}

AgentState with_failure(AgentState state, ExitStatus status, int local_rank = 0, int rank = 1) {
  state.failures.push_back({.rank = rank, .local_rank = local_rank, .host = state.host, .status = status});
  return state;
}

int peak_memory_mb(pid_t pid) {
  std::ifstream status("/proc/" + std::to_string(pid) + "/status");
  for (std::string line; std::getline(status, line);) {
    if (line.starts_with("VmHWM:")) return std::stoi(line.substr(6)) / 1024;
  }
  return 0;
}

}  // namespace

TEST_CASE("link states: a state that cannot be true closes its link with the reason, and the job goes on",
          "[attacks][integration]") {
  const int port = free_port();
  Process job(static_node0(port));
  job.wait_for("waiting for nodes");
  const AgentState honest = state_of("mallory", 2);
  auto first = LinkSpeaker::agent(port);
  REQUIRE(first.is_up());
  first.say(honest);
  const Directive run = wait_for_run(first);
  const AgentState state = running(honest, run);
  first.say(state);
  job.wait_for("up");

  const std::vector<std::pair<std::string, std::function<void(AgentState&)>>> kLies = {
      {"node rank", [](AgentState& s) { s.node_rank = -5; }},
      {"node rank", [](AgentState& s) { s.node_rank = 1000; }},
      {"node rank", [](AgentState& s) { s.node_rank = 10'000'000; }},
      {"stop_signal is 200", [](AgentState& s) { s.stop_signal = 200; }},
      {"stop_signal is 64", [](AgentState& s) { s.stop_signal = 64; }},
      {"stop_signal is 33", [](AgentState& s) { s.stop_signal = 33; }},
      {"stop_signal is -1", [](AgentState& s) { s.stop_signal = -1; }},
      {"number of workers",
       [](AgentState& s) {
         s.slots = -1;
         s.stopped_because = "I like it";
       }},
      {"number of workers",
       [](AgentState& s) {
         s.slots = 2'000'000'000;
         s.stopped_because = "I like it";
       }},
      {"role", [](AgentState& s) { s.role = "chief"; }},
      {"another job", [](AgentState& s) { s.job.max_nodes = 1000; }},
      {"it reported round 7", [](AgentState& s) { s.round = 7; }},
      {"round is -1", [](AgentState& s) { s.round = -1; }},
      {"it went back to round 0",
       [](AgentState& s) {
         s.round = 0;
         s.phase = WorkersPhase::Idle;
       }},
      {"failures.status.code is 256", [](AgentState& s) { s = with_failure(s, {.code = 256}); }},
      {"a failure has exit code 0", [](AgentState& s) { s = with_failure(s, {}); }},
      {"failures.local_rank is -1", [](AgentState& s) { s = with_failure(s, {.code = 1}, -1); }},
      {"a failure of local rank 1", [](AgentState& s) { s = with_failure(s, {.code = 1}, 1); }},
      {"rank 0 failed, which is not its own", [](AgentState& s) { s = with_failure(s, {.code = 1}, 0, 0); }},
      {"as two agents", [](AgentState& s) { s.incarnation = "another"; }},
      {"incarnation has a size of 1000", [](AgentState& s) { s.incarnation = std::string(1000, 'i'); }},
      {"addresses is no address", [](AgentState& s) { s.addresses = {std::string("10.0.0.1\0x", 10)}; }},
  };
  for (const auto& [reason, change] : kLies) {
    INFO(reason);
    auto liar = LinkSpeaker::agent(port);
    REQUIRE(liar.is_up());
    REQUIRE(liar.say(state));  // the node is back in time
    const auto told = liar.hear<Directive>();
    REQUIRE(told);
    CHECK(told->kind == Directive::Kind::Run);
    AgentState lie = state;
    change(lie);
    REQUIRE(liar.say(lie));
    CHECK(liar.is_closed());
    job.wait_for(reason);
  }
  auto last = LinkSpeaker::agent(port);
  AgentState end = state;
  end.phase = WorkersPhase::Idle;
  end.succeeded = true;
  last.say(end);
  tell_workers(job);
  while (const auto directive = last.hear<Directive>()) {
    if (directive->kind == Directive::Kind::Exit) break;
  }
  end.left = true;
  last.say(end);
  CHECK(last.is_closed());
  const auto result = job.wait();
  CHECK(result.code == 0);
  CHECK(job.left_over().empty());
}

TEST_CASE("link states: what another node says of itself does nothing to a terminal", "[attacks][integration]") {
  const int port = free_port();
  Process job(static_node0(port));
  job.wait_for("waiting for nodes");
  AgentState honest = state_of("mallory", 2);
  honest.host = kEscapes + "mallory";
  auto liar = LinkSpeaker::agent(port);
  liar.say(honest);
  AgentState state = running(honest, wait_for_run(liar));
  job.wait_for("up");
  state = with_failure(state, {.code = 7});
  auto& failure = state.failures[0];
  failure.message = "message" + kEscapes;
  failure.hint = "hint" + kEscapes + "\nddprun: another line";
  failure.stderr_tail = {"tail" + kEscapes};
  failure.stderr_log = "log" + kEscapes;
  failure.flight_recorder = "recorder" + kEscapes;
  state.phase = WorkersPhase::Idle;
  liar.say(state);
  while (const auto directive = liar.hear<Directive>()) {
    if (directive->kind == Directive::Kind::Exit) break;
  }
  state.left = true;
  liar.say(state);
  const auto result = job.wait();
  CHECK(result.code == 7);
  CHECK_THAT(result.err, Contains("rank 1 on node mallory exited with code 7"));
  CHECK_THAT(result.err, Contains("message") && Contains("hint") && Contains("tail") && Contains("recorder"));
  CHECK_THAT(result.err, !Contains("\x1b") && !Contains("\a"));
  CHECK_THAT(result.err, !Contains("\nddprun: another line"));
  CHECK(job.left_over().empty());
}

TEST_CASE("link states: an answer nested 500,000 deep closes its link, and the asking agent lives on",
          "[attacks][integration]") {
  const int port = free_port(), page = free_port();
  Process job(node0({"--nnodes=2", "--node-rank=0", "--master-addr=127.0.0.1", "--master-port=" + std::to_string(port),
                     "--serve=" + std::to_string(page)}));
  job.wait_for("waiting for nodes");
  AgentState state = state_of("mallory", 2);
  state.can_look = true;
  auto first = LinkSpeaker::agent(port);
  first.say(state);
  state = running(state, wait_for_run(first));
  first.say(state);
  job.wait_for("up");
  const pid_t agent = agent_of(job);
  const std::string lie = R"({"host":"a","pid":1,"seconds":1,"round":1,"phase":"x","workers":[],"gpus":)" +
                          std::string(500'000, '[') + std::string(500'000, ']') + "}";
  const auto fetch = [page] {
    const auto path = page_request("/job.json");
    return exchange(ddp::rendezvous::RawConnection::to(static_cast<std::uint16_t>(page)), path);
  };
  int lies = 0;
  for (const std::string asks : {"ps", "stacks", "report", "the page", "nobody"}) {
    CAPTURE(asks);
    auto liar = LinkSpeaker::agent(port);
    REQUIRE(liar.is_up());
    REQUIRE(liar.say(state));
    REQUIRE(liar.hear<Directive>());
    std::int64_t number = ddp::rendezvous::kVolunteered;
    const auto looks = [&] {
      if (asks == "the page") return fetch();
      return run(ddp::testing::ddprun_raw({asks, std::to_string(job.pid())})).out;
    };
    std::future<std::string> shown;
    if (asks != "nobody") {
      shown = std::async(std::launch::async, looks);
      const auto request = liar.hear<ddp::rendezvous::LookRequest>();
      REQUIRE(request);
      number = request->number;
    }
    liar.say(ddp::rendezvous::LookAnswer{number, "", lie});
    CHECK(liar.is_closed());
    job.wait_for("text is JSON that is nested too deeply", ++lies);
    if (shown.valid()) CHECK_FALSE(shown.get().empty());
    CHECK(agent_of(job) == agent);
  }
  auto last = LinkSpeaker::agent(port);
  state.phase = WorkersPhase::Idle;
  state = with_failure(state, {.code = 7});
  last.say(state);
  while (const auto directive = last.hear<Directive>()) {
    if (directive->kind == Directive::Kind::Exit) break;
  }
  state.left = true;
  last.say(state);
  CHECK(job.wait().code == 7);
  CHECK(job.left_over().empty());
}

TEST_CASE("link states: strangers' states cost little, however large they are", "[attacks][integration]") {
  const int port = free_port();
  Process job(elastic_node0(port));
  job.wait_for("up");
  const int before = peak_memory_mb(agent_of(job));
#ifdef __SANITIZE_ADDRESS__
  const int limit = 256 + 48;  // it keeps 256 MB of what was freed
#else
  const int limit = 48;
#endif
  std::vector<LinkSpeaker> strangers;
  for (int i = 0; i < 30; ++i) {
    AgentState state = state_of("stranger" + std::to_string(i), 1);
    state.phase = WorkersPhase::Idle;
    state.job.max_nodes = 2;
    state.stopped_because = std::string(3 << 20, 'x');
    strangers.push_back(LinkSpeaker::agent(port));
    REQUIRE(strangers.back().is_up());
    REQUIRE(strangers.back().say(state));
    REQUIRE(strangers.back().hear<Directive>());
  }
  CHECK(peak_memory_mb(agent_of(job)) - before < limit);
  job.signal(SIGTERM);
  for (LinkSpeaker& stranger : strangers) {
    while (const auto directive = stranger.hear<Directive>()) {
      if (directive->kind == Directive::Kind::Exit) break;
    }
    AgentState left = state_of("stranger", 1);
    left.incarnation = "incarnation of stranger" + std::to_string(&stranger - strangers.data());
    left.host += std::to_string(&stranger - strangers.data());
    left.left = true;
    stranger.say(left);
  }
  CHECK(job.wait().code == 128 + SIGTERM);
  CHECK(job.left_over().empty());
}

TEST_CASE("link states: a link on which nobody reports is closed after 5 s, and the log says so",
          "[attacks][integration]") {
  const int port = free_port();
  Process job(static_node0(port));
  job.wait_for("waiting for nodes");
  auto silent = LinkSpeaker::agent(port), beating = LinkSpeaker::agent(port);
  REQUIRE(silent.is_up());
  REQUIRE(beating.is_up());
  beating.say(Heartbeat{});
  CHECK(silent.is_closed());
  CHECK(beating.is_closed());
  job.wait_for("no report within 5 s");
  job.signal(SIGTERM);
  CHECK(job.wait().code == 128 + SIGTERM);
  CHECK(job.left_over().empty());
}
