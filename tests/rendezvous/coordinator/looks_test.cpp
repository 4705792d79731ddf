// SPDX-License-Identifier: BSD-3-Clause
#include "rendezvous/coordinator/looks.hpp"

#include <catch2/catch.hpp>

using namespace ddp::rendezvous;
using namespace std::chrono_literals;

namespace {

const TimePoint kStart{};
const Looks::Asked kTwo = {{1, "own"}, {2, "other"}};

template <typename Message>
const Message& message(const Looks::Send& send) {
  REQUIRE(std::holds_alternative<Message>(send.message));
  return std::get<Message>(send.message);
}

JobFacts some_facts() {
  JobFacts facts;
  facts.phase = "running";
  facts.round = 3;
  return facts;
}

}  // namespace

TEST_CASE("looks: every agent is asked, each answer goes to the asker, and the facts end it", "[rendezvous][unit]") {
  Looks looks;
  const auto asked = looks.begin(kStart, 2, {77, "state", "{}"}, some_facts(), kTwo);
  REQUIRE(asked.size() == 2);
  CHECK(asked[0].agent == 1);
  CHECK(asked[1].agent == 2);
  const LookRequest request = message<LookRequest>(asked[0]);
  CHECK(request.what == "state");
  CHECK(request.text == "{}");
  const auto first = looks.answer(1, {request.number, "whatever it says", "{}"});
  REQUIRE(first.size() == 1);
  CHECK(first[0].agent == 2);
  CHECK(message<LookAnswer>(first[0]) == LookAnswer{77, "own", "{}"});
  const auto second = looks.answer(2, {request.number, "", "[]"});
  REQUIRE(second.size() == 2);
  CHECK(message<LookAnswer>(second[0]) == LookAnswer{77, "other", "[]"});
  CHECK(message<LookEnd>(second[1]) == LookEnd{77, "", some_facts()});
  CHECK_FALSE(looks.wake_at());
}

TEST_CASE("looks: a node that does not answer is waited for until the deadline", "[rendezvous][unit]") {
  Looks looks;
  const auto number = message<LookRequest>(looks.begin(kStart, 1, {1, "state"}, some_facts(), kTwo)[0]).number;
  looks.answer(1, {number, "", "{}"});
  REQUIRE(looks.wake_at() == kStart + kStateWithin);
  CHECK(looks.expire(kStart + kStateWithin - 1ms).empty());
  const auto end = looks.expire(kStart + kStateWithin);
  REQUIRE(end.size() == 1);
  CHECK(message<LookEnd>(end[0]).number == 1);
  CHECK(looks.answer(2, {number, "", "{}"}).empty());  // too late
  CHECK_FALSE(looks.wake_at());
}

TEST_CASE("looks: stacks get more time than a state", "[rendezvous][unit]") {
  Looks looks;
  looks.begin(kStart, 1, {1, "stacks"}, some_facts(), kTwo);
  CHECK(looks.wake_at() == kStart + kStacksOfJobWithin);
}

TEST_CASE("looks: a node answers once, for itself, and only what it was asked", "[rendezvous][unit]") {
  Looks looks;
  const auto number = message<LookRequest>(looks.begin(kStart, 1, {5, "state"}, some_facts(), kTwo)[0]).number;
  CHECK(looks.answer(3, {number, "own", "{}"}).empty());      // it was not asked
  CHECK(looks.answer(2, {number + 1, "own", "{}"}).empty());  // nobody has asked this
  CHECK(message<LookAnswer>(looks.answer(2, {number, "own", "{}"})[0]).node == "other");
  CHECK(looks.answer(2, {number, "", "{}"}).empty());
}

TEST_CASE("looks: a link that breaks ends its part, and an asker that is gone all of its questions",
          "[rendezvous][unit]") {
  Looks looks;
  const auto number = message<LookRequest>(looks.begin(kStart, 1, {1, "state"}, some_facts(), kTwo)[0]).number;
  looks.answer(1, {number, "", "{}"});
  const auto end = looks.gone(2);
  REQUIRE(end.size() == 1);
  CHECK(end[0].agent == 1);
  CHECK(message<LookEnd>(end[0]).error.empty());
  looks.begin(kStart, 1, {2, "state"}, some_facts(), kTwo);
  CHECK(looks.gone(1).empty());
  CHECK_FALSE(looks.wake_at());
}

TEST_CASE("looks: one node has a limit of open questions, and the refusal says so", "[rendezvous][unit]") {
  Looks looks;
  for (std::size_t i = 0; i < kMostLooksOfNode; ++i) {
    CHECK(looks.begin(kStart, 1, {static_cast<std::int64_t>(i), "state"}, some_facts(), kTwo).size() == 2);
  }
  const auto refused = looks.begin(kStart, 1, {99, "state"}, some_facts(), kTwo);
  REQUIRE(refused.size() == 1);
  CHECK_FALSE(message<LookEnd>(refused[0]).error.empty());
  CHECK(looks.begin(kStart, 2, {1, "state"}, some_facts(), kTwo).size() == 2);
}

TEST_CASE("looks: with nobody to ask the facts come at once", "[rendezvous][unit]") {
  Looks looks;
  const auto end = looks.begin(kStart, 1, {4, "state"}, some_facts(), {});
  REQUIRE(end.size() == 1);
  CHECK(message<LookEnd>(end[0]).facts == some_facts());
}
