// SPDX-License-Identifier: BSD-3-Clause
#include "collectives/host/successors/logged_collectives.hpp"

#include <algorithm>
#include <cstring>
#include <string>

#include "collectives/host/failure.hpp"
#include "collectives/host/memory/liveness.hpp"
#include "collectives/host/operations/copies.hpp"

namespace ddp::collectives {

namespace {

static_assert(Position().window == kFirstWindow);

[[noreturn]] void refuse_successor(std::uint32_t rank, const std::string& why) {
  throw Failure(DDP_BACKEND_ERROR, "taking the place of rank " + std::to_string(rank) + " of the group: " + why);
}

void check_record(const Segment& segment, std::uint32_t rank, const Position& position) {
  const Counters& counters = segment.counters(rank);
  const std::uint64_t published = counters.published, marked = counters.marked, next = position.chunks + 1;
  if (marked > next) refuse_successor(rank, "the record is of an earlier window");
  if (published < 2 * position.chunks) refuse_successor(rank, "the record is not of this group");
  const bool has_marked = marked == next && published >= 2 * next;
  if (segment.header().last_without_successors >= position.window + (has_marked ? 1 : 0))
    refuse_successor(rank, "it has used messages, or more than the log holds, since its last mark");
}

}  // namespace

LoggedCollectives::LoggedCollectives(Membership& membership, Steps& steps)
    : membership_(membership),
      segment_(membership.segment()),
      steps_(steps),
      log_(membership),
      rank_(membership.rank()),
      size_(membership.size()),
      sources_(membership.size()),
      pieces_(membership.size()) {}

void LoggedCollectives::check_successor(const Segment& segment, std::uint32_t rank, const Position& position) {
  if (!segment.awaits_successors()) refuse_successor(rank, "this group awaits no successors");
  const LivenessWord& word = segment.liveness(rank);
  if (word.holder != 0 && !holder_died(word)) refuse_successor(rank, "its process is still there");
  const PresenceState state = segment.presence(rank).state;
  if (state == PresenceState::Left || state == PresenceState::GaveUp) refuse_successor(rank, "it has left the group");
  if (segment.header().lost != 0) refuse_successor(rank, "the group has lost a rank");
  const bool repeats_start = position.call == 0 && segment.counters(rank).window > kFirstWindow;
  if (!repeats_start) return check_record(segment, rank, position);
  if (segment.header().start_is_lost != 0)
    refuse_successor(rank, "what came before its first mark had messages, or more than the log keeps");
}

void LoggedCollectives::resume(const Position& position) {
  published_before_ = segment_.counters(rank_).published;
  go_to(position);
}

void LoggedCollectives::catch_up(const Position& position) {
  if (position.window == kFirstWindow) return;  // its predecessor had not come further
  check_record(segment_, rank_, position);
  const SegmentHeader& header = segment_.header();
  const std::uint64_t calls = steps_.call() >> 32;
  if (calls != header.start_calls || log_.position() != header.start_log_bytes)
    throw not_deterministic("it has made " + std::to_string(calls) + " calls before its first mark, not " +
                            std::to_string(header.start_calls) + ", or others");
  go_to(position);
}

void LoggedCollectives::go_to(const Position& position) {
  steps_.resume(position.call);
  chunk_ = position.chunks;
  must_mark_ = position.call > 0;
  begin_window(position.window);
}

void LoggedCollectives::begin_window(std::uint64_t window) {
  membership_.begin_window(window);
  const SegmentHeader& header = segment_.header();
  if (window > kFirstWindow && header.start_is_lost == 0) log_.keep_start(header.start_log_bytes, header.start_calls);
  log_.begin_window();
}

void LoggedCollectives::begin_call() {
  if (must_mark_) throw not_deterministic("it has not called mark() first");
  const bool repeats_start = membership_.window() == kFirstWindow && segment_.counters(rank_).window > kFirstWindow;
  if (repeats_start && steps_.call() >> 32 > segment_.header().start_calls)
    throw not_deterministic("it makes more calls before its first mark");
  if (!log_.add_call(steps_.call()))
    throw not_deterministic("call " + std::to_string(steps_.call() >> 32) +
                            " is another one, or has another size, type or root");
}

void LoggedCollectives::mark(Messages messages) {
  const std::uint64_t window = membership_.window() + 1;
  Counters& own = segment_.counters(rank_);
  const Chunk chunk = begin(0);
  if (is_published(chunk.results)) {
    if (own.marked != chunk_)
      throw not_deterministic("call " + std::to_string(steps_.call() >> 32) + " was not mark()");
  } else {
    // Before the mark is published: this rank may die at once after it, with messages in its memory.
    if (messages == Messages::UnderWay) membership_.forgo_successors(window);
    if (window == kFirstWindow + 1) note_start();
    own.window = window;
    own.marked = chunk_;
    steps_.publish(chunk.results);
  }
  steps_.await_all(chunk.results);
  begin_window(window);
  must_mark_ = false;
}

// Called before this rank's first mark is published. The mark itself is a call, but has no bytes in the log.
void LoggedCollectives::note_start() const {
  SegmentHeader& header = segment_.header();
  if (log_.position() > log_.most_start()) header.start_is_lost = 1;
  if (header.start_is_lost != 0) return;
  header.start_calls = (steps_.call() >> 32) - 1;
  header.start_log_bytes = log_.position();
}

// Begins the next chunk. `log_bytes` is equal on all ranks.
LoggedCollectives::Chunk LoggedCollectives::begin(std::size_t log_bytes) {
  if (!log_.has_room(log_bytes)) {
    log_.outgrow();  // before any rank writes over what a successor would need
    wait_for_all();
    log_.begin_again();
  }
  ++chunk_;
  return {{2 * chunk_ - 1, 0}, {2 * chunk_, 0}, log_.reserve(log_bytes)};
}

void LoggedCollectives::wait_for_all() {
  const Chunk chunk = begin(0);
  if (!is_published(chunk.results)) steps_.publish(chunk.results);
  steps_.await_all(chunk.results);
}

// Goes through a chunk without a reduction: each rank has a piece of length_of(rank) bytes, which write(place) writes.
template <typename LengthOf, typename Write>
LoggedCollectives::Chunk LoggedCollectives::share(LengthOf&& length_of, Write&& write) {
  std::size_t end = 0;
  for (std::uint32_t r = 0; r < size_; ++r) {
    pieces_[r] = end;
    end += whole_lines(length_of(r));
  }
  const Chunk chunk = begin(end);
  if (!is_published(chunk.results)) {
    if (length_of(rank_) > 0) write(chunk.log + pieces_[rank_]);
    steps_.publish(chunk.results);
  }
  return chunk;
}

// Returns a rank's piece of the chunk once it is there.
const unsigned char* LoggedCollectives::piece(const Chunk& chunk, std::uint32_t rank) {
  if (rank != rank_) steps_.await(rank, chunk.results);
  return chunk.log + pieces_[rank];
}

// Puts the result of this rank's slice into its memory and into the log. contribute(ring) writes this rank's
// contribution but for that slice, which no other rank reads.
template <typename Contribute>
void LoggedCollectives::reduce_own_slice(const Chunk& chunk, Contribute&& contribute, const OwnSlice& slice,
                                         const Reduction& reduction) {
  if (!has_ring_) segment_.allocate_ring(rank_);
  has_ring_ = true;
  const std::size_t bytes = slice.count * slice.element;
  DDP_CHECK(slice.at + bytes <= segment_.plan().ring_bytes, slice.at, bytes);
  if (is_published(chunk.results)) return copy(slice.result, chunk.log + slice.at, bytes);
  if (!is_published(chunk.contributions)) {
    contribute(segment_.ring(rank_));
    steps_.publish(chunk.contributions);
  }
  steps_.await_all(chunk.contributions);
  for (std::uint32_t r = 0; r < size_; ++r) sources_[r] = r == rank_ ? slice.input : segment_.ring(r) + slice.at;
  // Not into the log and from there into this rank's memory: the log is in no cache, and a copy need not read it first.
  reduction.run(sources_.data(), size_, slice.result, slice.count);
  copy(chunk.log + slice.at, slice.result, bytes);
  steps_.publish(chunk.results);
}

// Returns how much of a chunk goes through a ring. All ranks publish results before any contributes again, so there is
// room for one contribution only.
std::size_t LoggedCollectives::most_contribution() const {
  return std::min<std::size_t>({kChunkBytes, segment_.plan().ring_bytes, log_.most_chunk()});
}

// Returns how much each rank may give to one chunk.
std::size_t LoggedCollectives::most_piece() const {
  return std::min<std::size_t>(kChunkBytes, log_.most_chunk() / size_ - kLine);
}

void LoggedCollectives::reduce(unsigned char* data, std::size_t count, std::size_t element, const Reduction& reduction,
                               std::optional<std::uint32_t> root) {
  if (count * element <= std::min(kFlatBytes / size_, most_piece()))
    return reduce_flat(data, count, element, reduction, root);
  const std::size_t each = even_chunk(count, most_contribution() / element);
  for (std::size_t done = 0; done < count; done += each) {
    reduce_sliced(data + done * element, std::min(each, count - done), element, reduction, root);
  }
}

void LoggedCollectives::reduce_flat(unsigned char* data, std::size_t count, std::size_t element,
                                    const Reduction& reduction, std::optional<std::uint32_t> root) {
  const std::size_t bytes = count * element;
  const Chunk chunk = share([&](std::uint32_t) { return bytes; }, [&](unsigned char* log) { copy(log, data, bytes); });
  if (root && *root != rank_) return;
  steps_.await_all(chunk.results);
  for (std::uint32_t r = 0; r < size_; ++r) sources_[r] = chunk.log + pieces_[r];
  reduction.run(sources_.data(), size_, data, count);
}

void LoggedCollectives::reduce_sliced(unsigned char* data, std::size_t count, std::size_t element,
                                      const Reduction& reduction, std::optional<std::uint32_t> root) {
  const Chunk chunk = begin(count * element);
  const Slice mine = slice_of(count, element, rank_, size_);
  const auto contribute = [&](unsigned char* ring) {
    copy(ring, data, mine.begin * element);
    copy(ring + mine.end * element, data + mine.end * element, (count - mine.end) * element);
  };
  const std::size_t at = mine.begin * element;
  reduce_own_slice(chunk, contribute, {data + at, data + at, at, mine.count(), element}, reduction);
  for (std::uint32_t i = 1; i < size_; ++i) {
    const std::uint32_t r = (rank_ + i) % size_;
    const Slice theirs = slice_of(count, element, r, size_);
    steps_.await(r, chunk.results);  // also if this rank wants no result: see most_contribution()
    if (!root || *root == rank_)
      copy(data + theirs.begin * element, chunk.log + theirs.begin * element, theirs.count() * element);
  }
}

void LoggedCollectives::reduce_scatter(const unsigned char* input, unsigned char* output, std::size_t count,
                                       std::size_t element, const Reduction& reduction) {
  const std::size_t most = std::max<std::size_t>(most_contribution() / size_ / element, 1);
  for (std::size_t done = 0; done < count; done += most) {
    const std::size_t some = std::min(most, count - done), bytes = some * element;
    const auto part = [&](std::uint32_t r) { return input + (r * count + done) * element; };
    const Chunk chunk = begin(bytes * size_);
    const auto contribute = [&](unsigned char* ring) {
      for (std::uint32_t r = 0; r < size_; ++r) {
        if (r != rank_) copy(ring + r * bytes, part(r), bytes);
      }
    };
    unsigned char* const result = output + done * element;
    reduce_own_slice(chunk, contribute, {part(rank_), result, rank_ * bytes, some, element}, reduction);
    steps_.await_all(chunk.results);
  }
}

void LoggedCollectives::broadcast(unsigned char* data, std::size_t bytes, std::uint32_t root) {
  for (std::size_t done = 0; done < bytes;) {
    const std::size_t some = std::min(bytes - done, most_piece());
    const Chunk chunk = share([&](std::uint32_t r) { return r == root ? some : 0; },
                              [&](unsigned char* log) { copy(log, data + done, some); });
    if (rank_ != root) copy(data + done, piece(chunk, root), some);
    done += some;
  }
}

void LoggedCollectives::all_gather(const unsigned char* input, unsigned char* output,
                                   const std::vector<std::size_t>& bytes) {
  set_begins(received_, bytes);
  copy(output + received_[rank_], input, bytes[rank_]);
  const std::size_t most = *std::max_element(bytes.begin(), bytes.end());
  for (std::size_t done = 0; done < most; done += most_piece()) {
    const auto length = [&](std::uint32_t r) { return bytes[r] > done ? std::min(bytes[r] - done, most_piece()) : 0; };
    const Chunk chunk =
        share(length, [&](unsigned char* log) { copy(log, output + received_[rank_] + done, length(rank_)); });
    for (std::uint32_t i = 1; i < size_; ++i) {
      const std::uint32_t r = (rank_ + i) % size_;
      copy(output + received_[r] + done, piece(chunk, r), length(r));
    }
  }
}

void LoggedCollectives::gather(const unsigned char* input, unsigned char* output, std::size_t bytes,
                               std::uint32_t root) {
  for (std::size_t done = 0; done < bytes;) {
    const std::size_t some = std::min(bytes - done, most_piece());
    const Chunk chunk = share([&](std::uint32_t r) { return r == root ? 0 : some; },
                              [&](unsigned char* log) { copy(log, input + done, some); });
    for (std::uint32_t r = 0; r < size_ && rank_ == root; ++r) {
      copy(output + r * bytes + done, r == root ? input + done : piece(chunk, r), some);
    }
    done += some;
  }
}

void LoggedCollectives::scatter(const unsigned char* input, unsigned char* output, std::size_t bytes,
                                std::uint32_t root) {
  const std::size_t most = std::max<std::size_t>(most_piece() / size_, 1);
  for (std::size_t done = 0; done < bytes;) {
    const std::size_t some = std::min(bytes - done, most);
    const Chunk chunk = share([&](std::uint32_t r) { return r == root ? size_ * some : 0; },
                              [&](unsigned char* log) {
                                for (std::uint32_t r = 0; r < size_; ++r)
                                  if (r != root) copy(log + r * some, input + r * bytes + done, some);
                              });
    copy(output + done, rank_ == root ? input + root * bytes + done : piece(chunk, root) + rank_ * some, some);
    done += some;
  }
}

// Returns how many bytes each rank sends to each: from rank r to rank s at index r * size + s.
std::vector<std::size_t> LoggedCollectives::share_counts(const std::vector<std::size_t>& input_bytes,
                                                         const std::vector<std::size_t>& output_bytes) {
  const std::size_t row = size_ * sizeof(std::size_t);
  const Chunk chunk =
      share([&](std::uint32_t) { return row; }, [&](unsigned char* log) { std::memcpy(log, input_bytes.data(), row); });
  std::vector<std::size_t> counts(std::size_t{size_} * size_);
  for (std::uint32_t r = 0; r < size_; ++r) std::memcpy(&counts[std::size_t{r} * size_], piece(chunk, r), row);
  if (!std::equal(input_bytes.begin(), input_bytes.end(), counts.data() + std::size_t{rank_} * size_))
    throw not_deterministic("call " + std::to_string(steps_.call() >> 32) + " has other sizes");
  for (std::uint32_t r = 0; r < size_; ++r) {
    if (counts[std::size_t{r} * size_ + rank_] != output_bytes[r]) throw steps_.disagreement(r);
  }
  return counts;
}

void LoggedCollectives::all_to_all(const unsigned char* input, const std::vector<std::size_t>& input_bytes,
                                   unsigned char* output, const std::vector<std::size_t>& output_bytes) {
  set_begins(sent_, input_bytes);
  set_begins(received_, output_bytes);
  const std::vector<std::size_t> counts = share_counts(input_bytes, output_bytes);
  copy(output + received_[rank_], input + sent_[rank_], input_bytes[rank_]);
  const std::size_t most = *std::max_element(counts.begin(), counts.end());
  const std::size_t part = std::max<std::size_t>(most_piece() / size_, 1);
  for (std::size_t done = 0; done < most; done += part) {
    const auto length = [&](std::uint32_t from, std::uint32_t to) {
      const std::size_t bytes = from == to ? 0 : counts[std::size_t{from} * size_ + to];
      return bytes > done ? std::min(bytes - done, part) : 0;
    };
    const auto before = [&](std::uint32_t from, std::uint32_t to) {  // what a rank sends to those before `to`
      std::size_t bytes = 0;
      for (std::uint32_t r = 0; r < to; ++r) bytes += length(from, r);
      return bytes;
    };
    const Chunk chunk = share([&](std::uint32_t r) { return before(r, size_); },
                              [&](unsigned char* log) {
                                for (std::uint32_t r = 0; r < size_; ++r)
                                  copy(log + before(rank_, r), input + sent_[r] + done, length(rank_, r));
                              });
    for (std::uint32_t i = 1; i < size_; ++i) {
      const std::uint32_t r = (rank_ + i) % size_;
      copy(output + received_[r] + done, piece(chunk, r) + before(r, rank_), length(r, rank_));
    }
  }
}

void LoggedCollectives::barrier() { wait_for_all(); }

}  // namespace ddp::collectives
