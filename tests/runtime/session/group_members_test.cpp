// SPDX-License-Identifier: BSD-3-Clause
#include "runtime/session/group_members.hpp"

#include <catch2/catch.hpp>

using Catch::Matchers::Contains;
using namespace ddp::runtime;

namespace {

Members sorted(const std::vector<std::int32_t>& ranks, int world_size) {
  return sorted_members(ranks.data(), ranks.size(), world_size);
}

}  // namespace

TEST_CASE("group members: are in ascending order, however they are given", "[runtime][unit]") {
  CHECK(sorted({3, 0, 2}, 4) == Members{0, 2, 3});
  CHECK(sorted({}, 4).empty());
  CHECK(all_members(3) == Members{0, 1, 2});
}

TEST_CASE("group members: one that is given twice or is not in the job is named", "[runtime][unit]") {
  CHECK_THROWS_WITH(sorted({2, 0, 2}, 4), "new_group: rank 2 is given twice");
  CHECK_THROWS_WITH(sorted({0, 4}, 4), Contains("there is no rank 4 in a job of 4"));
  CHECK_THROWS_WITH(sorted({-1, 0}, 4), Contains("there is no rank -1 in a job of 4"));
}

TEST_CASE("group members: a split orders them by key, then by rank in the parent", "[runtime][unit]") {
  const std::vector<SplitChoice> choices = {{0, 5}, {1, 0}, {0, -1}, {0, 5}, {-1, 0}};
  const Members parent = {10, 11, 12, 9, 8};
  CHECK(members_of_color(choices, 0, parent) == Members{12, 10, 9});
  CHECK(members_of_color(choices, 1, parent) == Members{11});
}

TEST_CASE("group members: the rank in a group is the position in its list", "[runtime][unit]") {
  CHECK(rank_in({4, 2, 7}, 7) == 2);
  CHECK(rank_in({4, 2, 7}, 3) == -1);
}

TEST_CASE("group members: are described as ranges, a long list by its beginning", "[runtime][unit]") {
  CHECK(describe({5}) == "rank 5");
  CHECK(describe({0, 1}) == "ranks 0, 1");
  CHECK(describe({0, 1, 2, 3, 7}) == "ranks 0-3, 7");
  CHECK(describe({3, 2, 1}) == "ranks 3, 2, 1");
  Members even;
  for (int rank = 0; rank < 40; rank += 2) even.push_back(rank);
  CHECK(describe(even) == "ranks 0, 2, 4, 6, 8, 10, 12, 14, ... (20 in all)");
  CHECK(to_string({0, 1, 2, 3, 7, 8}) == "0-3,7,8");
  CHECK(to_string(even).ends_with(",36,38"));
}
