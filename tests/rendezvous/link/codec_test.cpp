// SPDX-License-Identifier: BSD-3-Clause
#include "rendezvous/link/codec.hpp"

#include <catch2/catch.hpp>

#include "rendezvous/link/accept.hpp"
#include "rendezvous/link/failures.hpp"

using namespace ddp::rendezvous;

namespace {

AgentState full_state() {
  AgentState state;
  state.job = {.id = "job7", .min_nodes = 1, .max_nodes = 4, .max_restarts = 3, .node_ranks_given = true};
  state.epoch = "e";
  state.addresses = {"10.0.0.2", "fd00::2"};
  state.stopped_because = "no word for 10 s";
  state.incarnation = "0123456789abcdef";
  state.host = "node-b";
  state.slots = 8;
  state.round = 3;
  state.phase = WorkersPhase::Stopping;
  state.stop_signal = 2;
  state.unkillable = {7, 8};
  WorkerFailure failure;
  failure.rank = 5;
  failure.host = "node-b";
  failure.pid = 4242;
  failure.status = {.code = 0, .signal = 9};
  failure.time = WallTime(std::chrono::milliseconds(1'700'000'000'123));
  failure.already_exiting = true;
  failure.message = "a \"quoted\"\nmessage";
  failure.stderr_tail = {"one", "two"};
  failure.stderr_log = "/logs/stderr.log";
  failure.flight_recorder = "/logs/flight_recorder_rank5.json";
  failure.out_of_memory = "so says the kernel";
  failure.hint = "do this";
  failure.error_record = "{\"message\": 1}";
  state.failures = {failure};
  return state;
}

Directive some_directive() {
  Directive directive;
  directive.kind = Directive::Kind::Run;
  directive.epoch = "e";
  directive.lost_after = std::chrono::seconds(15);
  directive.round = 4;
  directive.assignment = {0, 1, 0, 8, 0, 8, 1, 3, "127.0.0.1", 29500};
  directive.reason = "restart 1 of 3";
  directive.cause = full_state().failures[0];
  directive.failures = full_state().failures;
  return directive;
}

}  // namespace

TEST_CASE("link codec: a frame holds what is sent about any four thousand failed workers", "[rendezvous][unit]") {
  WorkerFailure talkative;
  talkative.host = "a-node-with-a-long-name.in.some.data.centre";
  talkative.message = talkative.error_record = std::string(64 << 10, '"');  // twice as long in JSON
  talkative.stderr_tail.assign(20, std::string(1000, '\\'));
  AgentState state;
  Directive directive;
  state.failures.assign(4096, talkative);
  directive.failures = worth_telling(state.failures, 1);
  CHECK(directive.failures.size() == 4096);
  keep_within_link(state.failures);
  directive.cause = state.failures.front();
  CHECK(directive.cause->stderr_tail.size() == 20);
  CHECK(encode(state).size() < kMaxFrameBytes);
  CHECK(encode(directive).size() < kMaxFrameBytes);
  CHECK(worth_telling(state.failures, 4000).size() == 32);
}

TEST_CASE("link codec: workers that failed by themselves keep their text before workers that were stopped",
          "[rendezvous][unit]") {
  std::vector<WorkerFailure> failures(200);
  for (WorkerFailure& failure : failures) {
    failure.message = std::string(16 << 10, 'x');
    failure.stopped_by_ddprun = true;
  }
  failures.back().stopped_by_ddprun = false;
  keep_within_link(failures);
  CHECK(failures.back().message.size() == 16 << 10);
  CHECK(failures.front().message.size() == 16 << 10);
  CHECK(failures[150].message.size() < 1000);
}

TEST_CASE("link codec: what is sent is what arrives, however the bytes are split", "[rendezvous][unit]") {
  const std::string bytes = encode(full_state()) + encode(Heartbeat{}) + encode(some_directive());
  for (std::size_t piece = 1; piece < bytes.size(); piece += 37) {
    FrameDecoder decoder;
    int states = 0, directives = 0, heartbeats = 0;
    for (std::size_t at = 0; at < bytes.size(); at += piece) {
      decoder.feed(std::string_view(bytes).substr(at, piece));
      while (true) {
        auto next = decoder.next();
        if (std::holds_alternative<NeedMore>(next)) break;
        if (auto* state = std::get_if<AgentState>(&next)) states += *state == full_state();
        heartbeats += std::holds_alternative<Heartbeat>(next);
        if (auto* directive = std::get_if<Directive>(&next)) directives += *directive == some_directive();
        REQUIRE_FALSE(std::holds_alternative<Malformed>(next));
      }
    }
    CHECK(states == 1);
    CHECK(directives == 1);
    CHECK(heartbeats == 1);
  }
}

TEST_CASE("link codec: frames are as docs/internals/agent_link.md shows them", "[rendezvous][unit]") {
  AgentState state;
  state.job = {.id = "demo", .min_nodes = 2, .max_nodes = 2, .max_restarts = 3, .node_ranks_given = true};
  state.incarnation = "b2";
  state.host = "node1";
  state.addresses = {"10.0.0.2"};
  state.endpoint_host = "node0";
  state.coordinator_address = "10.0.0.1";
  state.node_rank = state.slots = 1;
  state.role = "default";
  CHECK(encode(state) ==
        std::string("\x00\x00\x01\xbb"
                    "A\x01",
                    6) +
            R"({"job": {"id": "demo", "min_nodes": 2, "max_nodes": 2, "max_restarts": 3, "node_ranks_given": )"
            R"(true}, "epoch": "", "incarnation": "b2", "host": "node1", "addresses": ["10.0.0.2"], )"
            R"("endpoint_host": "node0", "coordinator_address": "10.0.0.1", "node_rank": 1, "role": "default", )"
            R"("slots": 1, "round": 0, "phase": "idle", "succeeded": false, "failures": [], "stopped_because": )"
            R"("", "hang": "none", "stop_signal": 0, "unkillable": [], "left": false})");
  Directive run;
  run.kind = Directive::Kind::Run;
  run.epoch = "5d1f0e6a9c3b7284";
  run.lost_after = std::chrono::seconds(15);
  run.round = 1;
  run.assignment = {1, 2, 1, 2, 1, 2, 0, 3, "10.0.0.1", 29500};
  CHECK(encode(run) ==
        std::string("\x00\x00\x01\x67"
                    "D\x01",
                    6) +
            R"({"kind": "run", "epoch": "5d1f0e6a9c3b7284", "lost_after_ms": 15000, "round": 1, "assignment": )"
            R"({"node_rank": 1, "node_count": 2, "base_rank": 1, "world_size": 2, "base_role_rank": 1, )"
            R"("role_world_size": 2, "restart_count": 0, "max_restarts": 3, "master_addr": "10.0.0.1", )"
            R"("master_port": 29500}, "stop_signal": 0, "exit_code": 0, "reason": "", "failures": []})");
}

TEST_CASE("link codec: the instance of a job arrives, and is left out where all its coordinators have one epoch",
          "[rendezvous][unit]") {
  AgentState state = full_state();
  Directive directive = some_directive();
  CHECK((encode(state) + encode(directive)).find("instance") == std::string::npos);
  CHECK(encode(directive).find("back_within") == std::string::npos);
  state.epoch = directive.epoch = "7";
  state.instance = directive.instance = "a.7";
  directive.back_within = std::chrono::seconds(15);
  FrameDecoder decoder;
  decoder.feed(encode(state) + encode(directive));
  CHECK(std::get<AgentState>(decoder.next()) == state);
  CHECK(std::get<Directive>(decoder.next()) == directive);
}

TEST_CASE("link codec: what is said about survivors arrives, and is left out where there is nothing to say",
          "[rendezvous][unit]") {
  AgentState state = full_state();
  CHECK(encode(state).find("survivors") == std::string::npos);
  state.job.survivors_stay = true;
  state.phase = WorkersPhase::Quiet;
  state.is_ending = true;
  Directive stop{.kind = Directive::Kind::Stop, .epoch = "e", .round = 3, .stop_signal = 15, .survivors_stay = true};
  stop.reason = "rank 1 failed";
  FrameDecoder decoder;
  decoder.feed(encode(state) + encode(stop));
  CHECK(std::get<AgentState>(decoder.next()) == state);
  CHECK(std::get<Directive>(decoder.next()) == stop);
  stop.kind = Directive::Kind::Wait;
  stop.stop_signal = 0;
  decoder.feed(encode(stop));
  CHECK(std::holds_alternative<Malformed>(decoder.next()));
}

TEST_CASE("link codec: the kind of a reason arrives, is left out where there is none, and may be a later release's",
          "[rendezvous][unit]") {
  Directive directive = some_directive();
  CHECK(encode(directive).find("why") == std::string::npos);
  for (const int number :
       {0, static_cast<int>(Why::NodeLost), static_cast<int>(kLastWhy), 1 + static_cast<int>(kLastWhy)}) {
    directive.why = static_cast<Why>(number);
    FrameDecoder decoder;
    decoder.feed(encode(directive));
    CHECK(std::get<Directive>(decoder.next()).why == (number > static_cast<int>(kLastWhy) ? Why::None : directive.why));
  }
}

TEST_CASE("link codec: bytes that are not UTF-8 are replaced, and nothing is thrown", "[rendezvous][unit]") {
  AgentState state = full_state();
  state.failures[0].stderr_tail = {"\xff\xfe"};
  FrameDecoder decoder;
  decoder.feed(encode(state));
  CHECK(std::holds_alternative<AgentState>(decoder.next()));
}

TEST_CASE("link codec: a reading of clocks passes as it is, and one that cannot be is malformed",
          "[rendezvous][unit]") {
  const auto read = [](const ClockReading& reading) {
    FrameDecoder decoder;
    decoder.feed(encode(reading));
    return decoder.next();
  };
  CHECK(std::get<ClockReading>(read({1, 0})) == ClockReading{1, 0});
  CHECK(std::get<ClockReading>(read({INT64_MAX, INT64_MAX})) == ClockReading{INT64_MAX, INT64_MAX});
  for (const ClockReading wrong : {ClockReading{0, 0}, ClockReading{-1, 5}, ClockReading{5, -1}}) {
    CHECK(std::get<Malformed>(read(wrong)).why.starts_with("clocks that show"));
  }
}

TEST_CASE("link codec: nonsense is malformed, and no memory is allocated for it", "[rendezvous][unit]") {
  const auto decode = [](const std::string& bytes) {
    FrameDecoder decoder;
    decoder.feed(bytes);
    return decoder.next();
  };
  const auto is_malformed = [&](FrameKind kind, const std::string& body) {
    return std::holds_alternative<Malformed>(decode(to_frame(kind, body)));
  };
  CHECK(
      std::holds_alternative<Malformed>(decode("\xff\xff\xff\xff"
                                               "A\1")));
  CHECK(is_malformed(FrameKind::Beat, "{}"));
  CHECK(is_malformed(FrameKind::Stdout, "{}"));
  for (const char* body : {"{", "{}", "[]", ""}) CHECK(is_malformed(FrameKind::AgentState, body));
  CHECK(is_malformed(FrameKind::LookEnd, std::string(100, '[') + std::string(100, ']')));
  CHECK(std::holds_alternative<NeedMore>(decode(std::string(3, '\0'))));
}

TEST_CASE("link codec: a message that is not accepted is malformed, and so are unknown words and broken numbers",
          "[rendezvous][unit]") {
  const auto why = [](std::string bytes, const std::string& old, const std::string& now) {
    bytes.replace(bytes.find(old), old.size(), now);
    const std::size_t size = bytes.size() - 4;
    bytes[2] = static_cast<char>(size >> 8);
    bytes[3] = static_cast<char>(size & 0xff);
    FrameDecoder decoder;
    decoder.feed(bytes);
    const auto next = decoder.next();
    const auto* malformed = std::get_if<Malformed>(&next);
    return malformed ? malformed->why : "it is accepted";
  };
  const std::string state = encode(full_state()), directive = encode(some_directive());
  CHECK(why(state, "\"round\": 3", "\"round\":3 ") == "it is accepted");
  CHECK(why(state, "\"stop_signal\": 2", "\"stop_signal\": 200") == "stop_signal is 200");
  CHECK(why(state, "\"stopping\"", "\"flying\"") == "phase is a word that is not known");
  CHECK(why(state, "\"round\": 3", "\"round\": 3.5") == "round: no integer of this size");
  CHECK(why(state, "\"round\": 3", "\"round\": 4294967299") == "round: no integer of this size");
  CHECK(why(directive, "\"run\"", "\"fly\"") == "kind is a word that is not known");
  CHECK(why(directive, "\"epoch\"", "\"epoc\"") == "epoch is missing");
}

TEST_CASE("link codec: messages about looks come out as they went in, and an older release's have none",
          "[rendezvous][unit]") {
  LookEnd end{7, "too many", {}};
  end.facts.phase = "running";
  end.facts.round = 3;
  end.facts.max_nodes = 2;
  end.facts.coordinator = "A";
  end.facts.nodes = {{"A", "a", "", "running", 0, 0, 8}, {"B", "b", "10.0.0.2", "cut off", -1, 0, 8}};
  const LookAnswer answer{7, "B", R"({"text":"\u001b"})"};
  FrameDecoder decoder;
  const LookRequest verdict{8, "verdict", R"({"words":"rank 1 is late"})"};
  decoder.feed(encode(verdict) + encode(LookRequest{7, "state"}) + encode(answer) + encode(end));
  CHECK(std::get<LookRequest>(decoder.next()) == verdict);
  CHECK(std::get<LookRequest>(decoder.next()) == LookRequest{7, "state"});
  CHECK(std::get<LookAnswer>(decoder.next()) == answer);
  CHECK(std::get<LookEnd>(decoder.next()) == end);
  AgentState state = full_state();
  CHECK(encode(state).find("can_look") == std::string::npos);
  state.can_look = true;
  state.hang = Hang::End;
  Directive directive = some_directive();
  directive.can_look = true;
  decoder.feed(encode(state) + encode(directive));
  CHECK(std::get<AgentState>(decoder.next()) == state);
  CHECK(std::get<Directive>(decoder.next()) == directive);
}

TEST_CASE("link codec: looks that cannot be true are malformed", "[rendezvous][unit]") {
  JobFacts::Node node{"A", "a", "", "running", 0, 0, 8};
  const auto is_refused = [](const auto& message) {
    FrameDecoder decoder;
    decoder.feed(encode(message));
    return std::holds_alternative<Malformed>(decoder.next());
  };
  const auto with_node = [](const JobFacts::Node& shown) {
    LookEnd end;
    end.facts.nodes = {shown};
    return end;
  };
  CHECK_FALSE(is_refused(with_node(node)));
  CHECK(is_refused(LookRequest{-1, "state"}));
  CHECK(is_refused(LookRequest{1, std::string(65, 'x')}));
  CHECK(is_refused(LookRequest{1, "verdict", std::string((64 << 10) + 1, 'x')}));
  CHECK(is_refused(LookRequest{1, "\x1b[2J"}));
  CHECK(is_refused(LookAnswer{1, "A", std::string((2 << 20) + 1, 'x')}));
  CHECK(is_refused(LookAnswer{1, "\n", "{}"}));
  const auto nested = [](std::size_t depth) { return std::string(depth, '[') + std::string(depth, ']'); };
  CHECK_FALSE(is_refused(LookAnswer{1, "A", nested(kMaxLookDepth)}));
  CHECK_FALSE(is_refused(LookAnswer{1, "A", "[\"\\\"" + nested(1000) + "\"]"}));
  CHECK(is_refused(LookAnswer{1, "A", nested(kMaxLookDepth + 1)}));
  CHECK(is_refused(LookAnswer{1, "A", std::string(1 << 20, '[')}));
  node.node_rank = -2;
  CHECK(is_refused(with_node(node)));
  node.node_rank = 0;
  node.address = "no address";
  CHECK(is_refused(with_node(node)));
  LookEnd end;
  end.facts.nodes.resize(kMaxNodesShown + 1);
  CHECK(is_refused(end));
}
