// SPDX-License-Identifier: BSD-3-Clause
#include "runtime/training_kit/optim/gradient_math.hpp"

#include <catch2/catch.hpp>
#include <cmath>
#include <cstring>
#include <limits>
#include <string>
#include <vector>

#include "collectives/float16.hpp"
#include "tests/runtime/training_kit/golden_numbers.hpp"

using namespace ddp::training;
using ddp::collectives::vector_units;
using ddp::collectives::VectorUnit;
using ddp::test::numbers;

namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();

template <typename T>
ddp_buffer buffer(std::vector<T>& v, std::int32_t dtype) {
  return {v.data(), v.size(), dtype, {DDP_CPU, 0}};
}
ddp_buffer buffer(std::vector<float>& v) { return buffer(v, DDP_FLOAT32); }
ddp_buffer buffer(std::vector<double>& v) { return buffer(v, DDP_FLOAT64); }

std::vector<std::uint16_t> narrowed(const std::vector<float>& from, std::int32_t dtype) {
  std::vector<std::uint16_t> to;
  for (const float x : from) {
    to.push_back(dtype == DDP_FLOAT16 ? ddp::collectives::float_to_float16(x) : ddp::collectives::float_to_bfloat16(x));
  }
  return to;
}

}  // namespace

TEST_CASE("gradients: multiplication reports a result that is not finite at any position", "[training][unit]") {
  for (const VectorUnit unit : vector_units()) {
    for (const std::size_t count : {0U, 1U, 5U, 64U, 5000U}) {
      const std::vector<float> start = numbers<float>(1, count);
      std::vector<float> floats = start;
      std::vector<double> doubles = numbers<double>(1, count);
      std::vector<std::uint16_t> halves = narrowed(start, DDP_FLOAT16), bfloats = narrowed(start, DDP_BFLOAT16);
      std::vector<float> wide(count);
      CHECK(multiply(buffer(floats), buffer(floats), 0.25, unit));
      CHECK(multiply(buffer(doubles), buffer(doubles), 0.25, unit));
      CHECK(multiply(buffer(halves, DDP_FLOAT16), buffer(wide), 0.25, unit));
      CHECK(wide == floats);
      CHECK(multiply(buffer(halves, DDP_FLOAT16), buffer(halves, DDP_FLOAT16), 0.25, unit));
      CHECK(multiply(buffer(bfloats, DDP_BFLOAT16), buffer(bfloats, DDP_BFLOAT16), 0.25, unit));
      CHECK(halves == narrowed(floats, DDP_FLOAT16));
      CHECK(bfloats == narrowed(floats, DDP_BFLOAT16));
      for (std::size_t i = 0; i < count; ++i) {
        if (floats[i] != start[i] / 4 || doubles[i] != static_cast<double>(start[i]) / 4) FAIL("element " << i);
      }
      for (std::size_t at = 0; at < count; at += 1 + count / 40) {
        for (const double bad : {kInfinity, -kInfinity, std::nan("")}) {
          std::vector<float> f = start;
          std::vector<double> d = numbers<double>(1, count);
          f[at] = static_cast<float>(bad);
          d[at] = bad;
          std::vector<std::uint16_t> h = narrowed(f, DDP_FLOAT16), b = narrowed(f, DDP_BFLOAT16);
          CHECK_FALSE(multiply(buffer(f), buffer(f), 0.5, unit));
          CHECK_FALSE(multiply(buffer(d), buffer(d), 0.5, unit));
          CHECK_FALSE(multiply(buffer(h, DDP_FLOAT16), buffer(wide), 0.5, unit));
          CHECK_FALSE(multiply(buffer(b, DDP_BFLOAT16), buffer(b, DDP_BFLOAT16), 0.5, unit));
        }
      }
    }
  }
}

TEST_CASE("gradients: multiplication reports 16-bit results that overflow", "[training][unit]") {
  std::vector<std::uint16_t> halves = narrowed({60000.0F}, DDP_FLOAT16);
  std::vector<float> wide(1);
  CHECK(multiply(buffer(halves, DDP_FLOAT16), buffer(wide), 2));
  CHECK(wide[0] > 100000);
  CHECK_FALSE(multiply(buffer(halves, DDP_FLOAT16), buffer(halves, DDP_FLOAT16), 2));
}

TEST_CASE("gradients: sums of powers have the same bits on every vector unit, and in 16 bits as in 32",
          "[training][unit]") {
  for (const double norm_type : {1.0, 2.0, 3.5, kInfinity}) {
    for (const std::size_t count : {0U, 1U, 15U, 16U, 17U, 4096U, 9001U}) {
      INFO("norm " << norm_type << " of " << count);
      std::vector<float> values = numbers<float>(2, count);
      for (std::size_t i = 0; i < count; ++i) values[i] *= static_cast<float>(i % 7 + 1);  // exact in 16 bits as well
      std::vector<double> doubles(values.begin(), values.end());
      std::vector<std::uint16_t> halves = narrowed(values, DDP_FLOAT16);
      double expected = 0;
      for (const double x : doubles) {
        const double magnitude = std::fabs(x);
        expected = std::isinf(norm_type) ? std::max(expected, magnitude) : expected + std::pow(magnitude, norm_type);
      }
      const double first = power_sum(buffer(values), norm_type);
      CHECK(first == Approx(expected).epsilon(1e-13));
      for (const VectorUnit unit : vector_units()) {
        CHECK(power_sum(buffer(values), norm_type, unit) == first);
        CHECK(power_sum(buffer(doubles), norm_type, unit) == first);
        CHECK(power_sum(buffer(halves, DDP_FLOAT16), norm_type, unit) == first);
      }
    }
  }
}

TEST_CASE("gradients: a sum of powers is NaN if any element is, at any position", "[training][unit]") {
  for (const double norm_type : {1.0, 2.0, 3.0, kInfinity}) {
    for (const std::size_t at : {0U, 5U, 31U, 39U}) {
      std::vector<float> values = numbers<float>(2, 40);
      values[at] = std::nanf("");
      CHECK(std::isnan(power_sum(buffer(values), norm_type)));
      values[at] = -std::numeric_limits<float>::infinity();
      CHECK(power_sum(buffer(values), norm_type) == kInfinity);
    }
  }
}

TEST_CASE("gradients: arguments that make no sense are refused with a reason", "[training][unit]") {
  using Catch::Matchers::Contains;
  std::vector<float> floats(2);
  std::vector<double> doubles(2);
  std::vector<std::uint16_t> halves(2);
  std::vector<std::int32_t> integers(2);
  std::vector<float> three(3);
  CHECK_THROWS_WITH(multiply(buffer(floats), buffer(three), 1), Contains("from 2 elements to 3"));
  CHECK_THROWS_WITH(multiply(buffer(doubles), buffer(halves, DDP_FLOAT16), 1),
                    Contains("not from float64 to float16: convert through float32"));
  CHECK_THROWS_WITH(multiply(buffer(integers, DDP_INT32), buffer(floats), 1), Contains("floating point, not on int32"));
  CHECK_THROWS_WITH(power_sum(buffer(floats), 0), Contains("there is no norm of type 0"));
  CHECK_THROWS_WITH(power_sum(buffer(floats), -kInfinity), Contains("there is no norm of type -inf"));
  ddp_buffer device = buffer(floats);
  device.device.kind = DDP_CUDA;
  CHECK_THROWS_WITH(multiply(device, device, 1), Contains("CPU memory"));
}
