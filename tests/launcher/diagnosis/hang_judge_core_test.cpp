// SPDX-License-Identifier: BSD-3-Clause
#include "launcher/diagnosis/nodes/hang_judge_core.hpp"

#include <catch2/catch.hpp>

#include "launcher/diagnosis/nodes/node_stillness.hpp"

using namespace ddp::launcher;
using Next = HangJudgeCore::Next;
using std::chrono::milliseconds;
using std::chrono::seconds;

namespace {

const HangJudgeCore::TimePoint kBegin{};
const NodeStillness kStill = {.is_watched = true, .is_still = true, .since = seconds(12)};
const NodeStillness kWorks = {.is_watched = true};
const NodeStillness kStepsStandStill = {.is_watched = true, .is_still = true, .shows_steps = true};
const NodeStillness kStepsGoOn = {.is_watched = true, .shows_steps = true};

HangJudgeCore standing_still(int node_rank) {
  HangJudgeCore core(seconds(10));
  core.begin(node_rank);
  REQUIRE_FALSE(core.ask_at());
  core.stands_still(kBegin);
  return core;
}

// Jobs of several nodes, each with a core, whose questions are answered at once. Node N is still from `still_from[N]`
// on, and does not answer if it is silent.
struct Job {
  explicit Job(std::vector<seconds> since) : still_from(std::move(since)) {
    for (std::size_t i = 0; i < still_from.size(); ++i) {
      cores.emplace_back(seconds(10));
      cores.back().begin(static_cast<int>(i));
    }
  }

  // Returns the node that judges by `end`, and when; nothing: none does.
  std::optional<std::pair<int, HangJudgeCore::TimePoint>> judge_until(seconds end) {
    for (auto now = kBegin; now < kBegin + end; now += milliseconds(100)) {
      for (std::size_t i = 0; i < cores.size(); ++i) {
        const bool is_silent = silent.contains(static_cast<int>(i));
        if (!is_silent && now >= kBegin + still_from[i]) cores[i].stands_still(now);
        const auto at = cores[i].ask_at();
        if (is_silent || !at || now < *at) continue;
        ++questions;
        if (cores[i].hear(now, answers(now, static_cast<int>(i))) == Next::AskStacks) {
          return std::pair(static_cast<int>(i), now);
        }
      }
    }
    return std::nullopt;
  }

  HangJudgeCore::Words answers(HangJudgeCore::TimePoint now, int asker) {
    HangJudgeCore::Words words;
    for (std::size_t i = 0; i < cores.size(); ++i) {
      const int node = static_cast<int>(i);
      words[node] = std::nullopt;
      if (silent.contains(node)) continue;
      cores[i].note_judge(now, asker);
      words[node] = now >= kBegin + still_from[i] ? kStill : kWorks;
    }
    return words;
  }

  std::vector<HangJudgeCore> cores;
  std::vector<seconds> still_from;
  std::set<int> silent;
  int questions = 0;
};

}  // namespace

TEST_CASE("hang judge: node 0 asks at once, and takes stacks when all nodes stand still", "[launcher][unit]") {
  HangJudgeCore core = standing_still(0);
  CHECK(core.ask_at() == kBegin);
  CHECK(core.hear(kBegin, {{0, kStill}, {1, kStill}}) == Next::AskStacks);
  CHECK(core.judges());
  CHECK(core.silent().empty());
  CHECK(core.note_verdict());
  CHECK_FALSE(core.ask_at());
  CHECK_FALSE(core.note_verdict());
  CHECK(core.goes_on());
  CHECK_FALSE(core.goes_on());
}

TEST_CASE("hang judge: while one node works nothing is said, and it is asked again", "[launcher][unit]") {
  HangJudgeCore core = standing_still(0);
  CHECK(core.hear(kBegin, {{0, kStill}, {1, kWorks}}) == Next::Nothing);
  CHECK(core.ask_at() == kBegin + milliseconds(2500));
  CHECK(core.hear(*core.ask_at(), {{0, kStill}, {1, kStill}}) == Next::AskStacks);
}

TEST_CASE("hang judge: where all workers show steps, one node whose step stands still is enough", "[launcher][unit]") {
  HangJudgeCore core = standing_still(0);
  CHECK(core.hear(kBegin, {{0, kStepsStandStill}, {1, kStepsGoOn}}) == Next::AskStacks);
  HangJudgeCore mixed = standing_still(0);
  CHECK(mixed.hear(kBegin, {{0, kStepsStandStill}, {1, kWorks}}) == Next::Nothing);
}

TEST_CASE("hang judge: a node that is silent twice is the culprit, though others work", "[launcher][unit]") {
  HangJudgeCore core = standing_still(0);
  CHECK(core.hear(kBegin, {{0, kStill}, {1, std::nullopt}}) == Next::Nothing);
  CHECK(core.hear(kBegin, {{0, kStill}, {1, kWorks}}) == Next::Nothing);  // it was only slow
  CHECK(core.hear(kBegin, {{0, kStill}, {1, std::nullopt}}) == Next::Nothing);
  CHECK(core.hear(kBegin, {{0, kStill}, {1, std::nullopt}}) == Next::AskStacks);
  CHECK(core.silent() == std::set<int>{1});
}

TEST_CASE("hang judge: progress while stacks are taken takes the verdict back", "[launcher][unit]") {
  HangJudgeCore core = standing_still(0);
  REQUIRE(core.hear(kBegin, {{0, kStill}}) == Next::AskStacks);
  CHECK_FALSE(core.goes_on());
  CHECK_FALSE(core.judges());
}

TEST_CASE("hang judge: without the coordinator, or without stacks, it asks again", "[launcher][unit]") {
  HangJudgeCore core = standing_still(0);
  CHECK(core.hear(kBegin, {}) == Next::Nothing);
  CHECK(core.hear(kBegin + seconds(3), {{0, kStill}}) == Next::AskStacks);
  core.lack_stacks(kBegin + seconds(4));
  CHECK(core.ask_at() == kBegin + milliseconds(6500));
}

TEST_CASE("hang judge: of many nodes one judges, when the last of them stands still", "[launcher][unit]") {
  Job job({seconds(1), seconds(5), seconds(600), seconds(2)});
  const auto judge = job.judge_until(seconds(3600));
  REQUIRE(judge);
  CHECK(judge->first == 0);
  CHECK(judge->second - kBegin >= seconds(600));
  CHECK(judge->second - kBegin < seconds(603));
  CHECK(job.questions < 300);  // one node asks
}

TEST_CASE("hang judge: an hour in which one node works is no hang", "[launcher][unit]") {
  CHECK_FALSE(Job({seconds(1), seconds(1), seconds(100'000)}).judge_until(seconds(3600)));
}

TEST_CASE("hang judge: the next node judges where node 0 does not run", "[launcher][unit]") {
  Job job({seconds(1), seconds(1), seconds(1)});
  job.silent = {0};
  const auto judge = job.judge_until(seconds(60));
  REQUIRE(judge);
  CHECK(judge->first == 1);
}

TEST_CASE("hang judge: what a node says of itself comes out as it went in, and nothing else does", "[launcher][unit]") {
  const NodeStillness some = {true, true, false, milliseconds(31'200), {4, 5}};
  CHECK(stillness_from_json(to_json(some)) == some);
  CHECK(stillness_from_json(to_json(kWorks)) == kWorks);
  NodeStillness with_link = some;
  with_link.link = LinkDelay{105'000, 10};
  CHECK(stillness_from_json(to_json(with_link)) == with_link);
  CHECK(stillness_from_json(
            R"({"watched":true,"still":true,"shows_steps":false,"milliseconds":1,"ended":[],"round_trip_us":-1,)"
            R"("round_trips":9})")
            .value()
            .link == std::nullopt);
  for (const char* text : {"", "{}", "[]", R"({"error":"its ddprun knows no such question"})",
                           R"({"watched":true,"still":true,"shows_steps":false,"milliseconds":-1,"ended":[]})",
                           R"({"watched":true,"still":true,"shows_steps":false,"milliseconds":1,"ended":["x"]})"}) {
    CHECK_FALSE(stillness_from_json(text));
  }
}
