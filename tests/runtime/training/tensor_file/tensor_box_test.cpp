// SPDX-License-Identifier: BSD-3-Clause
#include <algorithm>
#include <catch2/catch.hpp>
#include <chrono>
#include <numeric>
#include <random>
#include <string>
#include <vector>

#include "runtime/training/tensor_file/tensor_box.hpp"

using namespace ddp::runtime;

namespace {

Box random_box(std::mt19937& random, const Shape& shape) {
  Box box;
  for (const std::int64_t n : shape) {
    const auto begin = static_cast<std::int64_t>(random() % static_cast<unsigned>(n));
    box.begin.push_back(begin);
    box.size.push_back(1 + static_cast<std::int64_t>(random() % static_cast<unsigned>(n - begin)));
  }
  return box;
}

// Returns each element of the box as its index in the whole tensor, in the order of the box.
std::vector<std::int64_t> elements(const Box& box, const Shape& shape) {
  std::vector<std::int64_t> result;
  for (std::uint64_t i = 0; i < element_count(box); ++i) {
    std::int64_t rest = static_cast<std::int64_t>(i), number = 0, stride = 1;
    for (std::size_t d = shape.size(); d-- > 0;) {
      number += (box.begin[d] + rest % box.size[d]) * stride;
      rest /= box.size[d];
      stride *= shape[d];
    }
    result.push_back(number);
  }
  return result;
}

}  // namespace

TEST_CASE("tensor box: runs copy what two boxes share and nothing else", "[training][unit]") {
  const unsigned seed = std::random_device()();
  INFO("seed " << seed);
  std::mt19937 random(seed);
  for (int round = 0; round < 2000; ++round) {
    Shape shape(random() % 4);
    for (std::int64_t& n : shape) n = 1 + static_cast<std::int64_t>(random() % 5);
    const Box from = random_box(random, shape);
    const Box to = random_box(random, shape);
    const std::vector<std::int64_t> source = elements(from, shape);
    std::vector<std::int64_t> target(element_count(to), -1);
    if (const auto shared = intersection(from, to)) {
      std::uint64_t last = 0;
      for_each_run(*shared, from, to, [&](const Run& run) {
        REQUIRE(run.from >= last);
        last = run.from + run.count;
        REQUIRE(last <= source.size());
        REQUIRE(run.to + run.count <= target.size());
        for (std::uint64_t i = 0; i < run.count; ++i) target[run.to + i] = source[run.from + i];
      });
    }
    std::vector<std::int64_t> expected = elements(to, shape);
    for (std::int64_t& n : expected) {
      if (std::find(source.begin(), source.end(), n) == source.end()) n = -1;
    }
    REQUIRE(target == expected);
  }
}

TEST_CASE("tensor box: rows of a matrix are one run, columns one for each row", "[training][unit]") {
  const Box matrix = whole_box({4, 6});
  const auto runs = [&](const Box& box) {
    int count = 0;
    for_each_run(box, matrix, box, [&](const Run&) { ++count; });
    return count;
  };
  CHECK(runs({{1, 0}, {2, 6}}) == 1);
  CHECK(runs({{0, 2}, {4, 3}}) == 4);
}

TEST_CASE("tensor box: parts that are whole, overlap or lack something are recognised", "[training][unit]") {
  const Box upper = {{0, 0}, {2, 3}};
  const Box lower = {{2, 0}, {2, 3}};
  CHECK(why_not_whole({4, 3}, {lower, upper}).empty());
  CHECK(why_not_whole({}, {whole_box({})}).empty());
  CHECK(why_not_whole({0, 3}, {}).empty());
  CHECK(why_not_whole({0, 3}, {whole_box({0, 3}), whole_box({0, 3})}).empty());
  CHECK(why_not_whole({4, 3}, {upper}) == "6 of the 12 elements of [4, 3] are missing");
  CHECK(why_not_whole({4, 3}, {upper, lower, {{1, 1}, {2, 1}}}) == "[1:2, 1:2] of [4, 3] is given twice");
  CHECK(why_not_whole({}, {whole_box({}), whole_box({})}) == "[] of [] is given twice");
  CHECK(why_not_whole({3, 3}, {upper, lower}) == "[2:4, 0:3] is not within [3, 3]");
}

TEST_CASE("tensor box: a tensor cut at random is whole, and no longer if a box is changed", "[training][unit]") {
  const unsigned seed = std::random_device()();
  INFO("seed " << seed);
  std::mt19937 random(seed);
  const auto below = [&](std::int64_t n) {
    return static_cast<std::int64_t>(random() % static_cast<unsigned long>(std::max<std::int64_t>(n, 1)));
  };
  for (int round = 0; round < 500; ++round) {
    Shape shape(1 + random() % 4);
    for (std::int64_t& n : shape) n = 1 + below(6);
    std::vector<Box> boxes = {whole_box(shape)};
    for (int cut = 0; cut < 12; ++cut) {
      const std::size_t i = random() % boxes.size(), d = random() % shape.size();
      Box rest = boxes[i];
      const std::int64_t kept = below(rest.size[d] + 1);
      rest.begin[d] += kept;
      rest.size[d] -= kept;
      boxes[i].size[d] = kept;
      boxes.push_back(rest);
    }
    std::shuffle(boxes.begin(), boxes.end(), random);
    REQUIRE(why_not_whole(shape, boxes).empty());
    Box& changed = *std::find_if(boxes.begin(), boxes.end(), [](const Box& box) { return element_count(box) > 0; });
    const Box before = changed;
    changed = random_box(random, shape);
    INFO(to_string(before) << " of " << to_string(shape) << " became " << to_string(changed));
    REQUIRE(why_not_whole(shape, boxes).empty() == (changed == before));
  }
}

TEST_CASE("tensor box: 100,000 parts are compared in well under a second, however they lie", "[training][unit]") {
  const auto [rows, columns, depth] =
      GENERATE(table<int, int, int>({{100'000, 1, 1}, {1, 100'000, 1}, {316, 316, 1}, {46, 46, 46}}));
  const Shape shape = {rows, columns, depth};
  std::vector<Box> boxes;
  for (int i = 0; i < rows; ++i) {
    for (int k = 0; k < columns; ++k) {
      for (int l = 0; l < depth; ++l) boxes.push_back({{i, k, l}, {1, 1, 1}});
    }
  }
  const auto begin = std::chrono::steady_clock::now();
  CHECK(why_not_whole(shape, boxes).empty());
  boxes.back() = boxes.front();
  CHECK_FALSE(why_not_whole(shape, boxes).empty());
  CHECK(std::chrono::steady_clock::now() - begin < std::chrono::seconds(10));  // a minute or more if each meets each
}

TEST_CASE("tensor box: what is split in more dimensions than can be checked is refused", "[training][unit]") {
  const Shape shape(7, 2);
  std::vector<Box> boxes = {whole_box(shape)};
  for (std::size_t d = 0; d < shape.size(); ++d) {
    Box half = boxes.back();
    boxes.back().size[d] = half.size[d] = half.begin[d] = 1;
    boxes.push_back(half);
  }
  CHECK_THAT(why_not_whole(shape, boxes), Catch::Matchers::Contains("split in 7 dimensions"));
}

TEST_CASE("tensor box: a box that a dimension cannot hold is not within the tensor", "[training][unit]") {
  CHECK(is_within({{1}, {2}}, {3}));
  CHECK_FALSE(is_within({{2}, {2}}, {3}));
  CHECK_FALSE(is_within({{-1}, {2}}, {3}));
  CHECK_FALSE(is_within({{0}, {-1}}, {3}));
  CHECK_FALSE(is_within({{0, 0}, {1, 1}}, {3}));
  CHECK_FALSE(is_within({{2}, {INT64_MAX}}, {3}));
}
