// SPDX-License-Identifier: BSD-3-Clause
#include "collectives/host/operations/shared_collectives.hpp"

#include <algorithm>
#include <cstring>
#include <utility>

#include "collectives/host/memory/copies.hpp"
#include "collectives/host/operations/slices.hpp"

namespace ddp::collectives {
namespace {

// A reduction in place writes its results from the first cache.
constexpr std::size_t kResultBytes = 16 << 10;
// What an exchange moves for each pair of ranks in its first step.
constexpr std::size_t kFirstExchange = 4 << 10;

// What a rank says to each other one in the first step of an exchange, before the data.
struct ExchangeHeader {
  std::uint64_t steps;  // that this rank needs
  std::uint64_t bytes;  // that it sends to the other one
};

}  // namespace

SharedCollectives::SharedCollectives(const Membership& membership)
    : steps_(membership),
      rank_(membership.rank()),
      size_(membership.size()),
      buffers_(membership),
      sources_(membership.size()),
      in_place_(membership.size()) {}

std::size_t SharedCollectives::chunk_bytes() const { return std::min(kChunkBytes, steps_.most_bytes()); }

void SharedCollectives::reduce(unsigned char* data, std::size_t count, std::size_t element, const Reduction& reduction,
                               std::optional<std::uint32_t> root) {
  if (count * element <= std::min(kFlatBytes / size_, chunk_bytes()))
    return reduce_flat(data, count, element, reduction, root);
  if (meet_in_place(data, count * element)) return reduce_in_place(data, count, element, reduction, root);
  reduce_chunks(data, count, element, reduction, root);
}

void SharedCollectives::reduce_chunks(unsigned char* data, std::size_t count, std::size_t element,
                                      const Reduction& reduction, std::optional<std::uint32_t> root) {
  // A chunk and one slice of it share what a collective may use of a ring.
  const std::size_t slice_and_chunk = steps_.most_bytes_of_two() / (size_ + 1) * size_;
  const std::size_t each = even_chunk(count, std::min(kChunkBytes, slice_and_chunk) / element);
  for (std::size_t done = 0; done < count; done += each) {
    reduce_sliced(data + done * element, std::min(each, count - done), element, reduction, root);
  }
}

void SharedCollectives::reduce_flat(unsigned char* data, std::size_t count, std::size_t element,
                                    const Reduction& reduction, std::optional<std::uint32_t> root) {
  const Step step = steps_.begin(count * element);
  copy(steps_.own(step), data, count * element);
  steps_.publish(step);
  if (root && *root != rank_) return;
  steps_.await_all(step);
  for (std::uint32_t r = 0; r < size_; ++r) sources_[r] = steps_.of(r, step);
  reduction.run(sources_.data(), size_, data, count);
}

void SharedCollectives::reduce_sliced(unsigned char* data, std::size_t count, std::size_t element,
                                      const Reduction& reduction, std::optional<std::uint32_t> root) {
  const Slice mine = slice_of(count, element, rank_, size_);
  const auto [contributions, results] =
      steps_.begin_two(count * element, slice_of(count, element, 0, size_).count() * element);
  // Step 1: everything but the own slice, which no other rank reads.
  unsigned char* const own = steps_.own(contributions);
  copy(own, data, mine.begin * element);
  copy(own + mine.end * element, data + mine.end * element, (count - mine.end) * element);
  steps_.publish(contributions);
  steps_.await_all(contributions);
  // Step 2: the own slice's result.
  for (std::uint32_t r = 0; r < size_; ++r) {
    sources_[r] = (r == rank_ ? data : steps_.of(r, contributions)) + mine.begin * element;
  }
  reduction.run(sources_.data(), size_, steps_.own(results), mine.count());
  steps_.publish(results);
  if (root && *root != rank_) return;
  copy(data + mine.begin * element, steps_.own(results), mine.count() * element);
  for (std::uint32_t i = 1; i < size_; ++i) {
    const std::uint32_t r = (rank_ + i) % size_;
    const Slice theirs = slice_of(count, element, r, size_);
    steps_.await(r, results);
    copy(data + theirs.begin * element, steps_.of(r, results), theirs.count() * element);
  }
}

// Returns whether all ranks pass the same place in a shared buffer. Then each rank's memory is in in_place_, with what
// the rank wrote before, and stays as it is until that rank leaves the next step.
bool SharedCollectives::meet_in_place(const unsigned char* data, std::size_t bytes) {
  if (!buffers_.were_used() || bytes <= kFlatBytes / size_) return false;
  const std::uint64_t place = buffers_.place_of(data, bytes);
  const Step arrival = steps_.begin(sizeof place);
  std::memcpy(steps_.own(arrival), &place, sizeof place);
  steps_.publish(arrival);
  steps_.await_all(arrival);
  for (std::uint32_t r = 0; r < size_; ++r) {
    if (std::memcmp(steps_.of(r, arrival), &place, sizeof place) != 0) return false;
  }
  if (place == 0) return false;
  for (std::uint32_t r = 0; r < size_; ++r) in_place_[r] = buffers_.of_rank(r, place);
  return true;
}

// Each rank reduces its slice of all buffers and writes the result into those that get it: nobody else reads or writes
// that slice.
void SharedCollectives::reduce_in_place(unsigned char* data, std::size_t count, std::size_t element,
                                        const Reduction& reduction, std::optional<std::uint32_t> root) {
  const Slice mine = slice_of(count, element, rank_, size_);
  const std::size_t most = kResultBytes / element;
  for (std::size_t i = mine.begin; i < mine.end; i += most) {
    const std::size_t some = std::min(most, mine.end - i);
    for (std::uint32_t r = 0; r < size_; ++r) sources_[r] = in_place_[r] + i * element;
    unsigned char* const first = root ? in_place_[*root] : data;
    reduction.run(sources_.data(), size_, first + i * element, some);
    for (std::uint32_t r = 0; r < size_ && !root; ++r) {
      if (r != rank_) copy(in_place_[r] + i * element, data + i * element, some * element);
    }
  }
  barrier();
}

void SharedCollectives::reduce_scatter(const unsigned char* input, unsigned char* output, std::size_t count,
                                       std::size_t element, const Reduction& reduction) {
  if (meet_in_place(input, size_ * count * element)) {
    for (std::uint32_t r = 0; r < size_; ++r) sources_[r] = in_place_[r] + rank_ * count * element;
    reduction.run(sources_.data(), size_, output, count);
    return barrier();
  }
  const std::size_t most = std::max<std::size_t>(chunk_bytes() / size_ / element, 1);
  for (std::size_t done = 0; done < count; done += most) {
    const std::size_t some = std::min(most, count - done), bytes = some * element;
    const auto part = [&](std::uint32_t r) { return input + (r * count + done) * element; };
    const Step step = steps_.begin(bytes * size_);
    for (std::uint32_t r = 0; r < size_; ++r) {
      if (r != rank_) copy(steps_.own(step) + r * bytes, part(r), bytes);
    }
    steps_.publish(step);
    steps_.await_all(step);
    for (std::uint32_t r = 0; r < size_; ++r) {
      sources_[r] = r == rank_ ? part(rank_) : steps_.of(r, step) + rank_ * bytes;
    }
    reduction.run(sources_.data(), size_, output + done * element, some);
  }
}

void SharedCollectives::broadcast(unsigned char* data, std::size_t bytes, std::uint32_t root) {
  if (meet_in_place(data, bytes)) {
    const Slice mine = slice_of(bytes, 1, rank_, size_);  // each rank copies this part of the root's to all others
    for (std::uint32_t i = 0; i < size_; ++i) {
      const std::uint32_t r = (rank_ + i) % size_;
      if (r != root) copy(in_place_[r] + mine.begin, in_place_[root] + mine.begin, mine.count());
    }
    return barrier();
  }
  if (bytes > kFlatBytes) return broadcast_chunks(data, bytes, root);
  SharedCollectives::broadcast_chunks(data, bytes, root);
}

void SharedCollectives::broadcast_chunks(unsigned char* data, std::size_t bytes, std::uint32_t root) {
  for (std::size_t done = 0; done < bytes;) {
    const std::size_t some = std::min(bytes - done, chunk_bytes());
    const Step step = steps_.begin(some);
    if (rank_ == root) copy(steps_.own(step), data + done, some);
    steps_.publish(step);
    if (rank_ != root) {
      steps_.await(root, step);
      copy(data + done, steps_.of(root, step), some);
    }
    done += some;
  }
}

void SharedCollectives::all_gather(const unsigned char* input, unsigned char* output,
                                   const std::vector<std::size_t>& bytes) {
  set_begins(received_, bytes);
  const std::size_t all_bytes = received_.back() + bytes.back();
  if (buffers_.were_used()) copy(output + received_[rank_], input, bytes[rank_]);  // the others may read it there
  if (meet_in_place(output, all_bytes)) {
    for (std::uint32_t i = 1; i < size_; ++i) {
      const std::uint32_t r = (rank_ + i) % size_;
      copy(output + received_[r], in_place_[r] + received_[r], bytes[r]);
    }
    return barrier();
  }
  if (all_bytes > kFlatBytes) return all_gather_chunks(input, output, bytes, received_);
  SharedCollectives::all_gather_chunks(input, output, bytes, received_);
}

void SharedCollectives::all_gather_chunks(const unsigned char* input, unsigned char* output,
                                          const std::vector<std::size_t>& bytes,
                                          const std::vector<std::size_t>& begins) {
  const std::size_t most = *std::max_element(bytes.begin(), bytes.end());
  for (std::size_t done = 0; done < most;) {
    const std::size_t some = std::min(most - done, chunk_bytes());
    const auto length = [&](std::uint32_t r) { return bytes[r] > done ? std::min(bytes[r] - done, some) : 0; };
    const Step step = steps_.begin(some);
    copy(steps_.own(step), input + done, length(rank_));
    steps_.publish(step);
    if (!buffers_.were_used()) copy(output + begins[rank_] + done, input + done, length(rank_));
    for (std::uint32_t i = 1; i < size_; ++i) {
      const std::uint32_t r = (rank_ + i) % size_;
      steps_.await(r, step);
      copy(output + begins[r] + done, steps_.of(r, step), length(r));
    }
    done += some;
  }
}

void SharedCollectives::gather(const unsigned char* input, unsigned char* output, std::size_t bytes,
                               std::uint32_t root) {
  for (std::size_t done = 0; done < bytes;) {
    const std::size_t some = std::min(bytes - done, chunk_bytes());
    const Step step = steps_.begin(some);
    if (rank_ != root) copy(steps_.own(step), input + done, some);
    steps_.publish(step);
    for (std::uint32_t r = 0; r < size_ && rank_ == root; ++r) {
      if (r == root) {
        copy(output + r * bytes + done, input + done, some);
        continue;
      }
      steps_.await(r, step);
      copy(output + r * bytes + done, steps_.of(r, step), some);
    }
    done += some;
  }
}

void SharedCollectives::scatter(const unsigned char* input, unsigned char* output, std::size_t bytes,
                                std::uint32_t root) {
  const std::size_t most = std::max<std::size_t>(steps_.most_bytes() / size_, 1);
  for (std::size_t done = 0; done < bytes;) {
    const std::size_t some = std::min(bytes - done, most);
    const Step step = steps_.begin(some * size_);
    for (std::uint32_t r = 0; r < size_ && rank_ == root; ++r) {
      if (r != root) copy(steps_.own(step) + r * some, input + r * bytes + done, some);
    }
    steps_.publish(step);
    if (rank_ == root) {
      copy(output + done, input + root * bytes + done, some);
    } else {
      steps_.await(root, step);
      copy(output + done, steps_.of(root, step) + rank_ * some, some);
    }
    done += some;
  }
}

// The ranks know their own sizes only. So in the first step each tells each other one how many steps it needs, and how
// much it sends. All go through as many steps as the rank that needs most. The first step is small, since most
// exchanges are.
void SharedCollectives::all_to_all(const unsigned char* input, const std::vector<std::size_t>& input_bytes,
                                   unsigned char* output, const std::vector<std::size_t>& output_bytes) {
  constexpr std::size_t kHeader = sizeof(ExchangeHeader);
  const std::size_t most = chunk_bytes() / size_ - kHeader;
  const std::size_t first = std::min(most, kFirstExchange);
  const std::size_t largest = *std::max_element(input_bytes.begin(), input_bytes.end());
  const std::uint64_t own_steps = largest <= first ? 1 : 1 + (largest - first + most - 1) / most;
  set_begins(sent_, input_bytes);
  set_begins(received_, output_bytes);
  copy(output + received_[rank_], input + sent_[rank_], input_bytes[rank_]);
  std::uint64_t steps = own_steps;  // known to be needed
  std::size_t header = kHeader;     // bytes before the data of a pair
  std::size_t done = 0;
  for (std::uint64_t i = 0; i < steps; ++i) {
    const std::size_t part = header + (i == 0 ? first : most);
    const auto length = [&](std::size_t bytes) { return bytes > done ? std::min(bytes - done, part - header) : 0; };
    const Step step = steps_.begin(part * size_);
    for (std::uint32_t r = 0; r < size_; ++r) {
      if (r == rank_) continue;
      const ExchangeHeader own = {own_steps, input_bytes[r]};
      std::memcpy(steps_.own(step) + r * part, &own, header);
      copy(steps_.own(step) + r * part + header, input + sent_[r] + done, length(input_bytes[r]));
    }
    steps_.publish(step);
    for (std::uint32_t j = 1; j < size_; ++j) {
      const std::uint32_t r = (rank_ + j) % size_;
      steps_.await(r, step);
      ExchangeHeader theirs = {steps, output_bytes[r]};
      std::memcpy(&theirs, steps_.of(r, step) + rank_ * part, header);
      if (theirs.bytes != output_bytes[r]) throw steps_.disagreement(r);
      steps = std::max(steps, theirs.steps);
      copy(output + received_[r] + done, steps_.of(r, step) + rank_ * part + header, length(output_bytes[r]));
    }
    done += part - std::exchange(header, 0);
  }
}

void SharedCollectives::barrier() {
  const Step step = steps_.begin(0);
  steps_.publish(step);
  steps_.await_all(step);
}

}  // namespace ddp::collectives
