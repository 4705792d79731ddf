// SPDX-License-Identifier: BSD-3-Clause
#include <catch2/catch.hpp>
#include <filesystem>
#include <numeric>

#include "apps/train/corpus.hpp"
#include "apps/train/failure.hpp"
#include "tests/support/process.hpp"

namespace train {
namespace {

using ddp::testing::TemporaryFolder;

std::string text(Bytes bytes) { return {bytes.begin(), bytes.end()}; }

// Returns bytes that equal their own position, at most 256 of them.
std::vector<std::uint8_t> counting(std::size_t n) {
  std::vector<std::uint8_t> bytes(n);
  std::iota(bytes.begin(), bytes.end(), std::uint8_t{0});
  return bytes;
}

TEST_CASE("corpus: a folder's files are read by name, each once however many links lead to it", "[train][unit]") {
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

TEST_CASE("corpus: an error names what cannot be read", "[train][unit]") {
  const TemporaryFolder folder;
  using Catch::Contains;
  CHECK_THROWS_WITH(Corpus(folder / "missing"), Contains("missing") && Contains("no such file"));
  CHECK_THROWS_WITH(Corpus(folder / ""), Contains("no bytes"));
  CHECK_THROWS_WITH(Corpus(folder.write("empty", "")), Contains("empty") && Contains("no bytes"));
  CHECK_THROWS_AS(Corpus("/dev/null"), BadInput);
}

TEST_CASE("window: each byte but the first is predicted once, none beyond the end", "[train][unit]") {
  const std::vector<std::uint8_t> data = counting(100);
  REQUIRE(window_count(data, 9) == 11);
  for (std::size_t i = 0; i < 11; ++i) {
    CHECK(window(data, 9, i).size() == 10);
    CHECK(std::size_t{window(data, 9, i).front()} == 9 * i);
  }
  CHECK(window_count(Bytes(data).first(10), 9) == 1);
  CHECK(window_count(Bytes(data).first(9), 9) == 0);
  CHECK(window_count({}, 9) == 0);
}

}  // namespace
}  // namespace train
