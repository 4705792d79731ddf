// SPDX-License-Identifier: BSD-3-Clause
// Boxes within a tensor: which elements a slice has, what two of them share and where that lies in each, whether
// several of them make a whole. Plain functions on row-major elements.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <vector>

namespace ddp::runtime {

using Shape = std::vector<std::int64_t>;

// Elements begin[d] .. begin[d] + size[d] - 1 in every dimension d. A scalar has no dimension and one element.
struct Box {
  Shape begin;
  Shape size;

  bool operator==(const Box&) const = default;
};

Box whole_box(const Shape& shape);
std::uint64_t element_count(const Box& box);
bool is_within(const Box& box, const Shape& shape);           // and has as many dimensions, none of them negative
std::optional<Box> intersection(const Box& a, const Box& b);  // none if it is empty

// "[2:4, 0:3]", Python's words for it.
std::string to_string(const Box& box);
std::string to_string(std::span<const std::int64_t> shape);

// What `shared`, which is within both, is made of: elements that lie side by side in `from` and in `to`, in the order
// of `from`. Positions are counted in elements of each.
struct Run {
  std::uint64_t from = 0;
  std::uint64_t to = 0;
  std::uint64_t count = 0;
};
void for_each_run(const Box& shared, const Box& from, const Box& to, const std::function<void(const Run&)>& take);

// Why these boxes do not make up a tensor of this shape, each element once; empty if they do.
std::string why_not_whole(const Shape& shape, const std::vector<Box>& boxes);

}  // namespace ddp::runtime
