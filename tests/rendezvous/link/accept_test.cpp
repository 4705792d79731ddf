// SPDX-License-Identifier: BSD-3-Clause
#include "rendezvous/link/accept.hpp"

#include <catch2/catch.hpp>
#include <csignal>
#include <functional>
#include <limits>
#include <utility>
#include <vector>

#include "rendezvous/link/failures.hpp"

using namespace ddp::rendezvous;
using namespace std::string_literals;

namespace {

WorkerFailure some_failure() {
  WorkerFailure failure;
  failure.rank = 5;
  failure.local_rank = 1;
  failure.host = "b";
  failure.status = {.code = 7};
  return failure;
}

AgentState some_state() {
  AgentState state;
  state.job = {.id = "job7", .min_nodes = 1, .max_nodes = 4};
  state.epoch = "e";
  state.incarnation = "0123456789abcdef";
  state.host = "b";
  state.addresses = {"10.0.0.2", "fd00::2"};
  state.coordinator_address = "fe80::1%eth0";
  state.endpoint_host = "node0.cluster";
  state.slots = 2;
  state.round = 3;
  state.failures = {some_failure()};
  return state;
}

Directive some_run() {
  Directive run;
  run.kind = Directive::Kind::Run;
  run.epoch = "e";
  run.lost_after = std::chrono::seconds(15);
  run.round = 1;
  run.assignment = {.node_rank = 1,
                    .node_count = 2,
                    .base_rank = 4,
                    .world_size = 8,
                    .base_role_rank = 4,
                    .role_world_size = 8,
                    .restart_count = 1,
                    .max_restarts = 3,
                    .master_addr = "node0",
                    .master_port = 29500};
  return run;
}

Directive some(Directive::Kind kind) {
  Directive directive;
  directive.kind = kind;
  directive.epoch = "e";
  directive.round = 1;
  directive.reason = "a reason";
  directive.stop_signal = kind == Directive::Kind::Stop ? SIGTERM : 0;
  directive.exit_code = kind == Directive::Kind::Exit ? 7 : 0;
  return directive;
}

template <typename Message>
std::string refusal(Message message, const std::function<void(Message&)>& change) {
  REQUIRE_FALSE(accept(message));
  change(message);
  return accept(message).value_or("it is accepted");
}

std::string state_with(const std::function<void(AgentState&)>& change) { return refusal(some_state(), change); }
std::string directive_with(Directive directive, const std::function<void(Directive&)>& change) {
  return refusal(std::move(directive), change);
}

constexpr int kMost = std::numeric_limits<int>::max();

}  // namespace

TEST_CASE("accept: an honest message is accepted and stays as it is", "[rendezvous][unit]") {
  const AgentState state = some_state();
  AgentState accepted = state;
  CHECK_FALSE(accept(accepted));
  CHECK(accepted == state);
  for (const Directive& directive :
       {some_run(), some(Directive::Kind::Wait), some(Directive::Kind::Stop), some(Directive::Kind::Exit)}) {
    Directive same = directive;
    CHECK_FALSE(accept(same));
    CHECK(same == directive);
  }
}

TEST_CASE("accept: a number out of its range is refused with its name", "[rendezvous][unit]") {
  CHECK(state_with([](AgentState& s) { s.stop_signal = 200; }) == "stop_signal is 200");
  CHECK(state_with([](AgentState& s) { s.stop_signal = 64; }) == "stop_signal is 64");
  CHECK(state_with([](AgentState& s) { s.stop_signal = 33; }) == "stop_signal is 33");
  CHECK(state_with([](AgentState& s) { s.stop_signal = -1; }) == "stop_signal is -1");
  CHECK(state_with([](AgentState& s) { s.round = -1; }) == "round is -1");
  CHECK(state_with([](AgentState& s) { s.job.min_nodes = 0; }) == "job.min_nodes is 0");
  CHECK(state_with([](AgentState& s) { s.job.max_nodes = 0; }) == "job.min_nodes is 1");
  CHECK(state_with([](AgentState& s) { s.job.max_restarts = -1; }) == "job.max_restarts is -1");
  CHECK(state_with([](AgentState& s) { s.unkillable = {-1}; }) == "unkillable is -1");
  CHECK(state_with([](AgentState& s) { s.failures[0].rank = -1; }) == "failures.rank is -1");
  CHECK(state_with([](AgentState& s) { s.failures[0].local_rank = kMost; }) == "failures.local_rank is 2147483647");
  CHECK(state_with([](AgentState& s) { s.failures[0].pid = -9; }) == "failures.pid is -9");
  CHECK(state_with([](AgentState& s) { s.failures[0].status.code = 256; }) == "failures.status.code is 256");
  CHECK(state_with([](AgentState& s) { s.failures[0].status = {.code = 0, .signal = 65}; }) ==
        "failures.status.signal is 65");
  CHECK(directive_with(some(Directive::Kind::Stop), [](Directive& d) { d.stop_signal = 200; }) == "stop_signal is 200");
  CHECK(directive_with(some(Directive::Kind::Stop), [](Directive& d) { d.stop_signal = 0; }) == "stop_signal is 0");
  CHECK(directive_with(some(Directive::Kind::Stop), [](Directive& d) { d.round = 0; }) == "round is 0");
  CHECK(directive_with(some(Directive::Kind::Exit), [](Directive& d) { d.exit_code = 256; }) == "exit_code is 256");
  CHECK(directive_with(some(Directive::Kind::Exit), [](Directive& d) { d.exit_code = -1; }) == "exit_code is -1");
  CHECK(directive_with(some_run(), [](Directive& d) { d.lost_after = std::chrono::milliseconds(1); }) ==
        "lost_after_ms is 1");
  CHECK(directive_with(some_run(), [](Directive& d) { d.lost_after = std::chrono::milliseconds::max(); }) ==
        "lost_after_ms is 9223372036854775807");
  CHECK(directive_with(some_run(), [](Directive& d) { d.back_within = std::chrono::milliseconds(1); }) ==
        "back_within_ms is 1");
}

TEST_CASE("accept: an epoch of a job whose coordinators have one each is a number", "[rendezvous][unit]") {
  const std::string no_number = "an instance whose epoch is no number";
  for (const std::string& epoch : {std::string("e"), std::string("-1"), std::string("07"), std::string("1.5"),
                                   std::string("99999999999999999999")}) {
    CHECK(directive_with(some_run(), [&](Directive& d) { std::tie(d.epoch, d.instance) = std::tuple(epoch, "i"); }) ==
          no_number);
    CHECK(state_with([&](AgentState& s) { std::tie(s.epoch, s.instance) = std::tuple(epoch, "i"); }) == no_number);
  }
  CHECK(directive_with(some_run(), [](Directive& d) { std::tie(d.epoch, d.instance) = std::tuple("10", "i"); }) ==
        "it is accepted");
  CHECK(is_older_epoch("9", "10"));
  CHECK_FALSE(is_older_epoch("10", "9"));
  CHECK_FALSE(is_older_epoch("10", "10"));
}

TEST_CASE("accept: a place that no node can have in a round is refused", "[rendezvous][unit]") {
  const auto with = [](const std::function<void(Assignment&)>& change) {
    return directive_with(some_run(), [&](Directive& d) { change(d.assignment); });
  };
  CHECK(with([](Assignment& a) { a.node_rank = -5; }) == "node_rank is -5");
  CHECK(with([](Assignment& a) { a.node_rank = 2; }) == "node_rank is 2");
  CHECK(with([](Assignment& a) { a.node_count = 0; }) == "node_count is 0");
  CHECK(with([](Assignment& a) { a.world_size = 1; }) == "world_size is 1");
  CHECK(with([](Assignment& a) { a.world_size = kMost; }) == "world_size is 2147483647");
  CHECK(with([](Assignment& a) { a.base_rank = 8; }) == "base_rank is 8");
  CHECK(with([](Assignment& a) { a.base_rank = 0; }) == "base_rank is 0");
  CHECK(with([](Assignment& a) { a.role_world_size = 9; }) == "role_world_size is 9");
  CHECK(with([](Assignment& a) { a.base_role_rank = 5; }) == "base_role_rank is 5");
  CHECK(with([](Assignment& a) { a.restart_count = -1; }) == "restart_count is -1");
  CHECK(with([](Assignment& a) { a.master_port = 0; }) == "master_port is 0");
}

TEST_CASE("accept: an address that is none is refused", "[rendezvous][unit]") {
  const auto master_addr = [](const std::string& text) {
    return directive_with(some_run(), [&](Directive& d) { d.assignment.master_addr = text; });
  };
  CHECK(master_addr("10.0.0.1\0LD_PRELOAD=/tmp/x"s) == "master_addr has characters that no name has");
  CHECK(master_addr("a b") == "master_addr has characters that no name has");
  CHECK(master_addr("a\nb") == "master_addr has characters that no name has");
  CHECK(master_addr(std::string(256, 'a')) == "master_addr has a size of 256");
  CHECK(master_addr("") == "it is accepted");
  const auto address = [](const std::string& text) { return state_with([&](AgentState& s) { s.addresses = {text}; }); };
  CHECK(address("10.0.0.2\0"s) == "addresses is no address");
  CHECK(address("") == "addresses is no address");
  CHECK(address("node-b") == "addresses is no address");
  CHECK(address("10.0.0") == "addresses is no address");
  CHECK(address("fe80::1%" + std::string(80, 'e')) == "addresses has a size of 88");
  CHECK(state_with([](AgentState& s) { s.coordinator_address = "here"; }) == "coordinator_address is no address");
  CHECK(state_with([](AgentState& s) { s.endpoint_host = "a b"; }) == "endpoint_host has characters that no name has");
}

TEST_CASE("accept: what is too much or too long to keep is refused", "[rendezvous][unit]") {
  CHECK(state_with([](AgentState& s) { s.incarnation = std::string(65, 'a'); }) == "incarnation has a size of 65");
  CHECK(state_with([](AgentState& s) { s.incarnation = ""; }) == "incarnation is empty");
  CHECK(state_with([](AgentState& s) { s.incarnation = "a\x1b[2J"; }) == "incarnation is not printable");
  CHECK(state_with([](AgentState& s) { s.epoch = "a\nb"; }) == "epoch is not printable");
  CHECK(state_with([](AgentState& s) { s.job.id = std::string(200'000, 'a'); }) == "job.id has a size of 200000");
  CHECK(state_with([](AgentState& s) { s.host = std::string(256, 'a'); }) == "host has a size of 256");
  CHECK(state_with([](AgentState& s) { s.role = std::string(5000, 'a'); }) == "role has a size of 5000");
  CHECK(state_with([](AgentState& s) { s.addresses.assign(1025, "10.0.0.1"); }) == "addresses has a size of 1025");
  CHECK(state_with([](AgentState& s) {
          s.failures.resize(1, {});
          s.slots = 0;
        }) == "a failure of local rank 1");
  CHECK(directive_with(some_run(), [](Directive& d) { d.epoch = ""; }) == "epoch is empty");
  AgentState state = some_state();
  state.slots = 100;
  for (int rank = 0; rank < 100; ++rank) {
    state.failures.resize(static_cast<std::size_t>(rank) + 1, some_failure());
    state.failures.back().local_rank = rank;
    state.failures.back().stderr_tail.assign(50, std::string(1000, 'x'));
  }
  CHECK(accept(state) == "the text of the failures has a size of 5000000");
}

TEST_CASE("accept: parts that contradict each other are refused", "[rendezvous][unit]") {
  CHECK(state_with([](AgentState& s) { s.failures[0].status = {}; }) == "a failure has exit code 0");
  CHECK(state_with([](AgentState& s) { s.failures[0].status = {.code = 1, .signal = 9}; }) ==
        "a failure has an exit code and a signal");
  CHECK(state_with([](AgentState& s) { s.failures[0].local_rank = 2; }) == "a failure of local rank 2");
  CHECK(state_with([](AgentState& s) { s.failures.push_back(s.failures[0]); }) == "two failures of local rank 1");
  CHECK(state_with([](AgentState& s) { s.failures[0].host = "a"; }) == "a failure of another node");
  CHECK(state_with([](AgentState& s) { s.succeeded = true; }) == "succeeded, and workers failed or run");
  CHECK(state_with([](AgentState& s) { s.round = 0; }) == "workers ran in no round");
  CHECK(state_with([](AgentState& s) { s.epoch = ""; }) == "a round without an epoch");
  const auto exit_with = [](const std::function<void(Directive&)>& change) {
    return directive_with(some(Directive::Kind::Exit), change);
  };
  CHECK(exit_with([](Directive& d) { d.failures = {some_failure()}; }) == "it is accepted");
  CHECK(exit_with([](Directive& d) { d.exit_code = 0; }) == "it is accepted");
  CHECK(exit_with([](Directive& d) {
          d.failures = {some_failure()};
          d.exit_code = 0;
        }) == "exit_code is 0, and workers failed");
  CHECK(exit_with([](Directive& d) {
          d.cause = some_failure();
          d.exit_code = 8;
        }) == "exit_code and the cause's code differ");
  CHECK(exit_with([](Directive& d) { d.reason.clear(); }) == "no reason");
  CHECK(directive_with(some(Directive::Kind::Wait), [](Directive& d) { d.exit_code = 1; }) == "exit_code is 1");
  CHECK(directive_with(some(Directive::Kind::Wait), [](Directive& d) { d.stop_signal = 9; }) == "stop_signal is 9");
}

TEST_CASE("accept: what users of other nodes are to read is printable and bounded", "[rendezvous][unit]") {
  const std::string evil = "\x1b]0;title\a\x1b[2Jred\x07";
  AgentState state = some_state();
  state.host = state.stopped_because = evil;
  WorkerFailure& failure = state.failures[0];
  failure.host = failure.hint = failure.stderr_log = failure.flight_recorder = failure.out_of_memory = evil;
  failure.message = evil + "\n" + evil;
  failure.stderr_tail = {evil, std::string(100'000, 'x'), "a\nb"};
  REQUIRE_FALSE(accept(state));
  CHECK(state.host == "red\\x07");
  CHECK(state.stopped_because == "red\\x07");
  CHECK(failure.host == "red\\x07");
  CHECK(failure.hint == "red\\x07");
  CHECK(failure.stderr_log == "red\\x07");
  CHECK(failure.flight_recorder == "red\\x07");
  CHECK(failure.out_of_memory == "red\\x07");
  CHECK(failure.message == "red\\x07\nred\\x07");
  CHECK(failure.stderr_tail[0] == "red\\x07");
  CHECK(failure.stderr_tail[1].size() < 10'000);
  CHECK(failure.stderr_tail[2] == "a\\x0ab");

  Directive directive = some(Directive::Kind::Exit);
  directive.reason = evil + "\n" + std::string(1 << 20, 'x');
  directive.cause = some_failure();
  directive.cause->message = std::string(1 << 20, '\a');
  directive.cause->error_record = std::string(1 << 20, 'x');
  REQUIRE_FALSE(accept(directive));
  CHECK(directive.reason.starts_with("red\\x07\\x0axxx"));
  CHECK(directive.reason.size() < 10'000);
  CHECK(directive.cause->message.size() < 20'000);
  CHECK(directive.cause->error_record.empty());
}
