// SPDX-License-Identifier: BSD-3-Clause
// The arithmetic of PowerSGD: a matrix M of rows x cols, row-major, as the product P Q^T of two thin ones. Plain
// functions on plain memory.
//
// P and Q are kept column by column: column k of P is `rows` elements at p + k * rows, of Q `cols` elements at
// q + k * cols. So every inner loop runs over contiguous memory, and a thin matrix is one message.
//
// Equal input gives equal bits on every rank: sums are in a fixed order, and nothing is asked of the mathematics
// library that is not exact by IEEE 754.
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

// Columns of P and Q when `wanted` are asked for: a matrix has no more than its shorter side.
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

// Makes columns orthonormal from the first on. One that those before it span to within rounding becomes zero: what is
// left of it is noise, which PyTorch's Gram-Schmidt would blow up to a column of its own. Returns whether any did.
template <typename T>
bool orthogonalize(T* columns, std::size_t length, std::size_t count);

// Fills what of `columns` is zero with numbers drawn from `state`, each in [-1, 1), which it moves on: PowerSGD's first
// Q, and a Q of which a column has died.
template <typename T>
void fill_zero_columns(T* columns, std::size_t length, std::size_t count, std::uint64_t& state);

}  // namespace ddp::runtime
