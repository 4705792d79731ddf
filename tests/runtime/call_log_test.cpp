// SPDX-License-Identifier: BSD-3-Clause
#include "runtime/src/call_log.hpp"

#include <catch2/catch.hpp>
#include <memory>

#include "rendezvous/hash_store.hpp"
#include "rendezvous/prefix_store.hpp"

using Catch::Matchers::Contains;
using Catch::Matchers::Matches;
using ddp::rendezvous::HashStore;
using ddp::rendezvous::PrefixStore;
using ddp::runtime::CallLog;
using ddp::runtime::decode;
using ddp::runtime::describe;
using ddp::runtime::encode;
using ddp::runtime::LastCall;
using State = LastCall::State;
using std::chrono::milliseconds;
using std::chrono::seconds;
using std::chrono::system_clock;

namespace {

const system_clock::time_point kNow{seconds(1'700'000'000)};

LastCall call(const std::string& group, std::uint64_t sequence, State state, milliseconds age,
              const std::string& what) {
  return {group, sequence, state, kNow - age, what};
}

// What the ranks of one job keep.
struct Logs {
  HashStore store{seconds(5)};
  std::unique_ptr<CallLog> of(int rank) {
    return std::make_unique<CallLog>(std::make_unique<PrefixStore>("calls", store), rank);
  }
};

}  // namespace

TEST_CASE("call log: what a rank last called is told in words", "[runtime][unit]") {
  const auto says = [](const std::vector<LastCall>& calls) { return describe(calls, "world", kNow); };
  CHECK(says({}) == "it has called nothing in this group yet");
  CHECK(says({call("world", 4, State::Ended, seconds(31), "barrier #4")}) ==
        "its last call was barrier #4, ended 31 s ago");
  CHECK(says({call("world", 4, State::Running, milliseconds(300), "barrier #4")}) ==
        "it has been in barrier #4 for 300 ms");
  CHECK(says({call("world", 4, State::Left, seconds(2), "barrier #4")}) ==
        "it left the group 2 s ago, its last call was barrier #4");
  CHECK(says({call("world", 0, State::Left, seconds(2), "")}) == "it left the group 2 s ago");
  CHECK(says({call("pair", 9, State::Running, milliseconds(12'345), "reduce #9 (4 B)"),
              call("world", 4, State::Ended, seconds(31), "barrier #4"),
              call("other", 1, State::Ended, seconds(1), "barrier #1")}) ==
        "its last call was barrier #4, ended 31 s ago; in the group pair it has been in reduce #9 (4 B) for 12 s");
  // A node whose clock is ahead.
  CHECK(says({call("world", 4, State::Ended, seconds(-5), "barrier #4")}) ==
        "its last call was barrier #4, ended 0 s ago");
}

TEST_CASE("call log: its lines survive the store, whatever else is there does not matter", "[runtime][unit]") {
  const std::string text =
      encode({{"a b\tc", call("", 7, State::Left, seconds(1), "x #7")}, {"", call("", 0, State::Running, {}, "")}});
  const std::vector<LastCall> calls = decode("rubbish\n" + text + "\tx y z\n\n");
  REQUIRE(calls.size() == 2);
  CHECK(calls[0].group.empty());
  CHECK(calls[0].state == State::Running);
  CHECK(calls[0].call.empty());
  CHECK(calls[1].group == "a b\tc");
  CHECK(calls[1].sequence == 7);
  CHECK(calls[1].state == State::Left);
  CHECK(calls[1].since == kNow - seconds(1));
  CHECK(calls[1].call == "x #7");
}

TEST_CASE("call log: those who did not call an operation are named, with what they did", "[runtime][unit]") {
  Logs logs;
  const auto a = logs.of(0), b = logs.of(10), c = logs.of(20), d = logs.of(30);
  const auto missing = [&] { return a->who_did_not_call("g", {0, 10, 20, 30}, 5, "all_reduce #5"); };
  for (CallLog* log : {a.get(), b.get(), c.get()}) {
    log->began("g", 4, "barrier #4");
    log->ended("g");
  }
  a->began("g", 5, "all_reduce #5 (4 B)");
  b->began("g", 5, "all_reduce #5 (4 B)");
  c->began("h", 8, "barrier #8");
  CHECK_THAT(missing(),
             Matches("rank 2 did not call all_reduce #5; its last call was barrier #4, ended [0-9]+ m?s ago; "
                     "in the group h it has been in barrier #8 for [0-9]+ m?s; "
                     "rank 3 did not call all_reduce #5; it has called nothing in this group yet"));
  c->began("g", 6, "barrier #6");
  d->began("g", 5, "all_reduce #5 (4 B)");
  d->left("g");
  CHECK(missing().empty());
}

TEST_CASE("call log: of many that are missing the first few are described", "[runtime][unit]") {
  Logs logs;
  const std::string text = logs.of(0)->who_did_not_call("g", {0, 1, 2, 3, 4, 5, 6}, 1, "barrier #1");
  CHECK_THAT(text,
             Contains("rank 4 did not call barrier #1; it has called nothing in this group yet; nor did ranks 5, 6"));
}

TEST_CASE("call log: groups of the past are forgotten but for the latest", "[runtime][unit]") {
  Logs logs;
  const auto log = logs.of(0);
  log->began("stays", 1, "barrier #1");
  for (int i = 0; i < 100; ++i) {
    log->began("g" + std::to_string(i), 1, "barrier #1");
    log->left("g" + std::to_string(i));
  }
  const std::vector<LastCall> calls = decode(logs.store.get("calls/0"));
  CHECK(calls.size() == 17);
  CHECK(std::any_of(calls.begin(), calls.end(), [](const LastCall& c) { return c.group == "stays"; }));
  CHECK(std::any_of(calls.begin(), calls.end(), [](const LastCall& c) { return c.group == "g99"; }));
}
