// SPDX-License-Identifier: BSD-3-Clause
#include "collectives/host/operations/numa_collectives.hpp"

#include <algorithm>

#include "collectives/host/memory/copies.hpp"

namespace ddp::collectives {

void NumaCollectives::reduce_chunks(unsigned char* data, std::size_t count, std::size_t element,
                                    const Reduction& reduction, std::optional<std::uint32_t> root) {
  const std::size_t each = even_chunk(count, chunk_bytes(reduction, element) / element);
  for (std::size_t done = 0; done < count; done += each) {
    const Chunk chunk =
        begin_chunk(data + done * element, std::min(each, count - done), element, reduction, root.has_value());
    contribute(chunk);
    if (carries()) add_own_node(chunk, reduction);
    if (root) {
      // One rank alone reads the result where it is.
      steps_.publish(chunk.sums.back());
      if (*root == layout_.rank) take_results(chunk, last_node(), chunk.sums);
      continue;
    }
    if (carries() && layout_.node != last_node()) fetch_results(chunk);
    steps_.publish(chunk.results.back());
    take_results(chunk, layout_.node, layout_.node == last_node() ? chunk.sums : chunk.results);
  }
}

// A chunk, and the pieces of one slice of it, which may be wider than elements are, share what a step may have.
std::size_t NumaCollectives::chunk_bytes(const Reduction& reduction, std::size_t element) const {
  const std::size_t widening = reduction.partial_size() / element;
  const std::size_t rounding = (1 + 2 * (1 + kPieces)) * kLine;
  return std::min(kChunkBytes, (steps_.most_bytes() - rounding) / (layout_.lanes + widening) * layout_.lanes);
}

NumaCollectives::Chunk NumaCollectives::begin_chunk(unsigned char* data, std::size_t count, std::size_t element,
                                                    const Reduction& reduction, bool has_root) {
  Chunk chunk = {data, count, element, {}, {}, {}};
  const std::size_t contribution_bytes = whole_lines(count * element);
  const std::size_t piece_bytes = whole_lines(piece_of(chunk, 0, 0).count() * reduction.partial_size());
  chunk.contributions =
      steps_.begin(contribution_bytes + kPieces * piece_bytes, has_root ? 1 + kPieces : 1 + 2 * kPieces);
  for (std::uint32_t i = 0; i < kPieces; ++i) {
    const Step& first = chunk.contributions;
    chunk.sums[i] = {first.number + 1 + i, first.offset + contribution_bytes + i * piece_bytes};
    // A sum has been read by the next NUMA node once the last one has the result, which may lie where the sum was.
    chunk.results[i] = {chunk.sums[i].number + kPieces, chunk.sums[i].offset};
  }
  return chunk;
}

Slice NumaCollectives::piece_of(const Chunk& chunk, std::uint32_t lane, std::uint32_t piece) const {
  const Slice slice = slice_of(chunk.count, chunk.element, lane, layout_.lanes);
  const Slice part = slice_of(slice.count(), chunk.element, piece, kPieces);
  return {slice.begin + part.begin, slice.begin + part.end};
}

// Shows this rank's elements to the ranks of its NUMA node, but those that it adds itself.
void NumaCollectives::contribute(const Chunk& chunk) {
  const Slice mine =
      carries() ? slice_of(chunk.count, chunk.element, layout_.index, layout_.lanes) : Slice{chunk.count, chunk.count};
  unsigned char* const own = steps_.own(chunk.contributions);
  copy(own, chunk.data, mine.begin * chunk.element);
  copy(own + mine.end * chunk.element, chunk.data + mine.end * chunk.element, (chunk.count - mine.end) * chunk.element);
  steps_.publish(chunk.contributions);
}

void NumaCollectives::add_own_node(const Chunk& chunk, const Reduction& reduction) {
  const std::vector<std::uint32_t>& ranks = layout_.own_ranks();
  for (const std::uint32_t r : ranks) {
    if (r != layout_.rank) steps_.await(r, chunk.contributions);
  }
  node_sources_.resize(ranks.size());
  for (std::uint32_t i = 0; i < kPieces; ++i) {
    const Slice piece = piece_of(chunk, layout_.index, i);
    for (std::size_t k = 0; k < ranks.size(); ++k) {
      const unsigned char* const shown =
          ranks[k] == layout_.rank ? chunk.data : steps_.of(ranks[k], chunk.contributions);
      node_sources_[k] = shown + piece.begin * chunk.element;
    }
    const unsigned char* sum_before = nullptr;
    if (layout_.node > 0) {
      const std::uint32_t before = layout_.nodes[layout_.node - 1][layout_.index];
      steps_.await(before, chunk.sums[i]);
      sum_before = steps_.of(before, chunk.sums[i]);
    }
    const auto stage = layout_.node == last_node() ? Reduction::Stage::Last : Reduction::Stage::More;
    if (piece.count() > 0) {
      reduction.run_stage(sum_before, node_sources_.data(), node_sources_.size(), steps_.own(chunk.sums[i]),
                          piece.count(), stage);
    }
    steps_.publish(chunk.sums[i]);
  }
}

void NumaCollectives::fetch_results(const Chunk& chunk) {
  const std::uint32_t last = layout_.nodes[last_node()][layout_.index];
  for (std::uint32_t i = 0; i < kPieces; ++i) {
    steps_.await(last, chunk.sums[i]);
    copy(steps_.own(chunk.results[i]), steps_.of(last, chunk.sums[i]),
         piece_of(chunk, layout_.index, i).count() * chunk.element);
    steps_.publish(chunk.results[i]);
  }
}

// Copies the result from the ranks that carry the lanes on a NUMA node.
void NumaCollectives::take_results(const Chunk& chunk, std::uint32_t node, const PieceSteps& steps) {
  for (std::uint32_t k = 0; k < layout_.lanes; ++k) {
    const std::uint32_t lane = (layout_.index + k) % layout_.lanes, from = layout_.nodes[node][lane];
    for (std::uint32_t i = 0; i < kPieces; ++i) {
      const Slice piece = piece_of(chunk, lane, i);
      steps_.await(from, steps[i]);
      copy(chunk.data + piece.begin * chunk.element, steps_.of(from, steps[i]), piece.count() * chunk.element);
    }
  }
}

void NumaCollectives::broadcast_chunks(unsigned char* data, std::size_t bytes, std::uint32_t root) {
  const std::uint32_t lanes = layout_.lanes;
  const std::size_t chunk_and_slice = steps_.most_bytes_of_two() / (lanes + 1) * lanes;
  const std::size_t most = std::min(kChunkBytes, chunk_and_slice);
  for (std::size_t done = 0; done < bytes; done += most) {
    const std::size_t some = std::min(bytes - done, most);
    const auto [shown, passed_on] = steps_.begin_two(some, slice_of(some, 1, 0, lanes).count());
    if (layout_.rank == root) copy(steps_.own(shown), data + done, some);
    steps_.publish(shown);
    const bool crosses = !layout_.is_local(root);
    if (crosses && carries()) {
      const Slice mine = slice_of(some, 1, layout_.index, lanes);
      steps_.await(root, shown);
      copy(steps_.own(passed_on), steps_.of(root, shown) + mine.begin, mine.count());
    }
    steps_.publish(passed_on);
    for (std::uint32_t lane = 0; lane < lanes && layout_.rank != root; ++lane) {
      const Slice slice = slice_of(some, 1, lane, lanes);
      const std::uint32_t from = crosses ? layout_.own_ranks()[lane] : root;
      steps_.await(from, crosses ? passed_on : shown);
      copy(data + done + slice.begin, crosses ? steps_.of(from, passed_on) : steps_.of(root, shown) + slice.begin,
           slice.count());
    }
  }
}

void NumaCollectives::all_gather_chunks(const unsigned char* input, unsigned char* output,
                                        const std::vector<std::size_t>& bytes, const std::vector<std::size_t>& begins) {
  const std::uint32_t rank = layout_.rank, lanes = layout_.lanes, size = layout_.size();
  // The ranks of other NUMA nodes are dealt to the lanes: number n is passed on by lane n % lanes, in place n / lanes.
  const auto number = [&](std::uint32_t r) {
    return r < layout_.own_ranks().front() ? r : r - static_cast<std::uint32_t>(layout_.own_ranks().size());
  };
  const std::uint32_t most_passed_on = (size - 1) / lanes;  // by a rank of the smallest NUMA node
  const std::size_t most = std::min(kChunkBytes, steps_.most_bytes() / (1 + most_passed_on));
  const std::size_t longest = *std::max_element(bytes.begin(), bytes.end());
  copy(output + begins[rank], input, bytes[rank]);
  for (std::size_t done = 0; done < longest; done += most) {
    const std::size_t some = std::min(longest - done, most);
    const auto length = [&](std::uint32_t r) { return bytes[r] > done ? std::min(bytes[r] - done, some) : 0; };
    const Step shown = steps_.begin(some * (1 + most_passed_on), 2);
    const Step passed_on = {shown.number + 1, shown.offset + some};
    copy(steps_.own(shown), output + begins[rank] + done, length(rank));
    steps_.publish(shown);
    for (std::uint32_t r = 0; r < size; ++r) {
      if (layout_.is_local(r) || number(r) % lanes != layout_.index) continue;
      steps_.await(r, shown);
      copy(steps_.own(passed_on) + number(r) / lanes * some, steps_.of(r, shown), length(r));
    }
    steps_.publish(passed_on);
    for (std::uint32_t i = 1; i < size; ++i) {
      const std::uint32_t r = (rank + i) % size;
      const bool crosses = !layout_.is_local(r);
      const std::uint32_t from = crosses ? layout_.own_ranks()[number(r) % lanes] : r;
      const Step& step = crosses ? passed_on : shown;
      steps_.await(from, step);
      copy(output + begins[r] + done, steps_.of(from, step) + (crosses ? number(r) / lanes * some : 0), length(r));
    }
  }
}

}  // namespace ddp::collectives
