// SPDX-License-Identifier: BSD-3-Clause
// PowerSGD's state and arithmetic for one bucket, without the communication. What is sent lies in
// three buffers; the caller replaces each by its average over the ranks.
//
//     compress(M)    bucket's matrices M += error; P = M Q; what is not compressed is packed    -> p(), rest()
//     project(M)     P orthogonalised; Q = M^T P                                                 -> q()
//     decompress(M)  error = M - P Q^T, M = P Q^T; the rest is put back
//
// Between these calls the bucket must keep M as compress() left it. Memory is allocated at
// construction only.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "ddp/ddp.h"
#include "runtime/training/hooks/low_rank.hpp"

namespace ddp::runtime {

struct PowerSgdOptions {
  std::size_t columns = 1;               // width of P and Q: PyTorch's matrix_approximation_rank
  std::uint64_t start_iteration = 1000;  // number of first steps that use plain averages
  double min_compression_rate = 2;
  bool error_feedback = true;
  bool warm_start = true;
  std::uint64_t seed = 0;
};

class PowerSgdBucket {
 public:
  PowerSgdBucket() = default;
  virtual ~PowerSgdBucket() = default;
  PowerSgdBucket(const PowerSgdBucket&) = delete;
  PowerSgdBucket& operator=(const PowerSgdBucket&) = delete;

  // gradients is the bucket's memory, which must have the same layout each time.
  virtual void compress(void* gradients) = 0;
  virtual void project(const void* gradients) = 0;
  virtual void decompress(void* gradients) = 0;

  virtual ddp_buffer p() = 0;
  virtual ddp_buffer q() = 0;
  virtual ddp_buffer rest() = 0;
};

// Which gradients of a bucket are compressed, as matrices, and where their P, Q and error lie in memory for all of
// them. Sizes and offsets are in elements.
struct LowRankPlan {
  struct Matrix {
    MatrixShape shape;
    std::size_t columns;
    std::size_t offset;  // where the matrix begins in the bucket
    std::size_t p, q, error;
    std::uint64_t random;  // state of the generator of new columns of Q
  };
  struct Piece {
    std::size_t offset;
    std::size_t count;
  };
  std::vector<Matrix> matrices;
  std::vector<Piece> rest;
  std::size_t p_size = 0, q_size = 0, rest_size = 0, error_size = 0;
};
LowRankPlan plan_low_rank(const ddp_grad_bucket& bucket, const PowerSgdOptions& options);

// Returns the state for a bucket of float32 or float64 in CPU memory.
std::unique_ptr<PowerSgdBucket> make_powersgd_bucket(const ddp_grad_bucket& bucket, const PowerSgdOptions& options);

}  // namespace ddp::runtime
