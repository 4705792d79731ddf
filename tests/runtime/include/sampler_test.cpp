// SPDX-License-Identifier: BSD-3-Clause
#include "ddp/sampler.hpp"

#include <catch2/catch.hpp>
#include <fstream>
#include <set>
#include <sstream>

#include "tests/runtime/include/index_hash.hpp"
#include "tests/support/program_locale.hpp"

using ddp::DistributedSampler;
using ddp::SamplerState;
using Indices = std::vector<std::int64_t>;

namespace {

// Returns all ranks' next `steps` samples, in the order in which a job of `world` ranks trains on them.
Indices in_step(int world, std::size_t steps, const SamplerState& state) {
  std::vector<Indices> ranks;
  for (int rank = 0; rank < world; ++rank) {
    DistributedSampler sampler(state.length, world, rank, state.seed, state.shuffle);
    sampler.load_state(state);
    ranks.push_back(sampler.indices());
  }
  Indices together;
  for (std::size_t k = 0; k < steps; ++k) {
    for (const Indices& indices : ranks) together.push_back(indices.at(k));
  }
  return together;
}

}  // namespace

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

TEST_CASE("sampler: gives PyTorch's indices for every kind of length, seed and number of ranks", "[runtime][unit]") {
  std::ifstream file(GOLDEN_FOLDER "/sampler.txt");
  std::string line;
  REQUIRE(std::getline(file, line));  // says what made it
  int cases = 0;
  while (std::getline(file, line)) {
    std::istringstream in(line);
    std::size_t length = 0;
    int world = 0;
    std::uint64_t seed = 0;
    std::uint64_t epoch = 0;
    bool shuffle = false;
    bool drop_last = false;
    std::size_t size = 0;
    std::uint64_t hash = 0;
    REQUIRE(in >> length >> world >> seed >> epoch >> shuffle >> drop_last >> size >> hash);
    std::uint64_t ours = ddp::test::kEmptyHash;
    for (int rank = 0; rank < world; ++rank) {
      DistributedSampler sampler(length, world, rank, seed, shuffle, drop_last);
      sampler.set_epoch(epoch);
      const Indices indices = sampler.indices();
      CHECK(indices.size() == size);
      CHECK(sampler.size() == size);
      ours = ddp::test::hash(indices, ours);
    }
    INFO(line);
    CHECK(ours == hash);
    ++cases;
  }
  CHECK(cases > 400);
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

TEST_CASE("sampler state: on as many ranks each goes on as if nothing had happened", "[runtime][unit]") {
  const std::size_t length = GENERATE(0U, 1U, 2U, 7U, 12U, 25U);
  const int world = GENERATE(1, 2, 3, 8);
  const bool drop_last = GENERATE(false, true);
  for (int rank = 0; rank < world; ++rank) {
    DistributedSampler before(length, world, rank, 5, true, drop_last);
    before.set_epoch(2);
    const Indices all = before.indices();
    for (std::size_t consumed = 0; consumed <= all.size(); ++consumed) {
      DistributedSampler after(length, world, rank, 5, true, drop_last);
      after.load_state(before.state(consumed));
      CHECK(after.indices() == Indices(all.begin() + static_cast<std::ptrdiff_t>(consumed), all.end()));
      CHECK(after.size() == all.size() - consumed);
    }
  }
}

TEST_CASE("sampler state: another number of ranks goes on with what is left and nothing else", "[runtime][unit]") {
  const std::size_t length = 41;
  const bool shuffle = GENERATE(true, false);
  DistributedSampler whole(length, 1, 0, 9, shuffle);
  whole.set_epoch(3);
  const Indices order = whole.indices();
  // 5 steps of 4 ranks, then 3 of 3, then 2 of 6 would be 41 in all.
  SamplerState state = whole.state();
  Indices seen;
  for (const auto& [world, steps] : {std::pair<int, std::size_t>{4, 5}, {3, 3}, {6, 2}}) {
    const Indices now = in_step(world, steps, state);
    seen.insert(seen.end(), now.begin(), now.end());
    DistributedSampler any(length, world, world - 1, 9, shuffle);
    any.load_state(state);
    state = any.state(steps);
  }
  CHECK(seen == order);
  CHECK(state.position == length);
}

TEST_CASE("sampler state: a rest that does not divide is filled up from the beginning of the epoch or cut",
          "[runtime][unit]") {
  DistributedSampler whole(10, 1, 0, 9);
  const Indices order = whole.indices();
  const SamplerState state = whole.state(4);  // 6 are left
  const Indices filled = in_step(4, 2, state);
  CHECK(Indices(filled.begin(), filled.begin() + 6) == Indices(order.begin() + 4, order.end()));
  CHECK(Indices(filled.begin() + 6, filled.end()) == Indices(order.begin(), order.begin() + 2));
  DistributedSampler cut(10, 4, 1, 9, true, true);
  cut.load_state(state);
  CHECK(cut.indices() == Indices{order[5]});
}

TEST_CASE("sampler state: the next epoch starts at its beginning", "[runtime][unit]") {
  DistributedSampler before(20, 2, 1, 5);
  before.set_epoch(3);
  DistributedSampler after(20, 2, 1, 5);
  after.load_state(before.state(4));
  after.set_epoch(3);  // as the loop over epochs does first
  CHECK(after.size() == 6);
  after.set_epoch(4);
  before.set_epoch(4);
  CHECK(after.indices() == before.indices());
  CHECK(after.state() == before.state());
}

TEST_CASE("sampler state: a state of another order is refused and changes nothing", "[runtime][unit]") {
  DistributedSampler sampler(20, 2, 1, 5);
  sampler.set_epoch(1);
  const Indices before = sampler.indices();
  const auto refused = [&](const SamplerState& state) {
    try {
      sampler.load_state(state);
      FAIL("it was loaded");
    } catch (const ddp::Error& e) {
      CHECK(e.status() == ddp::Status::Mismatch);
      CHECK_THAT(e.what(), Catch::Matchers::Contains("position 0 of 20, seed 5, shuffled"));
    }
    CHECK(sampler.indices() == before);
  };
  refused({2, 0, 21, 5, true});
  refused({2, 0, 20, 6, true});
  refused({2, 0, 20, 5, false});
  refused({2, 21, 20, 5, true});
  CHECK_THROWS_AS(sampler.state(11), ddp::Error);
  CHECK(sampler.state(10).position == 20);
}

TEST_CASE("sampler state: is one line of text and comes back from it", "[runtime][unit]") {
  for (const SamplerState& state : {SamplerState{3, 4096, 50000, 7, true}, SamplerState{~0ULL, 0, 0, ~0ULL, false}}) {
    CHECK(ddp::sampler_state(ddp::to_string(state)) == state);
  }
  CHECK(ddp::to_string({3, 4096, 50000, 7, true}) == "epoch 3, position 4096 of 50000, seed 7, shuffled");
  for (const char* bad :
       {"", "epoch 3", "epoch 3, position 4096 of 50000, seed 7, sorted",
        "epoch 3, position 4096 of 50000, seed 7, shuffled ", "epoch x, position 1 of 2, seed 7, in order",
        "epoch 99999999999999999999, position 1 of 2, seed 7, in order"}) {
    CHECK_THROWS_AS(ddp::sampler_state(bad), ddp::Error);
  }
}

TEST_CASE("sampler state: is the same text in every locale", "[runtime][unit]") {
  const SamplerState state = {3, 4096, 50000, 7, true};
  const ddp::testing::ProgramLocale locale;
  CHECK(ddp::to_string(state) == "epoch 3, position 4096 of 50000, seed 7, shuffled");
  CHECK(ddp::sampler_state(ddp::to_string(state)) == state);
}
