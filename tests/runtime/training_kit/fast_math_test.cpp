// SPDX-License-Identifier: BSD-3-Clause
// The headers in a program that is built with -ffast-math, whose compiler may leave out what looks for NaN or infinity.
// This file is built so. Numbers that are not finite are made of bits and compared as bits.
#include <catch2/catch.hpp>
#include <cstdint>
#include <cstring>
#include <string>
#include <vector>

#include "ddp/training/clip_grad_norm.hpp"
#include "ddp/training/grad_scaler.hpp"
#include "ddp/training/optimizer.hpp"

namespace {

#ifdef __FAST_MATH__
constexpr bool kIsFast = true;
#else
constexpr bool kIsFast = false;
#endif

constexpr std::uint32_t kNaN = 0x7fc00000, kInfinite = 0x7f800000;

// The compiler does not see what the bits are.
float from_bits(std::uint32_t bits) {
  volatile std::uint32_t hidden = bits;
  const std::uint32_t read = hidden;
  float value = 0;
  std::memcpy(&value, &read, sizeof value);
  return value;
}
std::uint32_t bits_of(float value) {
  std::uint32_t bits = 0;
  std::memcpy(&bits, &value, sizeof bits);
  return bits;
}
bool is_nan(float value) { return (bits_of(value) & 0x7fffffff) > kInfinite; }

struct Gradients {
  std::vector<float> a = {3, -4};
  std::vector<float> b = {1, 2};
  std::vector<ddp::Parameter> parameters = {{"a", a.data(), a.data(), 2}, {"b", b.data(), b.data(), 2}};
};

}  // namespace

TEST_CASE("fast math: clip_grad_norm finds the largest gradient", "[training][unit]") {
  CHECK(kIsFast);
  Gradients g;
  CHECK(ddp::clip_grad_norm(g.parameters, 1e9, ddp::kInfinityNorm) == 4);
  CHECK(ddp::clip_grad_norm(g.parameters, 2, ddp::kInfinityNorm) == 4);
  CHECK(g.a[1] == Approx(-2));
}

TEST_CASE("fast math: clip_grad_norm notices gradients that are not finite", "[training][unit]") {
  for (const double norm_type : {1.0, 2.0, 3.0, ddp::kInfinityNorm}) {
    for (const std::uint32_t bits : {kNaN, kInfinite}) {
      Gradients g;
      g.a[0] = from_bits(bits);
      CHECK_THROWS_AS(ddp::clip_grad_norm(g.parameters, 1, norm_type, true), ddp::Error);
      CHECK(g.b[0] == 1);
      const auto norm = static_cast<float>(ddp::clip_grad_norm(g.parameters, 1, norm_type));
      CHECK((bits == kNaN ? is_nan(norm) : bits_of(norm) == bits));
      CHECK((bits == kNaN ? is_nan(g.b[0]) : g.b[0] == 0));
    }
  }
}

TEST_CASE("fast math: a loss scale stays finite, and an overflow leaves a step out", "[training][unit]") {
  ddp::GradScalerOptions options;
  options.init_scale = 3e38F;
  options.growth_interval = 1;
  ddp::GradScaler scaler(options);
  float value = 1, gradient = 1;
  ddp::SGD optimizer({{"v", &value, &gradient, 1}});
  CHECK(scaler.step(optimizer));
  scaler.update();
  CHECK(bits_of(scaler.get_scale()) == bits_of(3e38F));
  for (const std::uint32_t bits : {kNaN, kInfinite}) {
    gradient = from_bits(bits);
    const float before = scaler.get_scale();
    CHECK_FALSE(scaler.step(optimizer));
    scaler.update();
    CHECK(scaler.get_scale() == before / 2);
  }
}
