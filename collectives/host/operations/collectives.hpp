// SPDX-License-Identifier: BSD-3-Clause
// The collectives of a group, whose ranks share memory (shared_collectives.hpp), share it on several NUMA nodes
// (numa_collectives.hpp), or are on several nodes (node_collectives.hpp).
//
// The functions have the meaning of those in ddp/backend.h; sizes are in bytes where no type is given. They throw
// Failure. One thread at a time.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <utility>
#include <vector>

#include "collectives/host/operations/reductions.hpp"
#include "collectives/host/operations/steps.hpp"

namespace ddp::collectives {

class Collectives {
 public:
  Collectives() = default;
  virtual ~Collectives() = default;
  Collectives(const Collectives&) = delete;
  Collectives& operator=(const Collectives&) = delete;

  // The steps of the ranks that share memory.
  virtual Steps& steps() = 0;
  // Has waits that take long call `meanwhile`, see Steps.
  virtual void set_meanwhile(std::function<bool()> meanwhile) { steps().meanwhile = std::move(meanwhile); }
  // Begins a collective, see Steps::start().
  virtual void start(std::uint32_t what, std::int64_t timeout_ms, int most_looks) {
    steps().start(what, timeout_ms, most_looks);
  }
  // Ends a collective that has failed: nothing touches its memory from then on.
  virtual void abandon() {}

  // Where results of a reduction go: to all ranks, or to one.
  virtual void reduce(unsigned char* data, std::size_t count, std::size_t element, const Reduction& reduction,
                      std::optional<std::uint32_t> root) = 0;
  virtual void reduce_scatter(const unsigned char* input, unsigned char* output, std::size_t count, std::size_t element,
                              const Reduction& reduction) = 0;
  virtual void broadcast(unsigned char* data, std::size_t bytes, std::uint32_t root) = 0;
  virtual void all_gather(const unsigned char* input, unsigned char* output, const std::vector<std::size_t>& bytes) = 0;
  virtual void gather(const unsigned char* input, unsigned char* output, std::size_t bytes, std::uint32_t root) = 0;
  virtual void scatter(const unsigned char* input, unsigned char* output, std::size_t bytes, std::uint32_t root) = 0;
  virtual void all_to_all(const unsigned char* input, const std::vector<std::size_t>& input_bytes,
                          unsigned char* output, const std::vector<std::size_t>& output_bytes) = 0;
  virtual void barrier() = 0;

  // Returns memory that all ranks share, or null if they cannot. A collective of its own, which start() begins.
  virtual unsigned char* allocate(std::size_t) { return nullptr; }
  // Returns whether the memory came from allocate(), and frees it then.
  virtual bool free(void*) { return false; }
};

}  // namespace ddp::collectives
