// SPDX-License-Identifier: BSD-3-Clause
#include "runtime/training/hooks/low_rank.hpp"

#include <catch2/catch.hpp>
#include <cmath>
#include <limits>
#include <random>
#include <vector>

using namespace ddp::runtime;

namespace {

template <typename T>
std::vector<T> random_values(std::size_t count, unsigned seed) {
  std::mt19937 generator(seed);
  std::vector<T> values(count);
  for (T& x : values) x = static_cast<T>(static_cast<double>(generator()) / 0x1p31 - 1);
  return values;
}

// Returns the product of columns i and j, stored one after the other as low_rank stores them.
template <typename T>
double product(const std::vector<T>& columns, std::size_t length, std::size_t i, std::size_t j) {
  double sum = 0;
  for (std::size_t x = 0; x < length; ++x) sum += double{columns[i * length + x]} * double{columns[j * length + x]};
  return sum;
}

template <typename T>
void check_orthonormal(const std::vector<T>& columns, std::size_t length, std::size_t count, double tolerance) {
  for (std::size_t i = 0; i < count; ++i) {
    for (std::size_t j = 0; j <= i; ++j) {
      INFO("columns " << i << " and " << j);
      CHECK(product(columns, length, i, j) == Approx(i == j ? 1.0 : 0.0).margin(tolerance));
    }
  }
}

// Performs one step of the power iteration, without ranks.
template <typename T>
std::vector<T> approximate(const std::vector<T>& m, MatrixShape shape, std::vector<T> q, std::size_t columns) {
  std::vector<T> p(shape.rows * columns), result(shape.count());
  orthogonalize(q.data(), shape.cols, columns);
  multiply(m.data(), shape, q.data(), columns, p.data());
  orthogonalize(p.data(), shape.rows, columns);
  multiply_transposed(m.data(), shape, p.data(), columns, q.data());
  expand(p.data(), q.data(), columns, shape, result.data());
  return result;
}

template <typename T>
double largest_difference(const std::vector<T>& a, const std::vector<T>& b) {
  double largest = 0;
  for (std::size_t i = 0; i < a.size(); ++i) largest = std::max(largest, std::abs(double{a[i]} - double{b[i]}));
  return largest;
}

}  // namespace

TEMPLATE_TEST_CASE("low rank: products follow their definition, for any shape", "[training][unit]", float, double) {
  for (const MatrixShape shape : {MatrixShape{1, 1}, {3, 5}, {5, 3}, {16, 32}, {7, 33}, {40, 1}}) {
    for (const std::size_t columns : {std::size_t{1}, columns_for(shape, 3)}) {
      const auto m = random_values<TestType>(shape.count(), 1);
      const auto q = random_values<TestType>(shape.cols * columns, 2);
      const auto p = random_values<TestType>(shape.rows * columns, 3);
      // The previous content must not matter.
      std::vector<TestType> got_p(p.size(), 9), got_q(q.size(), 9), got_m(m.size(), 9);
      multiply(m.data(), shape, q.data(), columns, got_p.data());
      multiply_transposed(m.data(), shape, p.data(), columns, got_q.data());
      expand(p.data(), q.data(), columns, shape, got_m.data());
      const double tolerance = 64 * double{std::numeric_limits<TestType>::epsilon()};
      for (std::size_t k = 0; k < columns; ++k) {
        for (std::size_t i = 0; i < shape.rows; ++i) {
          double sum = 0;
          for (std::size_t j = 0; j < shape.cols; ++j)
            sum += double{m[i * shape.cols + j]} * double{q[k * shape.cols + j]};
          CHECK(got_p[k * shape.rows + i] == Approx(sum).margin(tolerance));
        }
        for (std::size_t j = 0; j < shape.cols; ++j) {
          double sum = 0;
          for (std::size_t i = 0; i < shape.rows; ++i)
            sum += double{m[i * shape.cols + j]} * double{p[k * shape.rows + i]};
          CHECK(got_q[k * shape.cols + j] == Approx(sum).margin(tolerance));
        }
      }
      for (std::size_t i = 0; i < shape.rows; ++i) {
        for (std::size_t j = 0; j < shape.cols; ++j) {
          double sum = 0;
          for (std::size_t k = 0; k < columns; ++k)
            sum += double{p[k * shape.rows + i]} * double{q[k * shape.cols + j]};
          CHECK(got_m[i * shape.cols + j] == Approx(sum).margin(tolerance));
        }
      }
    }
  }
}

TEMPLATE_TEST_CASE("low rank: columns become orthonormal, even for the smallest gradients", "[training][unit]", float,
                   double) {
  const double tolerance = 16 * double{std::numeric_limits<TestType>::epsilon()};
  for (const TestType factor : {TestType(1), TestType(1e-30), TestType(1e30)}) {
    auto columns = random_values<TestType>(5 * 100, 4);
    for (TestType& x : columns) x *= factor;
    CHECK_FALSE(orthogonalize(columns.data(), 100, 5));
    check_orthonormal(columns, 100, 5, tolerance);
  }
}

TEMPLATE_TEST_CASE("low rank: nearly dependent columns become orthonormal too", "[training][unit]", float, double) {
  auto columns = random_values<TestType>(2 * 100, 5);
  for (std::size_t i = 0; i < 100; ++i) {
    columns[100 + i] = columns[i] + columns[100 + i] * TestType(1e3) * std::numeric_limits<TestType>::epsilon();
  }
  CHECK_FALSE(orthogonalize(columns.data(), 100, 2));
  check_orthonormal(columns, 100, 2, 16 * double{std::numeric_limits<TestType>::epsilon()});
}

TEST_CASE("low rank: a column in the span of others becomes zero, not scaled-up noise", "[training][unit]") {
  auto columns = random_values<float>(3 * 50, 6);
  for (std::size_t i = 0; i < 50; ++i) columns[100 + i] = 2 * columns[i] - columns[50 + i];
  CHECK(orthogonalize(columns.data(), 50, 3));
  check_orthonormal(columns, 50, 2, 1e-6);
  for (std::size_t i = 0; i < 50; ++i) CHECK(columns[100 + i] == 0);
  std::vector<float> zeros(20, 0);
  CHECK(orthogonalize(zeros.data(), 10, 2));
  CHECK(zeros == std::vector<float>(20, 0));
}

TEST_CASE("low rank: values that are not finite do not become zero", "[training][unit]") {
  for (const float bad : {std::numeric_limits<float>::infinity(), std::numeric_limits<float>::quiet_NaN()}) {
    auto column = random_values<float>(20, 7);
    column[3] = bad;
    CHECK_FALSE(orthogonalize(column.data(), 20, 1));
    CHECK(std::isnan(column[3]));
  }
}

TEST_CASE("low rank: a matrix whose rank is kept is restored exactly", "[training][unit]") {
  const MatrixShape shape = {40, 60};
  for (const std::size_t rank : {std::size_t{1}, std::size_t{3}}) {
    const auto p = random_values<double>(shape.rows * rank, 8);
    const auto q = random_values<double>(shape.cols * rank, 9);
    std::vector<double> m(shape.count());
    expand(p.data(), q.data(), rank, shape, m.data());
    CHECK(largest_difference(m, approximate(m, shape, random_values<double>(shape.cols * rank, 10), rank)) < 1e-13);
    // One column more than the matrix's rank: the last column of P becomes zero.
    const std::size_t more = rank + 1;
    CHECK(largest_difference(m, approximate(m, shape, random_values<double>(shape.cols * more, 11), more)) < 1e-13);
  }
}

TEST_CASE("low rank: a matrix is worth compressing by PyTorch's rule", "[training][unit]") {
  CHECK(columns_for({5, 7}, 3) == 3);
  CHECK(columns_for({5, 2}, 3) == 2);
  CHECK(columns_for({1, 9}, 3) == 1);
  CHECK(columns_for({0, 9}, 3) == 0);
  CHECK_FALSE(is_worth_compressing({100, 1}, 1, 2));
  CHECK_FALSE(is_worth_compressing({4, 4}, 1, 2));  // 8 * 2 = 16, not less
  CHECK(is_worth_compressing({4, 5}, 1, 2));        // 9 * 2 < 20
  CHECK(is_worth_compressing({4, 4}, 1, 1.9));
  CHECK_FALSE(is_worth_compressing({100, 100}, 25, 2));
  CHECK(is_worth_compressing({100, 100}, 24, 2));
}

TEST_CASE("low rank: the first numbers are the same everywhere and fill zero columns only", "[training][unit]") {
  std::uint64_t state = 0, again = 0, other = 1;
  std::vector<float> a(40, 0), b(40, 0), c(40, 0);
  fill_zero_columns(a.data(), 20, 2, state);
  fill_zero_columns(b.data(), 20, 2, again);
  fill_zero_columns(c.data(), 20, 2, other);
  CHECK(a == b);
  CHECK(a != c);
  CHECK(state == again);
  // splitmix64 with seed 0 starts with e220a8397b1dcdaf, 6e789e6aa1b965f4; the upper 24 bits of
  // each are used.
  CHECK(a[0] == (0xe220a8 - 0x800000) * 0x1p-23F);
  CHECK(a[1] == (0x6e789e - 0x800000) * 0x1p-23F);
  double sum = 0;
  for (const float x : a) {
    CHECK(std::abs(x) <= 1);
    sum += x;
  }
  CHECK(std::abs(sum) < 20);
  for (std::size_t i = 0; i < 20; ++i) a[20 + i] = 0;
  const std::vector<float> first(a.begin(), a.begin() + 20);
  fill_zero_columns(a.data(), 20, 2, state);
  CHECK(std::vector<float>(a.begin(), a.begin() + 20) == first);
  CHECK(a[20] != 0);
  CHECK(a[20] != b[20]);
}
