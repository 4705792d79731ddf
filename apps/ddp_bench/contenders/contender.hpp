// SPDX-License-Identifier: BSD-3-Clause
// A library that ranks talk with, as the benchmark of collectives sees it: each call blocks, each rank makes the same.
#pragma once

#include <array>
#include <cstddef>

namespace ddp::bench {

enum class Collective {
  AllReduce,
  Broadcast,
  Reduce,
  AllGather,
  ReduceScatter,
  AllToAll,
  Gather,
  Scatter,
  Barrier,
};

inline constexpr std::array<const char*, 9> kCollectiveNames = {
    "all_reduce", "broadcast", "reduce", "all_gather", "reduce_scatter", "all_to_all", "gather", "scatter", "barrier"};
inline const char* name_of(Collective collective) { return kCollectiveNames[static_cast<std::size_t>(collective)]; }

class Contender {
 public:
  virtual ~Contender() = default;
  Contender(const Contender&) = delete;
  Contender& operator=(const Contender&) = delete;

  virtual const char* name() const = 0;
  virtual int rank() const = 0;
  virtual int size() const = 0;
  virtual bool has(Collective) const { return true; }
  // False: no result comes of its calls.
  virtual bool communicates() const { return true; }

  // Sums are of float32, roots are rank 0. count: elements of a rank's longer buffer.
  //   all_reduce, broadcast, reduce   output, in place
  //   all_gather, gather              input has count / size() elements, output count
  //   reduce_scatter, scatter         input has count, output count / size()
  //   all_to_all                      both have count
  virtual void run(Collective collective, const float* input, float* output, std::size_t count) = 0;

 protected:
  Contender() = default;
};

}  // namespace ddp::bench
