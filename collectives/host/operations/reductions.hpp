// SPDX-License-Identifier: BSD-3-Clause
// Reductions over the contributions of all ranks in the order of ranks, element by element:
// ((x0 op x1) op x2) op ... So the bits of a result depend neither on which rank computes it nor on how the elements
// are divided. 16-bit floating point is computed in 32 bits and rounded once.
#pragma once

#include <cstddef>
#include <cstdint>

#include "ddp/backend.h"

namespace ddp::collectives {

class Reduction {
 public:
  Reduction(ddp_backend_dtype dtype, ddp_backend_reduce_op op);
  // Returns whether the type has this reduction. If not, nothing else may be called.
  bool exists() const { return combine_ != nullptr; }

  // Reduces `count` elements of each of the `ranks` sources into `out`, which may be one of the sources.
  void run(const unsigned char* const* sources, std::size_t ranks, unsigned char* out, std::size_t count) const;

  // Reduces in several stages, with the bits that run() gives. Between stages the result has partial_size() bytes for
  // each element. A stage goes on from `partial`, or begins if that is null, and takes more ranks' sources; the last
  // one gives elements.
  std::size_t partial_size() const { return is_16_bit_ ? sizeof(float) : element_size_; }
  enum class Stage { More, Last };
  void run_stage(const unsigned char* partial, const unsigned char* const* sources, std::size_t ranks,
                 unsigned char* out, std::size_t count, Stage stage) const;

  using Combine = void (*)(const void* a, const void* b, void* out, std::size_t count);

 private:
  void run_16_bit(const unsigned char* partial, const unsigned char* const* sources, std::size_t ranks,
                  unsigned char* out, std::size_t count, Stage stage) const;

  ddp_backend_dtype dtype_;
  std::size_t element_size_;
  bool is_16_bit_;
  Combine combine_;
};

}  // namespace ddp::collectives
