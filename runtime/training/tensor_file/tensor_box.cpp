// SPDX-License-Identifier: BSD-3-Clause
#include "runtime/training/tensor_file/tensor_box.hpp"

#include <algorithm>
#include <cstddef>
#include <numeric>
#include <utility>

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

// Each more may double the time that why_not_whole() takes.
constexpr std::size_t kMaxSplitDimensions = 6;

// Returns the dimensions in which not all boxes have the tensor's full extent.
std::vector<std::size_t> split_dimensions(const Shape& shape, const std::vector<Box>& boxes) {
  std::vector<std::size_t> dimensions;
  for (std::size_t d = 0; d < shape.size(); ++d) {
    if (std::any_of(boxes.begin(), boxes.end(), [&](const Box& box) { return box.size[d] != shape[d]; })) {
      dimensions.push_back(d);
    }
  }
  return dimensions;
}

struct SignedBox {
  const Box* box;
  int sign;
};

// Returns whether the signs of all boxes around an element add up to zero, for every element. The
// boxes are looked at in these dimensions only.
//
// Along the first dimension that sum changes only where a box begins or ends. So it is zero
// everywhere if, at each of these places, what begins and what ends there cancel out in the other
// dimensions.
bool cancel_out(const std::vector<SignedBox>& boxes, std::span<const std::size_t> dimensions) {
  if (dimensions.empty()) {
    int sum = 0;
    for (const SignedBox& each : boxes) sum += each.sign;
    return sum == 0;
  }
  const std::size_t d = dimensions.front();
  std::vector<std::pair<std::int64_t, SignedBox>> edges;
  edges.reserve(2 * boxes.size());
  for (const auto& [box, sign] : boxes) {
    edges.push_back({box->begin[d], {box, sign}});
    edges.push_back({box->begin[d] + box->size[d], {box, -sign}});
  }
  std::sort(edges.begin(), edges.end(), [](const auto& a, const auto& b) { return a.first < b.first; });
  std::vector<SignedBox> here;
  for (auto edge = edges.begin(); edge != edges.end();) {
    here.clear();
    for (const std::int64_t place = edge->first; edge != edges.end() && edge->first == place; ++edge) {
      here.push_back(edge->second);
    }
    if (!cancel_out(here, dimensions.subspan(1))) return false;
  }
  return true;
}

// Returns words for boxes that do not cover the tensor once.
std::string why_not_once(const Shape& shape, const std::vector<Box>& boxes) {
  // Look for two that overlap. After sorting by the first dimension, each is compared with few
  // others, unless somebody has chosen them to take long.
  std::size_t comparisons = 1'000'000;
  std::vector<std::size_t> order(boxes.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  const auto first = [&](std::size_t i) { return shape.empty() ? 0 : boxes[i].begin[0]; };
  const auto end = [&](std::size_t i) { return shape.empty() ? 1 : boxes[i].begin[0] + boxes[i].size[0]; };
  std::sort(order.begin(), order.end(), [&](std::size_t a, std::size_t b) { return first(a) < first(b); });
  for (std::size_t i = 0; i < order.size(); ++i) {
    for (std::size_t k = i + 1; k < order.size() && first(order[k]) < end(order[i]) && comparisons > 0; ++k) {
      --comparisons;
      if (const auto both = intersection(boxes[order[i]], boxes[order[k]])) {
        return to_string(*both) + " of " + to_string(shape) + " is given twice";
      }
    }
  }
  const std::uint64_t all = element_count(whole_box(shape));
  std::uint64_t missing = all;
  for (const Box& box : boxes) missing -= std::min(missing, element_count(box));
  if (missing == 0)
    return "some of the " + std::to_string(all) + " elements of " + to_string(shape) + " are given twice";
  return std::to_string(missing) + " of the " + std::to_string(all) + " elements of " + to_string(shape) +
         " are missing";
}

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
  for (const Box& box : boxes) {
    if (!is_within(box, shape)) return to_string(box) + " is not within " + to_string(shape);
  }
  const Box whole = whole_box(shape);
  if (element_count(whole) == 0 || (boxes.size() == 1 && boxes[0] == whole)) return "";
  const std::vector<std::size_t> dimensions = split_dimensions(shape, boxes);
  if (dimensions.size() > kMaxSplitDimensions) {
    return to_string(shape) + " is split in " + std::to_string(dimensions.size()) + " dimensions, but no more than " +
           std::to_string(kMaxSplitDimensions) + " are possible";
  }
  std::vector<SignedBox> all = {{&whole, -1}};
  for (const Box& box : boxes) all.push_back({&box, 1});
  return cancel_out(all, dimensions) ? "" : why_not_once(shape, boxes);
}

}  // namespace ddp::runtime
