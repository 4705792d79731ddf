// SPDX-License-Identifier: BSD-3-Clause
// Boxes within a tensor: which elements a slice has, what two slices have in common and where that
// lies in each, and whether several slices make up a whole tensor. Plain functions on row-major
// elements.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <vector>

namespace ddp::runtime {

using Shape = std::vector<std::int64_t>;

// The elements begin[d] .. begin[d] + size[d] - 1 in every dimension d. A scalar has no dimensions
// and one element.
struct Box {
  Shape begin;
  Shape size;

  bool operator==(const Box&) const = default;
};

Box whole_box(const Shape& shape);
std::uint64_t element_count(const Box& box);
bool is_within(const Box& box, const Shape& shape);           // false also for another number of dimensions
std::optional<Box> intersection(const Box& a, const Box& b);  // none if it would be empty

// Returns the box as a Python slice: "[2:4, 0:3]".
std::string to_string(const Box& box);
std::string to_string(std::span<const std::int64_t> shape);

// Calls take for each run of elements of `shared` that are contiguous both in `from` and in `to`,
// in the order of `from`. `shared` lies within both boxes. Positions count elements from the start
// of each box.
struct Run {
  std::uint64_t from = 0;
  std::uint64_t to = 0;
  std::uint64_t count = 0;
};
void for_each_run(const Box& shared, const Box& from, const Box& to, const std::function<void(const Run&)>& take);

// Returns why these boxes do not cover a tensor of this shape with each element exactly once; empty
// if they do.
std::string why_not_whole(const Shape& shape, const std::vector<Box>& boxes);

}  // namespace ddp::runtime
