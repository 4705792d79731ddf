// SPDX-License-Identifier: BSD-3-Clause
// The collectives of a group that awaits successors: a new process can take the place of a rank that died, and no other
// rank notices more than a call that takes longer.
//
// Chunks. A collective goes through chunks, numbered from 1 over all calls of the group. A chunk is two steps on each
// rank's counter: step 2c-1, the rank's contribution to chunk c is in its ring, and step 2c, its slice of the result is
// in the log. A chunk without a reduction has no contributions: each rank writes what it gives into the log.
//
//     unless step 2c-1 is published:  write the contribution, publish 2c-1
//     unless step 2c is published:    wait for step 2c-1 of all, reduce the own slice into the log, publish 2c
//     wait for step 2c of those whose slices are wanted, copy them from the log
//
// Whatever instruction a process dies at, its successor can do this again: what is published it only reads, and what is
// not it writes once more, with the same bytes. A contribution stays until its rank contributes to the next reduction,
// which it does after step 2c of all ranks, and then nobody reads it any more. Results stay until the next mark.
//
// Windows. mark() is a chunk without data that all ranks wait for; then the log begins again. A rank's program keeps in
// memory that outlives its process a record of where it is, with position(), and calls mark() right after it has
// written the record. A successor begins with the call after the position, which is mark(), and repeats the calls that
// follow. It may find its predecessor's last instruction in one of these places:
//
//     before the record of mark m    The record is of mark m-1, which all ranks have published, since the dead one
//                                    passed it. So the successor passes it at once and repeats the calls from there.
//                                    The log has their results, since mark m waits for this rank.
//     after the record, before the   The successor publishes mark m. It needs nothing of the window before, and all
//     mark is published              that others need of this rank's part in it is published.
//     after that, in mark()          The successor waits for the other ranks as the dead one did, or passes at once.
//     after mark()                   This is the first line for mark m+1.
//
// Before the first mark a program has no record: a successor begins with Position{} and repeats all calls. So may one
// whose predecessor had marked, since a program has to set up its own objects again: it repeats the start, which is
// what came before the first mark, and catches up with the record then. If the start had messages, or more than half of
// what the log holds, it is not kept.
//
// One thread at a time.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "collectives/host/memory/membership.hpp"
#include "collectives/host/operations/reductions.hpp"
#include "collectives/host/operations/slices.hpp"
#include "collectives/host/operations/steps.hpp"
#include "collectives/host/successors/position.hpp"
#include "collectives/host/successors/result_log.hpp"

namespace ddp::collectives {

class LoggedCollectives {
 public:
  LoggedCollectives(Membership& membership, Steps& steps);

  // Throws Failure if no process may take the place of the rank with this position, which says why.
  static void check_successor(const Segment& segment, std::uint32_t rank, const Position& position);
  // Goes on at the position of a process that had this rank's place.
  void resume(const Position& position);
  // Does so in a process that went on at Position{} and has repeated the start. Throws Failure if it has not.
  void catch_up(const Position& position);
  Position position() const { return {steps_.call(), chunk_, membership_.window()}; }

  // Called after Steps::start() for each collective but mark(). Throws Failure if a successor calls something else than
  // the process that it succeeds.
  void begin_call();
  // Begins the next window. Messages that are under way do not survive a rank.
  enum class Messages { None, UnderWay };
  void mark(Messages messages);

  // These have the meaning of those in shared_collectives.hpp, and give the same bits.
  void reduce(unsigned char* data, std::size_t count, std::size_t element, const Reduction& reduction,
              std::optional<std::uint32_t> root);
  void reduce_scatter(const unsigned char* input, unsigned char* output, std::size_t count, std::size_t element,
                      const Reduction& reduction);
  void broadcast(unsigned char* data, std::size_t bytes, std::uint32_t root);
  void all_gather(const unsigned char* input, unsigned char* output, const std::vector<std::size_t>& bytes);
  void gather(const unsigned char* input, unsigned char* output, std::size_t bytes, std::uint32_t root);
  void scatter(const unsigned char* input, unsigned char* output, std::size_t bytes, std::uint32_t root);
  void all_to_all(const unsigned char* input, const std::vector<std::size_t>& input_bytes, unsigned char* output,
                  const std::vector<std::size_t>& output_bytes);
  void barrier();

 private:
  struct Chunk {
    Step contributions, results;
    unsigned char* log = nullptr;
  };
  Chunk begin(std::size_t log_bytes);
  void wait_for_all();
  bool is_published(const Step& step) const { return step.number <= published_before_; }
  template <typename LengthOf, typename Write>
  Chunk share(LengthOf&& length_of, Write&& write);
  const unsigned char* piece(const Chunk& chunk, std::uint32_t rank);
  // Where this rank's slice of a chunk lies: in its own memory, which may be the same for both, and in bytes from the
  // beginning of rings and of the chunk.
  struct OwnSlice {
    const unsigned char* input;
    unsigned char* result;
    std::size_t at, count, element;
  };
  template <typename Contribute>
  void reduce_own_slice(const Chunk& chunk, Contribute&& contribute, const OwnSlice& slice, const Reduction& reduction);
  void reduce_flat(unsigned char* data, std::size_t count, std::size_t element, const Reduction& reduction,
                   std::optional<std::uint32_t> root);
  void reduce_sliced(unsigned char* data, std::size_t count, std::size_t element, const Reduction& reduction,
                     std::optional<std::uint32_t> root);
  std::vector<std::size_t> share_counts(const std::vector<std::size_t>& input_bytes,
                                        const std::vector<std::size_t>& output_bytes);
  void note_start() const;
  void go_to(const Position& position);
  void begin_window(std::uint64_t window);
  std::size_t most_contribution() const;
  std::size_t most_piece() const;

  Membership& membership_;
  const Segment& segment_;
  Steps& steps_;
  ResultLog log_;
  const std::uint32_t rank_, size_;
  std::uint64_t chunk_ = 0;
  std::uint64_t published_before_ = 0;  // the last step of the process that this one succeeds
  bool must_mark_ = false;              // this process is a successor that has not called mark() yet
  bool has_ring_ = false;
  std::vector<const unsigned char*> sources_;
  std::vector<std::size_t> pieces_;           // where each rank's piece of the running chunk begins
  std::vector<std::size_t> sent_, received_;  // where each rank's part begins
};

}  // namespace ddp::collectives
