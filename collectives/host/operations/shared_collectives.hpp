// SPDX-License-Identifier: BSD-3-Clause
// The collectives of one node. Small ones take one step: every rank writes its contribution and reads all others'.
// Large reductions take two steps a chunk: each rank reduces one slice of the chunk, and the others copy it. Large data
// that lies at the same place in a shared buffer on all ranks (shared_buffers.hpp) is used where it is. Other large
// data goes through numa_collectives.hpp if the ranks are on several NUMA nodes. Reductions add in the order of ranks
// whatever the way (reductions.hpp), so all ranks get the same bits.
//
// The functions have the meaning of those in ddp/backend.h; sizes are in bytes where no type is given. They throw
// Failure. One thread at a time.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "collectives/host/memory/membership.hpp"
#include "collectives/host/operations/numa_collectives.hpp"
#include "collectives/host/operations/reductions.hpp"
#include "collectives/host/operations/shared_buffers.hpp"
#include "collectives/host/operations/steps.hpp"

namespace ddp::collectives {

class SharedCollectives {
 public:
  // `numa` says how the ranks lie on NUMA nodes, if data shall cross between those as seldom as possible.
  explicit SharedCollectives(const Membership& membership, std::optional<Layout> numa = {});
  Steps& steps() { return steps_; }
  SharedBuffers& buffers() { return buffers_; }

  // Where results of a reduction go: to all ranks, or to one.
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
  void reduce_flat(unsigned char* data, std::size_t count, std::size_t element, const Reduction& reduction,
                   std::optional<std::uint32_t> root);
  void reduce_sliced(unsigned char* data, std::size_t count, std::size_t element, const Reduction& reduction,
                     std::optional<std::uint32_t> root);
  bool meet_in_place(const unsigned char* data, std::size_t bytes);
  void reduce_in_place(unsigned char* data, std::size_t count, std::size_t element, const Reduction& reduction,
                       std::optional<std::uint32_t> root);
  std::size_t chunk_bytes() const;

  const std::uint32_t rank_, size_;
  Steps steps_;
  SharedBuffers buffers_;
  std::optional<NumaCollectives> numa_;
  std::vector<const unsigned char*> sources_;
  std::vector<unsigned char*> in_place_;      // each rank's memory
  std::vector<std::size_t> sent_, received_;  // where each rank's part begins
};

}  // namespace ddp::collectives
