// SPDX-License-Identifier: BSD-3-Clause
#include "runtime/diagnosis/call_log.hpp"

#include <catch2/catch.hpp>
#include <memory>

#include "rendezvous/store/hash_store.hpp"
#include "rendezvous/store/prefix_store.hpp"

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

// The call logs of the ranks of one job.
struct Logs {
  HashStore store{seconds(5)};
  std::vector<std::unique_ptr<CallLog>> logs;
  CallLog& of(int rank) {
    return *logs.emplace_back(std::make_unique<CallLog>(std::make_unique<PrefixStore>("s", store), "calls/", rank));
  }
};

}  // namespace

TEST_CASE("call log: a rank's last call is described", "[runtime][unit]") {
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

TEST_CASE("call log: its lines survive the store, and malformed ones are ignored", "[runtime][unit]") {
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

TEST_CASE("call log: ranks that did not call an operation are named, with what they did", "[runtime][unit]") {
  Logs logs;
  const std::vector<int> members = {0, 10, 20, 30};
  CallLog& third = logs.of(20);
  CallLog::Group a(logs.of(0), "g", members), b(logs.of(10), "g", members), c(third, "g", members),
      d(logs.of(30), "g", members), other(third, "h", {20});
  const auto missing = [&] { return a.describe_missing_callers(5, "all_reduce #5"); };
  for (CallLog::Group* group : {&a, &b, &c}) {
    group->began(4, "barrier #4");
    group->ended();
  }
  a.began(5, "all_reduce #5 (4 B)");
  b.began(5, "all_reduce #5 (4 B)");
  other.began(8, "barrier #8");
  CHECK_THAT(missing(),
             Matches("rank 2 did not call all_reduce #5; its last call was barrier #4, ended [0-9]+ m?s ago; "
                     "in the group h it has been in barrier #8 for [0-9]+ m?s; "
                     "rank 3 did not call all_reduce #5; it has called nothing in this group yet"));
  c.began(6, "barrier #6");
  d.began(5, "all_reduce #5 (4 B)");
  d.left();
  CHECK(missing().empty());
  b.began(5, "monitored_barrier #5");
  CHECK_THAT(missing(),
             Matches("rank 1 did not call all_reduce #5; it has been in monitored_barrier #5 for [0-9]+ m?s"));
}

TEST_CASE("call log: a message that a rank waits for is described next to its collectives", "[runtime][unit]") {
  Logs logs;
  CallLog::Group a(logs.of(0), "g", {0, 1}), b(logs.of(1), "g", {0, 1});
  b.message_began("recv from rank 0 (4 B)");
  CHECK_THAT(a.last_call_of(1),
             Matches("rank 1: it has called nothing in this group yet; in the group g, messages it has "
                     "been in recv from rank 0 \\(4 B\\) for [0-9]+ m?s"));
  b.message_ended();
  CHECK(a.last_call_of(1) == "rank 1: it has called nothing in this group yet");
}

TEST_CASE("call log: of many that are missing the first few are described", "[runtime][unit]") {
  Logs logs;
  CallLog::Group group(logs.of(0), "g", {0, 1, 2, 3, 4, 5, 6});
  CHECK_THAT(group.describe_missing_callers(1, "barrier #1"),
             Contains("rank 4 did not call barrier #1; it has called nothing in this group yet; nor did ranks 5, 6"));
}

TEST_CASE("call log: past groups are forgotten except for the latest", "[runtime][unit]") {
  Logs logs;
  CallLog& log = logs.of(0);
  CallLog::Group(log, "stays", {0}).began(1, "barrier #1");
  for (int i = 0; i < 100; ++i) {
    CallLog::Group group(log, "g" + std::to_string(i), {0});
    group.began(1, "barrier #1");
    group.left();
  }
  const std::vector<LastCall> calls = decode(logs.store.get("s/calls/0"));
  CHECK(calls.size() == 17);
  CHECK(std::any_of(calls.begin(), calls.end(), [](const LastCall& c) { return c.group == "stays"; }));
  CHECK(std::any_of(calls.begin(), calls.end(), [](const LastCall& c) { return c.group == "g99"; }));
}
