// SPDX-License-Identifier: BSD-3-Clause
#include "launcher/diagnosis/awaited_ranks.hpp"

#include <catch2/catch.hpp>
#include <utility>

#include "launcher/diagnosis/culprit.hpp"

using namespace ddp::launcher;

namespace {

constexpr int kNoPeer = CallUnderWay::kNoPeer;

// A rank that is in these calls, in a function of torch.distributed.
WorkerStacks in(int rank, std::vector<GroupCalls> calls) {
  const StackFrame distributed = {"wait", "/usr/lib/python3.11/site-packages/torch/distributed/c10d.py", 9};
  return {rank,
          100 + rank,
          {{100 + rank, "main", "asleep", {distributed, {"step", "/me/train.py", 88}}, {}}},
          {},
          std::move(calls)};
}
WorkerStacks loads(int rank, std::vector<GroupCalls> calls) {
  return {rank, 100 + rank, {{100 + rank, "main", "asleep", {{"load", "/me/data.py", 31}}, {}}}, {}, std::move(calls)};
}
GroupCalls has_called(const std::string& group, int rank, int size, std::uint64_t collectives) {
  return {group, rank, size, collectives, "all_reduce"};
}
GroupCalls waits(const std::string& group, int rank, int size, std::uint64_t sequence) {
  return {group, rank, size, sequence, "all_reduce", {{"all_reduce", sequence, 4, kNoPeer, 1000}}};
}
GroupCalls receives(const std::string& group, int rank, int size, int peer) {
  return {group, rank, size, 0, "", {{"recv", 1, 4, peer, 1000}}};
}

}  // namespace

TEST_CASE("awaited ranks: a chain through groups and messages ends at the rank that loads data", "[launcher][unit]") {
  const std::vector<WorkerStacks> workers = {in(0, {waits("tp", 0, 2, 7)}),
                                             in(1, {has_called("tp", 1, 2, 6), receives("pp", 0, 2, 1)}),
                                             loads(3, {has_called("pp", 1, 2, 0)})};
  const auto found = find_awaited(workers);
  REQUIRE(found);
  CHECK(found->ranks == std::vector{3});
  CHECK_FALSE(found->is_cycle);
  CHECK(found->words == "rank 1 waits for rank 3 in recv of group pp");
  const Culprit culprit = find_culprit(workers, {});
  CHECK(culprit.guilt == Guilt::Awaited);
  CHECK(culprit.place == "data.py:31");
  CHECK(culprit.words ==
        "rank 3 is late: at data.py:31 (load); rank 1 waits for rank 3 in recv of group pp; the others wait: ranks 0-1 "
        "in "
        "wait, called at train.py:88 (step)");
}

TEST_CASE("awaited ranks: one that is in a call of another kind is named, with the collective that it has not called",
          "[launcher][unit]") {
  const auto found = find_awaited(
      {in(0, {waits("world", 0, 3, 12)}), in(1, {has_called("world", 1, 3, 11)}), in(2, {waits("world", 2, 3, 12)})});
  REQUIRE(found);
  CHECK(found->ranks == std::vector{1});
  CHECK(found->words == "rank 1 has not called all_reduce #12 of group world, in which ranks 0, 2 wait");
}

TEST_CASE("awaited ranks: ranks that wait for each other are a deadlock", "[launcher][unit]") {
  const std::vector<WorkerStacks> workers = {in(0, {waits("world", 0, 3, 5)}),
                                             in(1, {has_called("world", 1, 3, 4), receives("pair", 0, 2, 1)}),
                                             in(2, {has_called("world", 2, 3, 4), receives("pair", 1, 2, 0)})};
  const auto found = find_awaited(workers);
  REQUIRE(found);
  CHECK(found->ranks == std::vector{1, 2});
  CHECK(found->is_cycle);
  CHECK(found->words == "rank 2 waits for rank 1 in recv of group pair; rank 1 waits for rank 2 in recv of group pair");
  CHECK(find_culprit(workers, {}).guilt == Guilt::Deadlock);
}

TEST_CASE("awaited ranks: a message that was asked for early, and is not waited for, delays nobody",
          "[launcher][unit]") {
  const auto found = find_awaited({in(0, {waits("world", 0, 2, 5)}), loads(1, {receives("world", 1, 2, 0)})});
  REQUIRE(found);
  CHECK(found->ranks == std::vector{1});
}

TEST_CASE("awaited ranks: nobody is named if the end is on another node, or all have called", "[launcher][unit]") {
  CHECK_FALSE(find_awaited({in(0, {waits("world", 0, 4, 5)}), in(1, {waits("world", 1, 4, 5)})}));
  CHECK_FALSE(
      find_awaited({in(0, {waits("tp", 0, 2, 5)}), in(1, {has_called("tp", 1, 2, 4), receives("pp", 0, 2, 1)})}));
  CHECK_FALSE(find_awaited({in(0, {waits("world", 0, 2, 5)}), in(1, {waits("world", 1, 2, 5)})}));
  CHECK_FALSE(find_awaited({in(0, {}), loads(1, {})}));
}
