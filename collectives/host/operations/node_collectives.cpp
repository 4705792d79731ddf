// SPDX-License-Identifier: BSD-3-Clause
#include "collectives/host/operations/node_collectives.hpp"

#include <algorithm>
#include <deque>
#include <numeric>

#include "collectives/host/memory/copies.hpp"
#include "collectives/host/operations/slices.hpp"

namespace ddp::collectives {
namespace {

// Up to this many bytes, the first ranks of the nodes alone exchange data, in few rounds.
constexpr std::size_t kSmallBytes = 64 << 10;
constexpr std::size_t kPieceBytes = 512 << 10;  // a step's piece
// How many pieces of its own a node sends ahead of those that it waits for.
constexpr std::size_t kAhead = 2;

}  // namespace

NodeCollectives::NodeCollectives(const Membership& membership, Network& network)
    : layout_(network.layout()),
      shared_(membership),
      steps_(shared_.steps()),
      transfers_(network, membership),
      most_bytes_(network.ring_bytes() / 2) {}

// A rank that waits for ranks of its node goes on sending what it was asked to send.
void NodeCollectives::set_meanwhile(std::function<bool()> meanwhile) {
  transfers_.meanwhile = meanwhile;
  steps_.meanwhile = [this, meanwhile] {
    const bool sends = transfers_.pump();
    return meanwhile() || sends;
  };
}

void NodeCollectives::start(std::uint32_t what, std::int64_t timeout_ms, int most_looks) {
  steps_.start(what, timeout_ms, most_looks);
  transfers_.start(steps_.call(), timeout_ms, most_looks);
}

// In round i a node passes on what it has to the node 2^i before it, and gets as much from the node 2^i after it.
void NodeCollectives::exchange(unsigned char* all, const std::vector<std::size_t>& begin) {
  const std::uint32_t nodes = layout_.node_count();
  for (std::uint32_t distance = 1; distance < nodes; distance *= 2) {
    const std::uint32_t parts = std::min(distance, nodes - distance);
    const std::uint32_t to = layout_.nodes[node_at(nodes - distance)].front();
    const std::uint32_t from = layout_.nodes[node_at(distance)].front();
    for (std::uint32_t i = 0; i < parts; ++i) {
      const std::uint32_t node = node_at(i);
      transfers_.send(to, all + begin[node], begin[node + 1] - begin[node]);
    }
    Transfers::Frame last;
    for (std::uint32_t i = 0; i < parts; ++i) {
      const std::uint32_t node = node_at(distance + i);
      last = transfers_.receive(from, all + begin[node], begin[node + 1] - begin[node]);
    }
    transfers_.wait_received(last);
  }
  transfers_.finish();
}

void NodeCollectives::barrier() {
  Step arrived, all_arrived;
  if (!is_alone()) {
    arrived = steps_.begin(0);
    steps_.publish(arrived);
  }
  if (layout_.is_first()) {
    if (!is_alone()) steps_.await_all(arrived);
    offsets_.assign(layout_.node_count() + 1, 0);
    exchange(nullptr, offsets_);
  }
  if (is_alone()) return;
  all_arrived = steps_.begin(0);
  steps_.publish(all_arrived);
  if (!layout_.is_first()) steps_.await(0, all_arrived);
}

// Large data goes from node to node in a chain that begins at the root's, small data along a binomial tree.
void NodeCollectives::broadcast(unsigned char* data, std::size_t bytes, std::uint32_t root) {
  const bool is_small = bytes <= kSmallBytes;
  const std::size_t most = std::min(kPieceBytes, most_bytes_);
  for (std::size_t done = 0; done < bytes; done += most)
    pass_chunk(data + done, std::min(most, bytes - done), root, is_small);
  transfers_.finish();
}

void NodeCollectives::pass_chunk(unsigned char* data, std::size_t bytes, std::uint32_t root, bool is_small) {
  const std::uint32_t nodes = layout_.node_count(), root_node = layout_.node_of[root];
  const std::uint32_t place = (layout_.node + nodes - root_node) % nodes;  // the root's node has place 0
  const auto opposite_at = [&](std::uint32_t other) { return opposite((root_node + other) % nodes); };
  const bool is_carrier = is_small ? layout_.is_first() : carries();
  const std::uint32_t lanes = is_small ? 1 : layout_.lanes;
  const auto slice = [&](std::uint32_t lane) { return is_small ? Range{0, bytes} : slice_of({0, bytes}, lane); };
  // From a place in the tree, the parent is without the lowest bit that is set, and children add lower ones.
  std::vector<std::uint32_t> children;
  std::uint32_t parent = place - 1;
  if (is_small) {
    const std::uint32_t lowest = place == 0 ? nodes : (place & (~place + 1));
    parent = place - lowest;
    std::uint32_t bit = 1;
    while (bit < lowest && bit < nodes) bit *= 2;
    for (bit /= 2; bit > 0; bit /= 2) {
      if (place + bit < nodes) children.push_back(place + bit);
    }
  } else if (place + 1 < nodes) {
    children.push_back(place + 1);
  }
  const Range own = is_carrier ? slice(is_small ? 0 : layout_.index) : Range{};
  if (place != 0 && own.count() > 0)
    transfers_.wait_received(transfers_.receive(opposite_at(parent), data + own.begin, own.count()));
  if (place == 0 && !is_alone()) {
    const Step step = steps_.begin(bytes);
    const std::uint32_t from = layout_.index_of[root];
    if (layout_.rank == root) copy(steps_.own(step), data, bytes);
    steps_.publish(step);
    if (layout_.rank != root) {
      steps_.await(from, step);
      copy(data, steps_.of(from, step), bytes);
    }
  }
  for (const std::uint32_t child : children) {
    if (own.count() > 0) transfers_.send(opposite_at(child), data + own.begin, own.count());
  }
  if (place == 0 || is_alone()) return;
  const Step step = steps_.begin(slice(0).count());
  if (own.count() > 0) copy(steps_.own(step), data + own.begin, own.count());
  steps_.publish(step);
  for (std::uint32_t lane = 0; lane < lanes; ++lane) {
    if (lane == layout_.index || slice(lane).count() == 0) continue;
    steps_.await(lane, step);
    copy(data + slice(lane).begin, steps_.of(lane, step), slice(lane).count());
  }
}

void NodeCollectives::all_gather(const unsigned char* input, unsigned char* output,
                                 const std::vector<std::size_t>& bytes) {
  const std::size_t total = std::accumulate(bytes.begin(), bytes.end(), std::size_t{0});
  if (total <= std::min(kSmallBytes, most_bytes_)) return all_gather_small(input, output, bytes, total);
  set_begins(offsets_, bytes);
  copy(output + offsets_[layout_.rank], input, bytes[layout_.rank]);
  // A lane of a large node carries several ranks' parts in a step.
  std::size_t largest = 0;
  for (const auto& ranks : layout_.nodes) largest = std::max(largest, ranks.size());
  const std::size_t together = (largest + layout_.lanes - 1) / layout_.lanes;
  const std::size_t most = std::max<std::size_t>(std::min(kPieceBytes, most_bytes_ / together), 1);
  const std::size_t pieces = (*std::max_element(bytes.begin(), bytes.end()) + most - 1) / most;
  const auto piece = [&](std::size_t i) { return Range{i * most, (i + 1) * most}; };
  // Receives are queued in the order in which the node before this one sends: its own piece i, then what it forwards of
  // piece i - kAhead.
  std::deque<Transfers::Frame> neighbours;
  for (std::size_t i = 0; i < pieces + kAhead; ++i) {
    if (i < pieces) {
      gather_on_node(output, bytes, piece(i));
      neighbours.push_back(expect(output, bytes, piece(i), 1));
    }
    if (i < kAhead) continue;
    const Range late = piece(i - kAhead);
    gather_from_node(output, bytes, late, 1, neighbours.front());
    neighbours.pop_front();
    for (std::uint32_t distance = 2; distance < layout_.node_count(); ++distance)
      gather_from_node(output, bytes, late, distance, expect(output, bytes, late, distance));
  }
  transfers_.finish();
}

void NodeCollectives::all_gather_small(const unsigned char* input, unsigned char* output,
                                       const std::vector<std::size_t>& bytes, std::size_t total) {
  std::vector<std::size_t> begin = {0};  // by place
  for (const std::uint32_t rank : layout_.in_order) begin.push_back(begin.back() + bytes[rank]);
  const std::uint32_t first_place = layout_.places[layout_.node];
  Step parts, all;
  if (!is_alone()) {
    std::size_t largest = 0;
    for (const std::uint32_t rank : layout_.own_ranks()) largest = std::max(largest, bytes[rank]);
    parts = steps_.begin(largest);
    if (largest > 0) copy(steps_.own(parts), input, bytes[layout_.rank]);
    steps_.publish(parts);
  }
  if (layout_.is_first()) {
    scratch_.resize(total);
    copy(scratch_.data() + begin[first_place], input, bytes[layout_.rank]);
    for (std::uint32_t i = 1; i < ranks_here(); ++i) {
      const std::size_t size = bytes[layout_.own_ranks()[i]];
      steps_.await(i, parts);
      if (size > 0) copy(scratch_.data() + begin[first_place + i], steps_.of(i, parts), size);
    }
    offsets_.clear();
    for (const std::uint32_t place : layout_.places) offsets_.push_back(begin[place]);
    exchange(scratch_.data(), offsets_);
  }
  const unsigned char* gathered = scratch_.data();
  if (!is_alone()) {
    all = steps_.begin(total);
    if (layout_.is_first() && total > 0) copy(steps_.own(all), scratch_.data(), total);
    steps_.publish(all);
    if (!layout_.is_first()) steps_.await(0, all);
    if (!layout_.is_first() && total > 0) gathered = steps_.of(0, all);
  }
  std::size_t at = 0;
  for (std::uint32_t rank = 0; rank < layout_.size(); ++rank) {
    const std::uint32_t place = layout_.places[layout_.node_of[rank]] + layout_.index_of[rank];
    copy(output + at, gathered + begin[place], bytes[rank]);
    at += bytes[rank];
  }
}

// One piece of each of this node's parts: to all ranks of the node, and on to the next node.
void NodeCollectives::gather_on_node(unsigned char* output, const std::vector<std::size_t>& bytes, const Range& piece) {
  const auto part = [&](std::uint32_t rank) { return piece.within({0, bytes[rank]}); };
  std::size_t largest = 0;
  for (const std::uint32_t rank : layout_.own_ranks()) largest = std::max(largest, part(rank).count());
  if (!is_alone() && largest > 0) {
    const Step step = steps_.begin(largest);
    const Range own = part(layout_.rank);
    if (own.count() > 0) copy(steps_.own(step), output + offsets_[layout_.rank] + own.begin, own.count());
    steps_.publish(step);
    for (std::uint32_t j = 1; j < ranks_here(); ++j) {
      const std::uint32_t i = (layout_.index + j) % ranks_here(), rank = layout_.own_ranks()[i];
      if (part(rank).count() == 0) continue;
      steps_.await(i, step);
      copy(output + offsets_[rank] + part(rank).begin, steps_.of(i, step), part(rank).count());
    }
  }
  if (layout_.node_count() > 1) forward(output, bytes, piece, layout_.node);
}

// Sends this lane's share of a piece of a node's parts to the next node.
void NodeCollectives::forward(const unsigned char* output, const std::vector<std::size_t>& bytes, const Range& piece,
                              std::uint32_t node) {
  if (!carries()) return;
  const std::vector<std::uint32_t>& ranks = layout_.nodes[node];
  for (std::size_t i = layout_.index; i < ranks.size(); i += layout_.lanes) {
    const Range part = piece.within({0, bytes[ranks[i]]});
    if (part.count() > 0) transfers_.send(opposite(node_at(1)), output + offsets_[ranks[i]] + part.begin, part.count());
  }
}

// Queues the receives of this lane's share of a piece, of the parts of the node that many places before this one.
Transfers::Frame NodeCollectives::expect(unsigned char* output, const std::vector<std::size_t>& bytes,
                                         const Range& piece, std::uint32_t distance) {
  Transfers::Frame last;
  if (!carries()) return last;
  const std::vector<std::uint32_t>& ranks = layout_.nodes[node_at(layout_.node_count() - distance)];
  for (std::size_t i = layout_.index; i < ranks.size(); i += layout_.lanes) {
    const Range part = piece.within({0, bytes[ranks[i]]});
    if (part.count() == 0) continue;
    last = transfers_.receive(opposite(node_at(layout_.node_count() - 1)), output + offsets_[ranks[i]] + part.begin,
                              part.count());
  }
  return last;
}

// Waits for that share, passes it on and shows it to this node. `last` is the last of its receives.
void NodeCollectives::gather_from_node(unsigned char* output, const std::vector<std::size_t>& bytes, const Range& piece,
                                       std::uint32_t distance, const Transfers::Frame& last) {
  const std::uint32_t nodes = layout_.node_count(), node = node_at(nodes - distance);
  const std::vector<std::uint32_t>& ranks = layout_.nodes[node];
  const auto part = [&](std::size_t i) { return piece.within({0, bytes[ranks[i]]}); };
  // Calls visit(index of the rank in its node, where its piece lies in the lane's) for a lane.
  const auto for_lane = [&](std::uint32_t lane, const auto& visit) {
    std::size_t at = 0;
    for (std::size_t i = lane; i < ranks.size(); i += layout_.lanes) {
      if (part(i).count() > 0) visit(i, at);
      at += part(i).count();
    }
    return at;
  };
  const auto nothing = [](std::size_t, std::size_t) {};
  std::size_t largest = 0;
  for (std::uint32_t lane = 0; lane < layout_.lanes; ++lane) largest = std::max(largest, for_lane(lane, nothing));
  if (largest == 0) return;
  if (carries()) {
    if (last.link != nullptr) transfers_.wait_received(last);
    if (distance + 1 < nodes) forward(output, bytes, piece, node);
  }
  if (is_alone()) return;
  const Step step = steps_.begin(largest);
  if (carries()) {
    for_lane(layout_.index, [&](std::size_t i, std::size_t at) {
      copy(steps_.own(step) + at, output + offsets_[ranks[i]] + part(i).begin, part(i).count());
    });
  }
  steps_.publish(step);
  for (std::uint32_t lane = 0; lane < layout_.lanes; ++lane) {
    if (lane == layout_.index || for_lane(lane, nothing) == 0) continue;
    steps_.await(lane, step);
    for_lane(lane, [&](std::size_t i, std::size_t at) {
      copy(output + offsets_[ranks[i]] + part(i).begin, steps_.of(lane, step) + at, part(i).count());
    });
  }
}

// Ranks of other nodes send to the root themselves. The root's own node has shared memory.
void NodeCollectives::gather(const unsigned char* input, unsigned char* output, std::size_t bytes, std::uint32_t root) {
  if (bytes == 0) return;
  if (!layout_.is_local(root)) {
    transfers_.send(root, input, bytes);
    return transfers_.finish();
  }
  const std::uint32_t at = layout_.index_of[root];
  for (std::uint32_t r = 0; r < layout_.size() && layout_.rank == root; ++r) {
    if (!layout_.is_local(r)) transfers_.receive(r, output + r * bytes, bytes);
  }
  if (layout_.rank == root) scratch_.resize(bytes * ranks_here());
  shared_.gather(input, scratch_.data(), bytes, at);
  for (std::uint32_t i = 0; i < ranks_here() && layout_.rank == root; ++i)
    copy(output + layout_.own_ranks()[i] * bytes, scratch_.data() + i * bytes, bytes);
  transfers_.finish();
}

void NodeCollectives::scatter(const unsigned char* input, unsigned char* output, std::size_t bytes,
                              std::uint32_t root) {
  if (bytes == 0) return;
  if (!layout_.is_local(root)) {
    transfers_.receive(root, output, bytes);
    return transfers_.finish();
  }
  for (std::uint32_t r = 0; r < layout_.size() && layout_.rank == root; ++r) {
    if (!layout_.is_local(r)) transfers_.send(r, input + r * bytes, bytes);
  }
  if (layout_.rank == root) {
    scratch_.resize(bytes * ranks_here());
    for (std::uint32_t i = 0; i < ranks_here(); ++i)
      copy(scratch_.data() + i * bytes, input + layout_.own_ranks()[i] * bytes, bytes);
  }
  shared_.scatter(scratch_.data(), output, bytes, layout_.index_of[root]);
  transfers_.finish();
}

// Each pair of ranks on different nodes has a link of its own.
void NodeCollectives::all_to_all(const unsigned char* input, const std::vector<std::size_t>& input_bytes,
                                 unsigned char* output, const std::vector<std::size_t>& output_bytes) {
  std::vector<std::size_t> sent, received;
  set_begins(sent, input_bytes);
  set_begins(received, output_bytes);
  for (std::uint32_t i = 1; i < layout_.size(); ++i) {
    const std::uint32_t to = (layout_.rank + i) % layout_.size();
    const std::uint32_t from = (layout_.rank + layout_.size() - i) % layout_.size();
    if (!layout_.is_local(to)) transfers_.send(to, input + sent[to], input_bytes[to]);
    if (!layout_.is_local(from)) transfers_.receive(from, output + received[from], output_bytes[from]);
  }
  // The parts for this node's ranks, one after the other.
  std::vector<std::size_t> sizes_in, sizes_out;
  std::vector<unsigned char> in, out;
  for (const std::uint32_t rank : layout_.own_ranks()) {
    sizes_in.push_back(input_bytes[rank]);
    sizes_out.push_back(output_bytes[rank]);
    in.insert(in.end(), input + sent[rank], input + sent[rank] + input_bytes[rank]);
  }
  out.resize(std::accumulate(sizes_out.begin(), sizes_out.end(), std::size_t{0}));
  shared_.all_to_all(in.data(), sizes_in, out.data(), sizes_out);
  std::size_t at = 0;
  for (const std::uint32_t rank : layout_.own_ranks()) {
    copy(output + received[rank], out.data() + at, output_bytes[rank]);
    at += output_bytes[rank];
  }
  transfers_.finish();
}

}  // namespace ddp::collectives
