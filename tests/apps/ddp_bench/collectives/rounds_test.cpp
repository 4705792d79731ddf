// SPDX-License-Identifier: BSD-3-Clause
#include "apps/ddp_bench/collectives/rounds.hpp"

#include <algorithm>
#include <catch2/catch.hpp>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "apps/ddp_bench/collectives/check.hpp"

using namespace ddp::bench;

namespace {

// Records the order of blocks of one rank's contenders: the letter of each contender that makes the first call after a
// barrier.
struct Blocks {
  std::string letters;
  bool begins = false;
};

// A contender of one rank, whose output is its input unless it is set to be wrong.
class FakeContender : public Contender {
 public:
  FakeContender(const char* letter, Blocks& blocks) : letter_(letter), blocks_(blocks) {}
  const char* name() const override { return letter_; }
  int rank() const override { return 0; }
  int size() const override { return 1; }
  bool has(Collective collective) const override { return collective != Collective::Gather || *letter_ == 'b'; }
  void run(Collective collective, const float* input, float* output, std::size_t count) override {
    if (collective == Collective::Barrier) {
      CHECK(*letter_ == 'a');  // ranks synchronise through the first contender
      blocks_.begins = true;
    } else if (std::exchange(blocks_.begins, false)) {
      blocks_.letters += letter_;
    }
    const bool in_place =
        collective == Collective::AllReduce || collective == Collective::Broadcast || collective == Collective::Reduce;
    if (!in_place && input != nullptr) std::copy(input, input + count, output);
    if (collective == broken) output[count - 1] += 1;
  }

  std::optional<Collective> broken;

 private:
  const char* letter_;
  Blocks& blocks_;
};

std::vector<CollectiveFigures> measure(const CollectivePlan& plan, Blocks& blocks) {
  FakeContender a("a", blocks);
  FakeContender b("b", blocks);
  std::vector<CollectiveFigures> figures;
  measure_collectives({&a, &b}, plan, [&](const CollectiveFigures& f) { figures.push_back(f); });
  return figures;
}

}  // namespace

TEST_CASE("collective rounds: contenders alternate, and each begins equally often", "[apps][unit]") {
  Blocks blocks;
  const auto figures = measure({.collectives = {Collective::AllReduce}, .sizes = {4096}, .seconds = 0}, blocks);
  CHECK(blocks.letters == "abbaabbaab");  // abba finds the pace; the blocks are ab, ba, ab
  REQUIRE(figures.size() == 2);
  CHECK(figures[1].contender == std::string("b"));
  CHECK(figures[1].bytes == 4096);
  CHECK(figures[1].round_us.size() == 3);
  CHECK(figures[1].calls >= 9);
  CHECK(figures[1].p99_us >= figures[1].median_us);
}

TEST_CASE("collective rounds: a contender that lacks a collective is left out of it", "[apps][unit]") {
  Blocks blocks;
  const auto figures =
      measure({.collectives = {Collective::Gather, Collective::Reduce}, .sizes = {64}, .seconds = 0}, blocks);
  REQUIRE(figures.size() == 3);
  CHECK(figures[0].contender == std::string("b"));
  CHECK(name_of(figures[0].collective) == std::string("gather"));
  CHECK(figures[1].contender == std::string("a"));
}

TEST_CASE("collective rounds: a wrong result ends the measurement and is reported", "[apps][unit]") {
  Blocks blocks;
  FakeContender a("a", blocks);
  FakeContender b("b", blocks);
  b.broken = Collective::AllToAll;
  int measured = 0;
  const auto measure_both = [&](Collective collective) {
    measure_collectives({&a, &b}, {.collectives = {collective}, .sizes = {64}, .seconds = 0},
                        [&](const auto&) { ++measured; });
  };
  CHECK_THROWS_WITH(measure_both(Collective::AllToAll),
                    "b: all_to_all of 64 bytes, rank 0: element 15 is 16.000000, not 15.000000");
  CHECK(measured == 0);
  measure_both(Collective::AllReduce);
  CHECK(measured == 2);
}

TEST_CASE("collective check: each rank knows what it must get from the others", "[apps][unit]") {
  constexpr int kRanks = 3;
  constexpr std::size_t kCount = 3 * 100;
  constexpr std::size_t kPart = kCount / kRanks;
  using Values = std::vector<float>;
  std::vector<Values> inputs(kRanks, Values(kCount));
  std::vector<Values> outputs(kRanks, Values(kCount));
  const auto with_filled = [&](Collective collective, auto exchange) {
    for (int rank = 0; rank < kRanks; ++rank) {
      const auto r = static_cast<std::size_t>(rank);
      CheckedCall{collective, rank, kRanks, kCount}.fill(inputs[r].data(), outputs[r].data());
    }
    exchange();
    for (int rank = 0; rank < kRanks; ++rank) {
      Values& output = outputs[static_cast<std::size_t>(rank)];
      const CheckedCall call{collective, rank, kRanks, kCount};
      INFO(name_of(collective) << ", rank " << rank);
      CHECK(call.what_is_wrong(output.data()).empty());
      std::swap(output[0], output[1]);  // right values in the wrong order
      CHECK_THAT(call.what_is_wrong(output.data()), Catch::StartsWith("element 0 is "));
    }
  };
  with_filled(Collective::AllReduce, [&] {
    for (std::size_t i = 0; i < kCount; ++i) {
      const float sum = outputs[0][i] + outputs[1][i] + outputs[2][i];
      for (Values& output : outputs) output[i] = sum;
    }
  });
  with_filled(Collective::ReduceScatter, [&] {
    for (std::size_t i = 0; i < kCount; ++i) outputs[i / kPart][i % kPart] = inputs[0][i] + inputs[1][i] + inputs[2][i];
  });
  with_filled(Collective::AllGather, [&] {
    for (Values& output : outputs) {
      for (std::size_t i = 0; i < kCount; ++i) output[i] = inputs[i / kPart][i % kPart];
    }
  });
  with_filled(Collective::AllToAll, [&] {
    for (std::size_t r = 0; r < kRanks; ++r) {
      for (std::size_t i = 0; i < kCount; ++i) outputs[r][i] = inputs[i / kPart][r * kPart + i % kPart];
    }
  });
  with_filled(Collective::Broadcast, [&] { outputs[1] = outputs[2] = outputs[0]; });
}

TEST_CASE("collective rounds: bus bandwidth is defined as in NCCL's tests", "[apps][unit]") {
  CHECK(bus_factor(Collective::AllReduce, 2) == 1.0);
  CHECK(bus_factor(Collective::AllReduce, 8) == 1.75);
  CHECK(bus_factor(Collective::ReduceScatter, 4) == 0.75);
  CHECK(bus_factor(Collective::Broadcast, 8) == 1.0);
  CHECK(bus_factor(Collective::Barrier, 8) == 0.0);
}
