// SPDX-License-Identifier: BSD-3-Clause
// The reductions of NodeCollectives.
#include <algorithm>
#include <utility>

#include "collectives/host/memory/copies.hpp"
#include "collectives/host/operations/node_collectives.hpp"

namespace ddp::collectives {
namespace {

// Up to this many bytes from all ranks together go directly from node to node: fewer hops than the chain has.
constexpr std::size_t kDirectBytes = 128 << 10;
// Chunks of the chain, for each lane: small enough to keep all nodes busy, large enough to make few steps.
constexpr std::size_t kSmallestSlice = 32 << 10, kLargestSlice = 256 << 10, kSlicesToFill = 16;
// How many chunks are under way for each node that is yet to add its ranks.
constexpr std::size_t kWindow = 3;
// Memory that is kept from one call to the next.
constexpr std::size_t kMostKept = 16 << 20;

}  // namespace

NodeCollectives::Range NodeCollectives::Range::within(const Range& other) const {
  Range both = {std::max(begin, other.begin), std::min(end, other.end)};
  if (both.end < both.begin) both.end = both.begin;
  return both;
}

void NodeCollectives::reduce(unsigned char* data, std::size_t count, std::size_t element, const Reduction& reduction,
                             std::optional<std::uint32_t> root) {
  if (count == 0) return barrier();
  const std::size_t together = count * element * layout_.size();
  if (together <= std::min(kDirectBytes, most_bytes_)) return reduce_small(data, count, element, reduction);
  Chain chain;
  chain.data = data;
  chain.count = count;
  chain.element = element;
  chain.reduction = &reduction;
  const Range all = {0, count};
  chain.wanted.assign(layout_.node_count(), root ? Range{} : all);
  if (root) chain.wanted[layout_.node_of[*root]] = all;
  chain.kept = !root || *root == layout_.rank ? all : Range{};
  reduce_along_nodes(std::move(chain));
}

// All contributions go to the first rank of every node, which adds them and shares the result with its node.
void NodeCollectives::reduce_small(unsigned char* data, std::size_t count, std::size_t element,
                                   const Reduction& reduction) {
  const std::size_t bytes = count * element;
  Step contributions, result;
  if (!is_alone()) {
    contributions = steps_.begin(bytes);
    copy(steps_.own(contributions), data, bytes);
    steps_.publish(contributions);
  }
  if (layout_.is_first()) {
    scratch_.resize(bytes * layout_.size());
    unsigned char* const own = scratch_.data() + layout_.places[layout_.node] * bytes;
    copy(own, data, bytes);
    for (std::uint32_t i = 1; i < ranks_here(); ++i) {
      steps_.await(i, contributions);
      copy(own + i * bytes, steps_.of(i, contributions), bytes);
    }
    offsets_.clear();
    for (const std::uint32_t place : layout_.places) offsets_.push_back(place * bytes);
    exchange(scratch_.data(), offsets_);
    sources_.resize(layout_.size());
    for (std::uint32_t i = 0; i < layout_.size(); ++i) sources_[i] = scratch_.data() + i * bytes;
    reduction.run(sources_.data(), layout_.size(), data, count);
  }
  if (is_alone()) return;
  result = steps_.begin(bytes);
  if (layout_.is_first()) copy(steps_.own(result), data, bytes);
  steps_.publish(result);
  if (layout_.is_first()) return;
  steps_.await(0, result);
  copy(data, steps_.of(0, result), bytes);
}

void NodeCollectives::reduce_scatter(const unsigned char* input, unsigned char* output, std::size_t count,
                                     std::size_t element, const Reduction& reduction) {
  if (count == 0) return barrier();
  // The parts in the order of summation: then what a node wants is one range.
  const std::size_t bytes = count * element;
  std::vector<unsigned char> parts = std::move(received_);
  parts.resize(bytes * layout_.size());
  for (std::uint32_t i = 0; i < layout_.size(); ++i)
    copy(parts.data() + i * bytes, input + layout_.in_order[i] * bytes, bytes);
  const std::uint32_t place = layout_.places[layout_.node] + layout_.index;
  if (parts.size() * layout_.size() <= std::min(kDirectBytes, most_bytes_)) {
    reduce_small(parts.data(), count * layout_.size(), element, reduction);
  } else {
    Chain chain;
    chain.data = parts.data();
    chain.count = count * layout_.size();
    chain.element = element;
    chain.reduction = &reduction;
    for (std::uint32_t node = 0; node < layout_.node_count(); ++node)
      chain.wanted.push_back({layout_.places[node] * count, layout_.places[node + 1] * count});
    chain.kept = {place * count, (place + 1) * count};
    reduce_along_nodes(std::move(chain));
  }
  copy(output, parts.data() + place * bytes, bytes);
  if (parts.capacity() <= kMostKept) received_ = std::move(parts);
}

// What comes back to a node from the next one: all that it or a node before it wants. Ranges begin at 0 or follow each
// other, so this is one range from the first that is wanted.
NodeCollectives::Range NodeCollectives::returned(const Chain& chain, std::uint32_t node) const {
  std::size_t end = 0;
  for (std::uint32_t k = 0; k <= node; ++k) end = std::max(end, chain.wanted[k].end);
  return {0, end};
}

NodeCollectives::Range NodeCollectives::slice_of(const Range& chunk, std::uint32_t lane) const {
  constexpr std::size_t kElements = 64;  // slices begin at whole lines, for elements of 2 bytes and more
  const std::size_t each = (chunk.count() / layout_.lanes + kElements) / kElements * kElements;
  const std::size_t begin = std::min(chunk.end, chunk.begin + each * lane);
  return {begin, lane + 1 == layout_.lanes ? chunk.end : std::min(chunk.end, begin + each)};
}

void NodeCollectives::reduce_along_nodes(Chain chain) {
  const std::size_t slice =
      std::clamp(chain.count * chain.element / layout_.lanes / kSlicesToFill, kSmallestSlice, kLargestSlice);
  chain.each = std::max<std::size_t>(std::min(slice * layout_.lanes, most_bytes_) / chain.element, 1);
  const std::size_t chunks = (chain.count + chain.each - 1) / chain.each;
  const std::size_t window = kWindow * (layout_.node_count() - 1 - layout_.node);
  const auto chunk = [&](std::size_t i) { return Range{i * chain.each, std::min(chain.count, (i + 1) * chain.each)}; };
  for (std::size_t i = 0; i < chunks + window; ++i) {
    if (i < chunks) contribute(chain, chunk(i));
    if (i >= window) deliver(chain, chunk(i - window));
  }
  transfers_.finish();
  if (scratch_.capacity() > kMostKept) scratch_ = {};
}

// The ranks of this node show their contributions, and those that carry a lane add them to its slice.
void NodeCollectives::contribute(const Chain& chain, const Range& chunk) {
  const Range slice = carries() ? slice_of(chunk, layout_.index) : Range{chunk.end, chunk.end};
  sources_.assign(ranks_here(), chain.data + slice.begin * chain.element);
  if (!is_alone()) {
    const Step step = steps_.begin(chunk.count() * chain.element);
    const auto at = [&](std::size_t index) { return (index - chunk.begin) * chain.element; };
    unsigned char* const own = steps_.own(step);
    copy(own, chain.data + chunk.begin * chain.element, at(slice.begin));
    copy(own + at(slice.end), chain.data + slice.end * chain.element, at(chunk.end) - at(slice.end));
    steps_.publish(step);
    if (!carries()) return;
    steps_.await_all(step);
    for (std::uint32_t i = 0; i < ranks_here(); ++i) {
      if (i != layout_.index) sources_[i] = steps_.of(i, step) + at(slice.begin);
    }
  }
  if (slice.count() > 0) add_own_node(chain, slice);
}

void NodeCollectives::add_own_node(const Chain& chain, const Range& slice) {
  const Reduction& reduction = *chain.reduction;
  const bool is_last = layout_.node + 1 == layout_.node_count();
  unsigned char* const data = chain.data + slice.begin * chain.element;
  if (layout_.node == 0) {
    // One rank's contribution needs no sum, and stays where it is until the result comes back.
    if (is_alone()) {
      transfers_.send(opposite(1), data, slice.count() * chain.element);
    } else {
      auto sum = transfers_.spare(opposite(1), slice.count() * reduction.partial_size());
      reduction.run_stage(nullptr, sources_.data(), sources_.size(), sum.data(), slice.count(), Reduction::Stage::More);
      transfers_.send(opposite(1), std::move(sum));
    }
    return;
  }
  const bool is_one_rank = layout_.node == 1 && layout_.nodes[0].size() == 1;
  scratch_.resize(slice.count() * (is_one_rank ? chain.element : reduction.partial_size()));
  transfers_.wait_received(transfers_.receive(opposite(layout_.node - 1), scratch_.data(), scratch_.size()));
  const unsigned char* partial = scratch_.data();
  if (is_one_rank) {
    sources_.insert(sources_.begin(), scratch_.data());
    partial = nullptr;
  }
  if (is_last) {
    return reduction.run_stage(partial, sources_.data(), sources_.size(), data, slice.count(), Reduction::Stage::Last);
  }
  auto sum = transfers_.spare(opposite(layout_.node + 1), slice.count() * reduction.partial_size());
  reduction.run_stage(partial, sources_.data(), sources_.size(), sum.data(), slice.count(), Reduction::Stage::More);
  transfers_.send(opposite(layout_.node + 1), std::move(sum));
}

// A chunk's result comes from the next node, goes on to the one before, and is shared on this node.
void NodeCollectives::deliver(const Chain& chain, const Range& chunk) {
  const std::uint32_t node = layout_.node;
  const bool is_last = node + 1 == layout_.node_count();
  const auto bytes = [&](const Range& range) { return range.count() * chain.element; };
  if (carries()) {
    const Range slice = slice_of(chunk, layout_.index);
    const Range mine = slice.within(returned(chain, node));
    unsigned char* const data = chain.data + slice.begin * chain.element;
    if (!is_last && mine.count() > 0)
      transfers_.wait_received(transfers_.receive(opposite(node + 1), data, bytes(mine)));
    const Range before = node > 0 ? slice.within(returned(chain, node - 1)) : Range{};
    if (before.count() > 0) transfers_.send(opposite(node - 1), data, bytes(before));
  }
  const Range here = chunk.within(chain.wanted[node]);
  if (is_alone() || here.count() == 0) return;
  const Step step = steps_.begin(bytes(slice_of(chunk, 0)));
  const auto shared = [&](std::uint32_t lane) { return slice_of(chunk, lane).within(here); };
  if (carries())
    copy(steps_.own(step), chain.data + shared(layout_.index).begin * chain.element, bytes(shared(layout_.index)));
  steps_.publish(step);
  for (std::uint32_t lane = 0; lane < layout_.lanes; ++lane) {
    const Range theirs = shared(lane), kept = theirs.within(chain.kept);
    if (lane == layout_.index || kept.count() == 0) continue;
    steps_.await(lane, step);
    copy(chain.data + kept.begin * chain.element, steps_.of(lane, step) + (kept.begin - theirs.begin) * chain.element,
         bytes(kept));
  }
}

}  // namespace ddp::collectives
