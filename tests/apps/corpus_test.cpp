// SPDX-License-Identifier: BSD-3-Clause
#include <algorithm>
#include <catch2/catch.hpp>
#include <numeric>
#include <set>

#include "apps/train/corpus.hpp"
#include "apps/train/failure.hpp"
#include "tests/apps/temporary_folder.hpp"

namespace train {
namespace {

std::string text(Corpus::Bytes bytes) { return {bytes.begin(), bytes.end()}; }

// Bytes that tell where they are, up to 256 of them.
std::vector<std::uint8_t> counting(std::size_t n) {
  std::vector<std::uint8_t> bytes(n);
  std::iota(bytes.begin(), bytes.end(), std::uint8_t{0});
  return bytes;
}

TEST_CASE("corpus: a folder is its files by name, each once however many links lead to it", "[train][unit]") {
  const TemporaryFolder folder;
  folder.write("b", "bbbbb");
  folder.write("c", "ccc");
  folder.write("A", "aa");
  std::filesystem::create_symlink("c", folder / "Link");
  std::filesystem::create_symlink("nowhere", folder / "Dangling");
  std::filesystem::create_directory(folder / "folder");
  const Corpus corpus(folder / "");
  CHECK(text(corpus.training()) + text(corpus.validation()) == "aabbbbbccc");
}

TEST_CASE("corpus: the last tenth is held out, nothing is in both parts or in none", "[train][unit]") {
  const Corpus corpus(counting(105));
  CHECK(corpus.training().size() == 95);
  CHECK(corpus.validation().size() == 10);
  CHECK(corpus.training().data() + 95 == corpus.validation().data());
}

TEST_CASE("corpus: the fingerprint tells data apart", "[train][unit]") {
  const TemporaryFolder folder;
  CHECK(Corpus(folder.write("x", "abc")).fingerprint() == Corpus(folder.write("y", "abc")).fingerprint());
  CHECK(Corpus(folder.write("x", "abc")).fingerprint() != Corpus(folder.write("y", "acb")).fingerprint());
}

TEST_CASE("corpus: what cannot be read is named", "[train][unit]") {
  const TemporaryFolder folder;
  using Catch::Contains;
  CHECK_THROWS_WITH(Corpus(folder / "missing"), Contains("missing") && Contains("no such file"));
  CHECK_THROWS_WITH(Corpus(folder / ""), Contains("no bytes"));
  CHECK_THROWS_WITH(Corpus(folder.write("empty", "")), Contains("empty") && Contains("no bytes"));
  CHECK_THROWS_AS(Corpus("/dev/null"), BadInput);
}

TEST_CASE("sampler: an epoch visits each window once, and the next one in another order", "[train][unit]") {
  const std::vector<std::uint8_t> data = counting(256);
  Sampler sampler(data, 8, 1);
  const std::int64_t n = sampler.windows_per_epoch();
  REQUIRE(n == 31);
  std::vector<std::vector<std::size_t>> orders;
  for (std::int64_t epoch = 0; epoch < 3; ++epoch) {
    std::vector<std::size_t> starts;
    for (std::int64_t i = 0; i < n; ++i) {
      const auto window = sampler.window(epoch * n + i);
      REQUIRE(window.size() == 9);
      REQUIRE(window.data() >= data.data());
      REQUIRE(window.data() + window.size() <= data.data() + data.size());
      starts.push_back(static_cast<std::size_t>(window.data() - data.data()));
    }
    orders.push_back(starts);
    std::sort(starts.begin(), starts.end());
    for (std::size_t i = 1; i < starts.size(); ++i) CHECK(starts[i] == starts[i - 1] + 8);
  }
  CHECK(orders[0] != orders[1]);
  CHECK(orders[1] != orders[2]);
}

TEST_CASE("sampler: a window depends on seed and place alone, not on what was asked before", "[train][unit]") {
  const std::vector<std::uint8_t> data = counting(256);
  Sampler all(data, 8, 7), other_seed(data, 8, 8);
  // Four workers with two sequences of each step of eight, as one worker sees them.
  std::vector<Sampler> workers(4, Sampler(data, 8, 7));
  bool seeds_differ = false;
  for (std::int64_t n = 0; n < 100; ++n) {
    const auto worker = static_cast<std::size_t>(n % 8 / 2);
    CHECK(workers[worker].window(n).data() == all.window(n).data());
    seeds_differ |= other_seed.window(n).data() != all.window(n).data();
  }
  CHECK(Sampler(data, 8, 7).window(77).data() == all.window(77).data());
  CHECK(seeds_differ);
}

TEST_CASE("sampler: data shorter than a window has none", "[train][unit]") {
  CHECK(Sampler(counting(3), 8, 1).windows_per_epoch() <= 0);
  CHECK(Sampler(counting(16), 8, 1).windows_per_epoch() == 1);
}

TEST_CASE("spread_windows: whole windows from start to end, at most as many as asked", "[train][unit]") {
  const std::vector<std::uint8_t> data = counting(100);
  const auto all = spread_windows(data, 9, 1000);
  REQUIRE(all.size() == 11);
  for (std::size_t i = 0; i < all.size(); ++i) CHECK(int{all[i].front()} == static_cast<int>(9 * i));
  const auto some = spread_windows(data, 9, 3);
  REQUIRE(some.size() == 3);
  CHECK(int{some[2].front()} == 9 * 7);
  CHECK(some[2].size() == 10);
  CHECK(spread_windows(counting(9), 9, 10).empty());
  CHECK(spread_windows({}, 9, 10).empty());
}

}  // namespace
}  // namespace train
