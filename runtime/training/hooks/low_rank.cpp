// SPDX-License-Identifier: BSD-3-Clause
#include "runtime/training/hooks/low_rank.hpp"

#include <algorithm>
#include <cmath>
#include <limits>

#include "runtime/training/hooks/low_rank_math.hpp"

namespace ddp::runtime {
namespace {

// Number of partial sums. Several can stay in vector registers; to a single one the compiler would
// have to add in order.
constexpr std::size_t kLanes = 16;

template <typename T>
T dot(const T* a, const T* b, std::size_t count) {
  T sums[kLanes] = {};
  std::size_t i = 0;
  for (; i + kLanes <= count; i += kLanes) {
    for (std::size_t lane = 0; lane < kLanes; ++lane) sums[lane] += a[i + lane] * b[i + lane];
  }
  for (std::size_t lane = 0; i < count; ++i, ++lane) sums[lane] += a[i] * b[i];
  for (std::size_t width = kLanes / 2; width > 0; width /= 2) {
    for (std::size_t lane = 0; lane < width; ++lane) sums[lane] += sums[lane + width];
  }
  return sums[0];
}

// Computes the product in double, so that squares of small gradients do not vanish.
template <typename T>
double exact_dot(const T* a, const T* b, std::size_t count) {
  double sums[kLanes] = {};
  std::size_t i = 0;
  for (; i + kLanes <= count; i += kLanes) {
    for (std::size_t lane = 0; lane < kLanes; ++lane) {
      sums[lane] += static_cast<double>(a[i + lane]) * static_cast<double>(b[i + lane]);
    }
  }
  for (std::size_t lane = 0; i < count; ++i, ++lane)
    sums[lane] += static_cast<double>(a[i]) * static_cast<double>(b[i]);
  for (std::size_t width = kLanes / 2; width > 0; width /= 2) {
    for (std::size_t lane = 0; lane < width; ++lane) sums[lane] += sums[lane + width];
  }
  return sums[0];
}

// to += factor * from
template <typename T>
void add_multiple(T* to, const T* from, std::size_t count, T factor) {
  for (std::size_t i = 0; i < count; ++i) to[i] += factor * from[i];
}

}  // namespace

std::size_t columns_for(MatrixShape shape, std::size_t wanted) { return std::min({shape.rows, shape.cols, wanted}); }

bool is_worth_compressing(MatrixShape shape, std::size_t columns, double min_rate) {
  const double compressed = static_cast<double>(shape.rows + shape.cols) * static_cast<double>(columns);
  return compressed * min_rate < static_cast<double>(shape.rows) * static_cast<double>(shape.cols);
}

template <typename T>
void multiply(const T* m, MatrixShape shape, const T* q, std::size_t columns, T* p) {
  for (std::size_t row = 0; row < shape.rows; ++row) {
    for (std::size_t k = 0; k < columns; ++k) {
      p[k * shape.rows + row] = dot(m + row * shape.cols, q + k * shape.cols, shape.cols);
    }
  }
}

template <typename T>
void multiply_transposed(const T* m, MatrixShape shape, const T* p, std::size_t columns, T* q) {
  std::fill_n(q, columns * shape.cols, T{0});
  for (std::size_t row = 0; row < shape.rows; ++row) {
    for (std::size_t k = 0; k < columns; ++k) {
      add_multiple(q + k * shape.cols, m + row * shape.cols, shape.cols, p[k * shape.rows + row]);
    }
  }
}

template <typename T>
void expand(const T* p, const T* q, std::size_t columns, MatrixShape shape, T* m) {
  for (std::size_t row = 0; row < shape.rows; ++row) {
    T* const to = m + row * shape.cols;
    std::fill_n(to, shape.cols, T{0});
    for (std::size_t k = 0; k < columns; ++k) {
      add_multiple(to, q + k * shape.cols, shape.cols, p[k * shape.rows + row]);
    }
  }
}

template <typename T>
bool orthogonalize(T* columns, std::size_t length, std::size_t count) {
  bool any_zero = false;
  for (std::size_t k = 0; k < count; ++k) {
    T* const column = columns + k * length;
    const double before = std::sqrt(exact_dot(column, column, length));
    // Two passes: the first leaves rounding errors in proportion to what it subtracts, which may be
    // most of the column.
    for (int pass = 0; pass < 2; ++pass) {
      for (std::size_t other = 0; other < k; ++other) {
        const T* const done = columns + other * length;
        add_multiple(column, done, length, static_cast<T>(-exact_dot(done, column, length)));
      }
    }
    const double left = std::sqrt(exact_dot(column, column, length));
    // Gradients that are not finite must not become zeros.
    if (std::isfinite(before) &&
        left <= kNegligibleEpsilons * static_cast<double>(std::numeric_limits<T>::epsilon()) * before) {
      std::fill_n(column, length, T{0});
      any_zero = true;
    } else {
      const double scale = 1 / left;
      for (std::size_t i = 0; i < length; ++i) column[i] = static_cast<T>(static_cast<double>(column[i]) * scale);
    }
  }
  return any_zero;
}

template <typename T>
void fill_zero_columns(T* columns, std::size_t length, std::size_t count, std::uint64_t& state) {
  for (std::size_t k = 0; k < count; ++k) {
    T* const column = columns + k * length;
    if (!std::all_of(column, column + length, [](T x) { return x == T{0}; })) continue;
    for (std::size_t i = 0; i < length; ++i) {
      column[i] = random_of<T>(state += kRandomStep);
    }
  }
}

#define DDP_LOW_RANK_OF(T)                                                             \
  template void multiply(const T*, MatrixShape, const T*, std::size_t, T*);            \
  template void multiply_transposed(const T*, MatrixShape, const T*, std::size_t, T*); \
  template void expand(const T*, const T*, std::size_t, MatrixShape, T*);              \
  template bool orthogonalize(T*, std::size_t, std::size_t);                           \
  template void fill_zero_columns(T*, std::size_t, std::size_t, std::uint64_t&)
DDP_LOW_RANK_OF(float);
DDP_LOW_RANK_OF(double);
#undef DDP_LOW_RANK_OF

}  // namespace ddp::runtime
