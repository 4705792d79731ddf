// SPDX-License-Identifier: BSD-3-Clause
// The arithmetic of PowerSGD: a row-major matrix M of rows x cols as the product P Q^T of two thin
// matrices. Plain functions on plain memory.
//
// P and Q are stored column by column: column k of P is the `rows` elements at p + k * rows, column
// k of Q the `cols` elements at q + k * cols. So every inner loop runs over contiguous memory, and
// a thin matrix is one message.
//
// Equal input gives equal bits on every rank: sums have a fixed order, and the only functions used
// from the mathematics library are exact by IEEE 754.
#pragma once

#include <cstddef>
#include <cstdint>

namespace ddp::runtime {

struct MatrixShape {
  std::size_t rows = 0;
  std::size_t cols = 0;
  std::size_t count() const { return rows * cols; }
  bool operator==(const MatrixShape&) const = default;
};

// Returns the number of columns of P and Q if `wanted` are requested: at most the shorter side of
// M.
std::size_t columns_for(MatrixShape shape, std::size_t wanted);

// Is (rows + cols) * columns * min_rate < rows * cols? PyTorch's rule (_should_compress).
bool is_worth_compressing(MatrixShape shape, std::size_t columns, double min_rate);

// P = M Q
template <typename T>
void multiply(const T* m, MatrixShape shape, const T* q, std::size_t columns, T* p);
// Q = M^T P
template <typename T>
void multiply_transposed(const T* m, MatrixShape shape, const T* p, std::size_t columns, T* q);
// M = P Q^T
template <typename T>
void expand(const T* p, const T* q, std::size_t columns, MatrixShape shape, T* m);

// Makes the columns orthonormal, from the first on. A column that lies within rounding error of the
// span of those before it becomes zero: what is left of it is noise, which PyTorch's Gram-Schmidt
// would scale up to a full column. Returns whether any column became zero.
template <typename T>
bool orthogonalize(T* columns, std::size_t length, std::size_t count);

// Fills each column of zeros with random numbers in [-1, 1) and advances the random state. Used for
// PowerSGD's first Q, and for a Q of which a column has become zero.
template <typename T>
void fill_zero_columns(T* columns, std::size_t length, std::size_t count, std::uint64_t& state);

}  // namespace ddp::runtime
