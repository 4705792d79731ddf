// SPDX-License-Identifier: BSD-3-Clause
// Kernels of PowerSGD. They compute what ../hooks/low_rank.hpp does on the CPU, but for the order of sums, and for
// columns that are taken away from another one all at once. All matrices of a bucket are one launch. No thread waits
// for another, so each sum takes two launches: one for partial sums, one that adds them up.
#pragma once

#include <cmath>

#include "runtime/training/hooks/low_rank_math.hpp"
#include "runtime/training/kernels/arguments.hpp"
#include "runtime/training/kernels/place.hpp"

namespace ddp::runtime::kernels {

// Calls body(T()) with the type of the gradients.
template <typename Body>
inline void with_type(Type type, const Body& body) {
  if (type == Type::Float64) return body(double());
  body(float());
}

// One matrix as a block of a launch sees it.
template <typename T>
struct LowRankView {
  LowRankMatrix* matrix;
  T* m;
  T* p;
  T* q;
  T* error;  // null: none

  LowRankView(const LowRank& a, std::uint64_t i) : matrix(memory(a.matrices + i, 1)) {
    const LowRankMatrix& x = *matrix;
    m = memory(static_cast<T*>(a.gradients) + x.gradient, x.rows * x.cols);
    p = memory(static_cast<T*>(a.p) + x.p, x.rows * x.columns);
    q = memory(static_cast<T*>(a.q) + x.q, x.cols * x.columns);
    error = a.error != nullptr ? memory(static_cast<T*>(a.error) + x.error, x.rows * x.cols) : nullptr;
  }
};

// The columns of P or Q of one matrix.
template <typename T>
struct ThinMatrix {
  T* first;
  std::uint64_t length;

  ThinMatrix(const LowRank& a, std::uint64_t i) {
    const LowRankView<T> view(a, i);
    first = a.of_p != 0 ? view.p : view.q;
    length = a.of_p != 0 ? view.matrix->rows : view.matrix->cols;
  }
  T* column(std::uint64_t k) const { return first + k * length; }
};

// The partial sums of the product of column k and the one in question.
inline double* lanes_of(const LowRank& a, std::uint64_t i, std::uint64_t k) {
  return memory(a.lanes + (i * a.max_columns + k) * kThreads, kThreads);
}
inline double sum_of(const double* lanes) {
  double sum = 0;
  DDP_ROLLED
  for (std::uint64_t lane = 0; lane < kThreads; ++lane) sum += lanes[lane];
  return sum;
}

// Calls use(view, i) for each element i of each matrix; kRowBlocks blocks share a matrix.
template <typename Use>
inline void for_each_element(const LowRank& a, const Place& at, const Use& use) {
  with_type(a.type, [&](auto like) {
    const LowRankView<decltype(like)> view(a, at.block / kRowBlocks);
    const std::uint64_t count = view.matrix->rows * view.matrix->cols;
    DDP_ROLLED
    for (std::uint64_t i = at.block % kRowBlocks * at.threads + at.thread; i < count; i += kRowBlocks * at.threads) {
      use(view, i);
    }
  });
}

inline void low_rank_add_error(const LowRank& a, const Place& at) {
  for_each_element(a, at, [](const auto& x, std::uint64_t i) { x.m[i] += x.error[i]; });
}

// Partial sums of P = M Q, or of Q = M^T P. Neighbouring threads read neighbouring elements of M.
inline void low_rank_multiply(const LowRank& a, const Place& at) {
  with_type(a.type, [&](auto like) {
    using T = decltype(like);
    const LowRankView<T> x(a, at.block / kRowBlocks);
    const std::uint64_t rows = x.matrix->rows, cols = x.matrix->cols, columns = x.matrix->columns;
    const bool of_p = a.of_p != 0;
    const std::uint64_t length = of_p ? rows : cols;
    const std::uint64_t first = of_p ? x.matrix->p : x.matrix->q;
    T* parts = memory(static_cast<T*>(a.parts) + first * kProductParts, length * columns * kProductParts);
    DDP_ROLLED
    for (std::uint64_t i = at.block % kRowBlocks * at.threads + at.thread; i < length * kProductParts;
         i += kRowBlocks * at.threads) {
      const std::uint64_t element = of_p ? i / kProductParts : i % length;
      const std::uint64_t part = of_p ? i % kProductParts : i / length;
      DDP_ROLLED
      for (std::uint64_t k = 0; k < columns; ++k) {
        T sum = 0;
        if (of_p) {
          for (std::uint64_t c = part; c < cols; c += kProductParts) sum += x.m[element * cols + c] * x.q[k * cols + c];
        } else {
          for (std::uint64_t r = part; r < rows; r += kProductParts) sum += x.m[r * cols + element] * x.p[k * rows + r];
        }
        parts[(k * length + element) * kProductParts + part] = sum;
      }
    }
  });
}

inline void low_rank_combine(const LowRank& a, const Place& at) {
  with_type(a.type, [&](auto like) {
    using T = decltype(like);
    const LowRankMatrix& matrix = *memory(a.matrices + at.block / kRowBlocks, 1);
    const ThinMatrix<T> to(a, at.block / kRowBlocks);
    const std::uint64_t first = a.of_p != 0 ? matrix.p : matrix.q;
    const std::uint64_t count = to.length * matrix.columns;
    const T* parts = memory(static_cast<T*>(a.parts) + first * kProductParts, count * kProductParts);
    DDP_ROLLED
    for (std::uint64_t i = at.block % kRowBlocks * at.threads + at.thread; i < count; i += kRowBlocks * at.threads) {
      T sum = 0;
      DDP_ROLLED
      for (std::uint64_t part = 0; part < kProductParts; ++part) sum += parts[i * kProductParts + part];
      to.first[i] = sum;
    }
  });
}

// Partial sums of the products of the column in question with those before it and with itself. One block for each
// matrix, here and in the next three.
inline void low_rank_measure(const LowRank& a, const Place& at) {
  with_type(a.type, [&](auto like) {
    using T = decltype(like);
    LowRankMatrix* matrix = memory(a.matrices + at.block, 1);
    if (at.thread == 0 && a.of_p == 0) matrix->overflow = 0;
    if (a.column >= matrix->columns) return;
    const ThinMatrix<T> thin(a, at.block);
    const T* x = thin.column(a.column);
    DDP_ROLLED
    for (std::uint64_t k = 0; k <= a.column; ++k) {
      const T* other = thin.column(k);
      double sum = 0;
      DDP_ROLLED
      for (std::uint64_t i = at.thread; i < thin.length; i += at.threads) {
        sum += static_cast<double>(other[i]) * static_cast<double>(x[i]);
      }
      lanes_of(a, at.block, k)[at.thread] = sum;
    }
  });
}

// Fills a column of zeros with random numbers.
inline void low_rank_fill(const LowRank& a, const Place& at) {
  with_type(a.type, [&](auto like) {
    using T = decltype(like);
    LowRankMatrix* matrix = memory(a.matrices + at.block, 1);
    const bool fills = a.column < matrix->columns && sum_of(lanes_of(a, at.block, a.column)) == 0;
    const ThinMatrix<T> thin(a, at.block);
    const std::uint64_t state = matrix->random[a.turn];
    if (at.thread == 0) matrix->random[1 - a.turn] = fills ? state + thin.length * kRandomStep : state;
    if (!fills) return;
    DDP_ROLLED
    for (std::uint64_t i = at.thread; i < thin.length; i += at.threads) {
      thin.column(a.column)[i] = random_of<T>(state + (i + 1) * kRandomStep);
    }
  });
}

// Takes the columns before it away from the column in question.
inline void low_rank_subtract(const LowRank& a, const Place& at) {
  with_type(a.type, [&](auto like) {
    using T = decltype(like);
    LowRankMatrix* matrix = memory(a.matrices + at.block, 1);
    if (a.column >= matrix->columns) return;
    const ThinMatrix<T> thin(a, at.block);
    T* x = thin.column(a.column);
    // The first time nothing has been taken away yet.
    if (at.thread == 0 && a.turn == 0) matrix->length_before = std::sqrt(sum_of(lanes_of(a, at.block, a.column)));
    DDP_ROLLED
    for (std::uint64_t k = 0; k < a.column; ++k) {
      const auto factor = static_cast<T>(-sum_of(lanes_of(a, at.block, k)));
      const T* other = thin.column(k);
      DDP_ROLLED
      for (std::uint64_t i = at.thread; i < thin.length; i += at.threads) x[i] += factor * other[i];
    }
  });
}

// Makes the column one of length 1, or zeros if only rounding errors are left of it.
inline void low_rank_finish(const LowRank& a, const Place& at) {
  with_type(a.type, [&](auto like) {
    using T = decltype(like);
    const LowRankMatrix* matrix = memory(a.matrices + at.block, 1);
    if (a.column >= matrix->columns) return;
    constexpr double kEpsilon = sizeof(T) == sizeof(float) ? 0x1p-23 : 0x1p-52;
    const ThinMatrix<T> thin(a, at.block);
    T* x = thin.column(a.column);
    const double before = matrix->length_before;
    const double left = std::sqrt(sum_of(lanes_of(a, at.block, a.column)));
    // Gradients that are not finite must not become zeros.
    const bool is_zero = before - before == 0 && left <= kNegligibleEpsilons * kEpsilon * before;
    DDP_ROLLED
    for (std::uint64_t i = at.thread; i < thin.length; i += at.threads) {
      x[i] = is_zero ? T(0) : static_cast<T>(static_cast<double>(x[i]) * (1 / left));
    }
  });
}

// Notes whether Q has an element that is not finite.
inline void low_rank_check(const LowRank& a, const Place& at) {
  with_type(a.type, [&](auto like) {
    const ThinMatrix<decltype(like)> thin(a, at.block);
    LowRankMatrix* matrix = memory(a.matrices + at.block, 1);
    DDP_ROLLED
    for (std::uint64_t i = at.thread; i < thin.length * matrix->columns; i += at.threads) {
      const auto value = thin.first[i];
      if (!(value - value == 0)) matrix->overflow = 1;  // all that write it write the same
    }
  });
}

// error = M - P Q^T, M = P Q^T. A step that overflows is lost, but must not spoil the steps after it.
inline void low_rank_expand(const LowRank& a, const Place& at) {
  for_each_element(a, at, [](const auto& x, std::uint64_t i) {
    const LowRankMatrix& matrix = *x.matrix;
    const std::uint64_t row = i / matrix.cols, col = i % matrix.cols;
    const auto before = x.m[i];
    decltype(+x.m[i]) sum = 0;
    DDP_ROLLED
    for (std::uint64_t k = 0; k < matrix.columns; ++k) sum += x.q[k * matrix.cols + col] * x.p[k * matrix.rows + row];
    x.m[i] = sum;
    if (x.error != nullptr) x.error[i] = matrix.overflow != 0 ? 0 : before - sum;
  });
}

// What is left of a step that overflowed: Q begins again.
inline void low_rank_drop(const LowRank& a, const Place& at) {
  with_type(a.type, [&](auto like) {
    using T = decltype(like);
    const LowRankMatrix* matrix = memory(a.matrices + at.block, 1);
    if (matrix->overflow == 0) return;
    const ThinMatrix<T> thin(a, at.block);
    DDP_ROLLED
    for (std::uint64_t i = at.thread; i < thin.length * matrix->columns; i += at.threads) thin.first[i] = T(0);
  });
}

}  // namespace ddp::runtime::kernels
