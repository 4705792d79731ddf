// SPDX-License-Identifier: BSD-3-Clause
#include "apps/ddp_bench/collective_rounds.hpp"

#include <algorithm>
#include <catch2/catch.hpp>
#include <string>
#include <vector>

using namespace ddp::bench;

namespace {

// Rank 0 of one; writes its letter where a block begins.
class FakeContender : public Contender {
 public:
  FakeContender(const char* letter, std::string& blocks) : letter_(letter), blocks_(blocks) {}
  const char* name() const override { return letter_; }
  int rank() const override { return 0; }
  int size() const override { return 1; }
  bool has(Collective collective) const override { return collective != Collective::Gather || *letter_ == 'b'; }
  void run(Collective collective, const float* input, float* output, std::size_t count) override {
    if (collective == Collective::Barrier) blocks_ += letter_;
    if (collective == Collective::AllGather) std::copy(input, input + count, output);
  }

 private:
  const char* letter_;
  std::string& blocks_;
};

std::vector<CollectiveFigures> measure(const CollectivePlan& plan, std::string& blocks) {
  FakeContender a("a", blocks);
  FakeContender b("b", blocks);
  std::vector<CollectiveFigures> figures;
  measure_collectives({&a, &b}, plan, [&](const CollectiveFigures& f) { figures.push_back(f); });
  return figures;
}

}  // namespace

TEST_CASE("collective rounds: contenders alternate, and each begins as often as the other", "[apps][unit]") {
  std::string blocks;
  const auto figures = measure({.collectives = {Collective::AllReduce}, .sizes = {4096}, .seconds = 0}, blocks);
  CHECK(blocks == "aabbaab");  // the first one finds the pace, then ab, ba, ab
  REQUIRE(figures.size() == 2);
  CHECK(figures[1].contender == std::string("b"));
  CHECK(figures[1].bytes == 4096);
  CHECK(figures[1].round_us.size() == 3);
  CHECK(figures[1].calls >= 9);
  CHECK(figures[1].p99_us >= figures[1].median_us);
}

TEST_CASE("collective rounds: a contender that lacks a collective is left out of it", "[apps][unit]") {
  std::string blocks;
  const auto figures =
      measure({.collectives = {Collective::Gather, Collective::Reduce}, .sizes = {64}, .seconds = 0}, blocks);
  REQUIRE(figures.size() == 3);
  CHECK(figures[0].contender == std::string("b"));
  CHECK(name_of(figures[0].collective) == std::string("gather"));
  CHECK(figures[1].contender == std::string("a"));
}

TEST_CASE("collective rounds: bus bandwidth is NCCL's tests'", "[apps][unit]") {
  CHECK(bus_factor(Collective::AllReduce, 2) == 1.0);
  CHECK(bus_factor(Collective::AllReduce, 8) == 1.75);
  CHECK(bus_factor(Collective::ReduceScatter, 4) == 0.75);
  CHECK(bus_factor(Collective::Broadcast, 8) == 1.0);
  CHECK(bus_factor(Collective::Barrier, 8) == 0.0);
}
