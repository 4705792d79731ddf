// SPDX-License-Identifier: BSD-3-Clause
#include "runtime/training/hooks/powersgd_bucket.hpp"

#include <algorithm>
#include <cmath>
#include <type_traits>
#include <vector>

#include "runtime/training/hooks/low_rank.hpp"

namespace ddp::runtime {
namespace {

// Returns the shape of PyTorch's view(shape[0], -1): the first dimension against all others. A
// vector is a matrix of one column, which is never worth compressing.
MatrixShape matrix_shape(const ddp_grad_slice& slice) {
  const std::size_t rows = slice.rank > 0 ? static_cast<std::size_t>(slice.shape[0]) : 1;
  return {rows, rows > 0 ? slice.count / rows : 0};
}

template <typename T>
class TypedBucket final : public PowerSgdBucket {
 public:
  TypedBucket(const ddp_grad_bucket& bucket, const PowerSgdOptions& options)
      : options_(options), plan_(plan_low_rank(bucket, options)) {
    p_.resize(plan_.p_size);
    q_.resize(plan_.q_size);
    rest_.resize(plan_.rest_size);
    if (options.error_feedback) error_.resize(plan_.error_size);
  }

  void compress(void* gradients) override {
    T* const all = static_cast<T*>(gradients);
    for (Matrix& matrix : plan_.matrices) {
      T* const m = all + matrix.offset;
      T* const q = q_.data() + matrix.q;
      if (options_.error_feedback) add(m, error_.data() + matrix.error, matrix.shape.count());
      if (!options_.warm_start) std::fill_n(q, matrix.shape.cols * matrix.columns, T{0});
      // Fill columns of zeros: all of them the first time; later those that became zero because
      // gradients were missing or the matrix had a lower rank than Q has columns.
      do {
        fill_zero_columns(q, matrix.shape.cols, matrix.columns, matrix.random);
      } while (orthogonalize(q, matrix.shape.cols, matrix.columns));
      multiply(m, matrix.shape, q, matrix.columns, p_.data() + matrix.p);
    }
    T* to = rest_.data();
    for (const Piece& piece : plan_.rest) to = std::copy_n(all + piece.offset, piece.count, to);
  }

  void project(const void* gradients) override {
    for (const Matrix& matrix : plan_.matrices) {
      T* const p = p_.data() + matrix.p;
      orthogonalize(p, matrix.shape.rows, matrix.columns);
      multiply_transposed(static_cast<const T*>(gradients) + matrix.offset, matrix.shape, p, matrix.columns,
                          q_.data() + matrix.q);
    }
  }

  void decompress(void* gradients) override {
    T* const all = static_cast<T*>(gradients);
    for (const Matrix& matrix : plan_.matrices) {
      T* const m = all + matrix.offset;
      T* const q = q_.data() + matrix.q;
      const std::size_t q_size = matrix.shape.cols * matrix.columns;
      T* const error = options_.error_feedback ? error_.data() + matrix.error : nullptr;
      if (error != nullptr) std::copy_n(m, matrix.shape.count(), error);
      expand(p_.data() + matrix.p, q, matrix.columns, matrix.shape, m);
      if (error != nullptr) subtract(error, m, matrix.shape.count());
      if (std::all_of(q, q + q_size, [](T x) { return std::isfinite(x); })) continue;
      // A step that overflows is lost, as it is without compression, but must not spoil the steps
      // after it.
      std::fill_n(q, q_size, T{0});
      if (error != nullptr) std::fill_n(error, matrix.shape.count(), T{0});
    }
    const T* from = rest_.data();
    for (const Piece& piece : plan_.rest) {
      std::copy_n(from, piece.count, all + piece.offset);
      from += piece.count;
    }
  }

  ddp_buffer p() override { return buffer_of(p_); }
  ddp_buffer q() override { return buffer_of(q_); }
  ddp_buffer rest() override { return buffer_of(rest_); }

 private:
  using Matrix = LowRankPlan::Matrix;
  using Piece = LowRankPlan::Piece;

  static ddp_buffer buffer_of(std::vector<T>& values) {
    return {values.data(), values.size(), std::is_same_v<T, float> ? DDP_FLOAT32 : DDP_FLOAT64, {DDP_CPU, 0}};
  }
  static void add(T* to, const T* from, std::size_t count) {
    for (std::size_t i = 0; i < count; ++i) to[i] += from[i];
  }
  static void subtract(T* from, const T* what, std::size_t count) {
    for (std::size_t i = 0; i < count; ++i) from[i] -= what[i];
  }

  PowerSgdOptions options_;
  LowRankPlan plan_;
  std::vector<T> p_, q_, rest_;
  std::vector<T> error_;  // what the last step left out of each matrix
};

}  // namespace

LowRankPlan plan_low_rank(const ddp_grad_bucket& bucket, const PowerSgdOptions& options) {
  LowRankPlan plan;
  for (std::size_t i = 0; i < bucket.slice_count; ++i) {
    const ddp_grad_slice& slice = bucket.slices[i];
    const MatrixShape shape = matrix_shape(slice);
    // Each gradient is compressed as a matrix, or belongs to the rest.
    const std::size_t columns = columns_for(shape, options.columns);
    if (columns == 0 || !is_worth_compressing(shape, columns, options.min_compression_rate)) {
      plan.rest.push_back({slice.offset, slice.count});
      plan.rest_size += slice.count;
      continue;
    }
    // The random seed makes the first Q depend on the parameter alone, not on the bucket it is in.
    plan.matrices.push_back(
        {shape, columns, slice.offset, plan.p_size, plan.q_size, plan.error_size, options.seed + slice.parameter});
    plan.p_size += shape.rows * columns;
    plan.q_size += shape.cols * columns;
    plan.error_size += shape.count();
  }
  return plan;
}

std::unique_ptr<PowerSgdBucket> make_powersgd_bucket(const ddp_grad_bucket& bucket, const PowerSgdOptions& options) {
  if (bucket.buffer.dtype == DDP_FLOAT32) return std::make_unique<TypedBucket<float>>(bucket, options);
  return std::make_unique<TypedBucket<double>>(bucket, options);
}

}  // namespace ddp::runtime
