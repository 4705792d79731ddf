// SPDX-License-Identifier: BSD-3-Clause
#include "ddp/sampler.hpp"

#include <catch2/catch.hpp>
#include <set>

using ddp::DistributedSampler;
using Indices = std::vector<std::int64_t>;

// Printed by PyTorch 2.15.0's torch.utils.data.DistributedSampler.
TEST_CASE("sampler: gives PyTorch's indices", "[runtime][unit]") {
  struct Golden {
    std::size_t length;
    int world_size;
    int rank;
    std::uint64_t seed;
    std::uint64_t epoch;
    bool shuffle;
    bool drop_last;
    Indices indices;
  };
  const std::vector<Golden> golden = {
      {10, 2, 0, 0U, 0U, true, false, {4, 7, 3, 0, 6}},
      {10, 2, 1, 0U, 0U, true, false, {1, 5, 9, 8, 2}},
      {10, 3, 2, 0U, 1U, true, false, {1, 8, 7, 6}},
      {10, 3, 2, 0U, 1U, true, true, {1, 8, 7}},
      {10, 4, 3, 7U, 2U, false, false, {3, 7, 1}},
      {10, 4, 3, 7U, 2U, false, true, {3, 7}},
      {3, 8, 7, 0U, 0U, true, false, {0}},
      {3, 8, 7, 0U, 0U, true, true, {}},
      {11, 4, 1, 5000000000U, 3U, true, false, {10, 0, 6}},
  };
  for (const Golden& g : golden) {
    DistributedSampler sampler(g.length, g.world_size, g.rank, g.seed, g.shuffle, g.drop_last);
    sampler.set_epoch(g.epoch);
    CHECK(sampler.indices() == g.indices);
    CHECK(sampler.size() == g.indices.size());
  }
}

TEST_CASE("sampler: gives PyTorch's indices of large data sets", "[runtime][unit]") {
  const auto hash = [](const Indices& indices) {
    std::uint64_t h = 1469598103934665603U;
    for (const std::int64_t i : indices) h = (h ^ static_cast<std::uint64_t>(i)) * 1099511628211U;
    return h;
  };
  DistributedSampler sampler(100003, 4, 3, 42);
  sampler.set_epoch(5);
  CHECK(hash(sampler.indices()) == 103231776640962004U);
  DistributedSampler larger(1000000, 7, 6, 5000000000U);
  larger.set_epoch(1);
  CHECK(hash(larger.indices()) == 4402162734346848053U);
}

TEST_CASE("sampler: the ranks together see every sample", "[runtime][unit]") {
  std::multiset<std::int64_t> seen;
  for (int rank = 0; rank < 3; ++rank) {
    const Indices indices = DistributedSampler(10, 3, rank).indices();
    CHECK(indices.size() == 4);
    seen.insert(indices.begin(), indices.end());
  }
  for (std::int64_t i = 0; i < 10; ++i) CHECK(seen.count(i) >= 1);
}

TEST_CASE("sampler: an empty data set has no samples", "[runtime][unit]") {
  CHECK(DistributedSampler(0, 2, 1).indices().empty());
}

TEST_CASE("sampler: a rank outside the world is refused", "[runtime][unit]") {
  CHECK_THROWS_AS(DistributedSampler(10, 2, 2), ddp::Error);
  CHECK_THROWS_AS(DistributedSampler(10, 0, 0), ddp::Error);
}
