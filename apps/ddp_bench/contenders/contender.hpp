// SPDX-License-Identifier: BSD-3-Clause
// A library through which ranks communicate, as the benchmark of collectives sees it: each call blocks, and all ranks
// make the same calls.
#pragma once

#include <array>
#include <cstddef>
#include <memory>

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
  // Returns false if its calls have no result.
  virtual bool communicates() const { return true; }

  // Returns memory for a rank's buffer, filled with zeros. Every rank calls it, with the same count.
  virtual std::shared_ptr<float[]> allocate(std::size_t count) { return std::make_shared<float[]>(count); }

  // Runs a collective of float32; reductions are sums, the root is rank 0. `count` is the number of elements of a
  // rank's longer buffer:
  //   all_reduce, broadcast, reduce   output, in place
  //   all_gather, gather              input has count / size() elements, output count
  //   reduce_scatter, scatter         input has count, output count / size()
  //   all_to_all                      both have count
  virtual void run(Collective collective, const float* input, float* output, std::size_t count) = 0;

 protected:
  Contender() = default;
};

}  // namespace ddp::bench
