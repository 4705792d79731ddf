// SPDX-License-Identifier: BSD-3-Clause
#include "runtime/training/tensor_file/tensor_box.hpp"

#include <algorithm>
#include <cstddef>
#include <numeric>

namespace ddp::runtime {
namespace {

// Returns where the tensor's element at `place` lies in memory that holds `box`.
std::uint64_t position(const Shape& place, const Box& box) {
  std::uint64_t at = 0;
  for (std::size_t d = 0; d < place.size(); ++d) {
    at = at * static_cast<std::uint64_t>(box.size[d]) + static_cast<std::uint64_t>(place[d] - box.begin[d]);
  }
  return at;
}

// Does `shared` have the full extent of `box` in dimension d?
bool spans(const Box& shared, const Box& box, std::size_t d) { return shared.size[d] == box.size[d]; }

}  // namespace

Box whole_box(const Shape& shape) { return {Shape(shape.size(), 0), shape}; }

std::uint64_t element_count(const Box& box) {
  std::uint64_t count = 1;
  for (const std::int64_t n : box.size) count *= static_cast<std::uint64_t>(n);
  return count;
}

bool is_within(const Box& box, const Shape& shape) {
  if (box.begin.size() != shape.size() || box.size.size() != shape.size()) return false;
  for (std::size_t d = 0; d < shape.size(); ++d) {
    if (box.begin[d] < 0 || box.size[d] < 0 || box.begin[d] > shape[d] || box.size[d] > shape[d] - box.begin[d]) {
      return false;
    }
  }
  return true;
}

std::optional<Box> intersection(const Box& a, const Box& b) {
  Box both;
  for (std::size_t d = 0; d < a.begin.size(); ++d) {
    const std::int64_t begin = std::max(a.begin[d], b.begin[d]);
    const std::int64_t end = std::min(a.begin[d] + a.size[d], b.begin[d] + b.size[d]);
    if (begin >= end) return std::nullopt;
    both.begin.push_back(begin);
    both.size.push_back(end - begin);
  }
  return both;
}

std::string to_string(const Box& box) {
  std::string text = "[";
  for (std::size_t d = 0; d < box.begin.size(); ++d) {
    text += (d > 0 ? ", " : "") + std::to_string(box.begin[d]) + ":" + std::to_string(box.begin[d] + box.size[d]);
  }
  return text + "]";
}

std::string to_string(std::span<const std::int64_t> shape) {
  std::string text = "[";
  for (const std::int64_t n : shape) text += (text.size() > 1 ? ", " : "") + std::to_string(n);
  return text + "]";
}

void for_each_run(const Box& shared, const Box& from, const Box& to, const std::function<void(const Run&)>& take) {
  // A run covers the innermost dimensions in which both boxes have the full extent, and one more.
  std::size_t outer = shared.size.size();
  std::uint64_t count = 1;
  while (outer > 0) {
    --outer;
    count *= static_cast<std::uint64_t>(shared.size[outer]);
    if (!spans(shared, from, outer) || !spans(shared, to, outer)) break;
  }
  Shape place = shared.begin;
  for (;;) {
    take({position(place, from), position(place, to), count});
    std::size_t d = outer;  // go to the next place: innermost of the outer dimensions first
    while (d > 0 && ++place[d - 1] == shared.begin[d - 1] + shared.size[d - 1]) {
      --d;
      place[d] = shared.begin[d];
    }
    if (d == 0) return;
  }
}

std::string why_not_whole(const Shape& shape, const std::vector<Box>& boxes) {
  std::uint64_t covered = 0;
  for (const Box& box : boxes) {
    if (!is_within(box, shape)) return to_string(box) + " is not within " + to_string(shape);
    covered += element_count(box);
  }
  // No two boxes may overlap. After sorting by the first dimension, each is compared with few
  // others.
  std::vector<std::size_t> order(boxes.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  const auto first = [&](std::size_t i) { return shape.empty() ? 0 : boxes[i].begin[0]; };
  const auto end = [&](std::size_t i) { return shape.empty() ? 1 : boxes[i].begin[0] + boxes[i].size[0]; };
  std::sort(order.begin(), order.end(), [&](std::size_t a, std::size_t b) { return first(a) < first(b); });
  for (std::size_t i = 0; i < order.size(); ++i) {
    for (std::size_t k = i + 1; k < order.size() && first(order[k]) < end(order[i]); ++k) {
      if (const auto both = intersection(boxes[order[i]], boxes[order[k]])) {
        return to_string(*both) + " of " + to_string(shape) + " is given twice";
      }
    }
  }
  const std::uint64_t all = element_count(whole_box(shape));
  if (covered == all) return "";
  return std::to_string(all - covered) + " of the " + std::to_string(all) + " elements of " + to_string(shape) +
         " are missing";
}

}  // namespace ddp::runtime
