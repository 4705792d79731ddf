// SPDX-License-Identifier: BSD-3-Clause
// The collectives of one node. Small ones take one step: every rank writes its contribution and reads all others'.
// Large reductions take two steps a chunk: each rank reduces one slice of the chunk, and the others copy it. Large data
// that lies at the same place in a shared buffer on all ranks (shared_buffers.hpp) is used where it is. Reductions add
// in the order of ranks whatever the way (reductions.hpp), so all ranks get the same bits.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "collectives/host/memory/membership.hpp"
#include "collectives/host/operations/collectives.hpp"
#include "collectives/host/operations/shared_buffers.hpp"

namespace ddp::collectives {

class SharedCollectives : public Collectives {
 public:
  explicit SharedCollectives(const Membership& membership);

  Steps& steps() final { return steps_; }
  void reduce(unsigned char* data, std::size_t count, std::size_t element, const Reduction& reduction,
              std::optional<std::uint32_t> root) final;
  void reduce_scatter(const unsigned char* input, unsigned char* output, std::size_t count, std::size_t element,
                      const Reduction& reduction) final;
  void broadcast(unsigned char* data, std::size_t bytes, std::uint32_t root) final;
  void all_gather(const unsigned char* input, unsigned char* output, const std::vector<std::size_t>& bytes) final;
  void gather(const unsigned char* input, unsigned char* output, std::size_t bytes, std::uint32_t root) final;
  void scatter(const unsigned char* input, unsigned char* output, std::size_t bytes, std::uint32_t root) final;
  void all_to_all(const unsigned char* input, const std::vector<std::size_t>& input_bytes, unsigned char* output,
                  const std::vector<std::size_t>& output_bytes) final;
  void barrier() final;
  unsigned char* allocate(std::size_t bytes) final { return buffers_.allocate(bytes, steps_); }
  bool free(void* memory) final { return buffers_.free(memory); }

 protected:
  // Data that is neither small nor in place, chunk by chunk.
  virtual void reduce_chunks(unsigned char* data, std::size_t count, std::size_t element, const Reduction& reduction,
                             std::optional<std::uint32_t> root);
  virtual void broadcast_chunks(unsigned char* data, std::size_t bytes, std::uint32_t root);
  // `begins[r]` is where rank r's part of the output begins.
  virtual void all_gather_chunks(const unsigned char* input, unsigned char* output,
                                 const std::vector<std::size_t>& bytes, const std::vector<std::size_t>& begins);

  Steps steps_;

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
  SharedBuffers buffers_;
  std::vector<const unsigned char*> sources_;
  std::vector<unsigned char*> in_place_;      // each rank's memory
  std::vector<std::size_t> sent_, received_;  // where each rank's part begins
};

}  // namespace ddp::collectives
