// SPDX-License-Identifier: BSD-3-Clause
#include "collectives/element_types.hpp"
#include "collectives/float16.hpp"

#include <algorithm>
#include <bit>
#include <catch2/catch.hpp>
#include <cmath>
#include <limits>
#include <vector>

#include "collectives/float_conversion.hpp"
#include "ddp/ddp.h"

using namespace ddp::collectives;

namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();

std::uint16_t narrowed(std::int32_t dtype, float value) {
  std::uint16_t result = 0;
  narrow(dtype, &value, &result, 1);
  return result;
}

float widened(std::int32_t dtype, std::uint16_t bits) {
  float result = 0;
  widen(dtype, &bits, &result, 1);
  return result;
}

// Returns every 251st float, and the floats around each 16-bit number and each midpoint between two.
std::vector<float> telling_floats() {
  std::vector<float> floats;
  for (std::uint64_t bits = 0; bits <= UINT32_MAX; bits += 251) {
    floats.push_back(std::bit_cast<float>(static_cast<std::uint32_t>(bits)));
  }
  for (std::uint32_t bits = 0; bits < 0x80000; ++bits) {
    for (const std::uint32_t step : {0U, 1U, 0x1fffU}) {
      floats.push_back(std::bit_cast<float>((bits << 13) + step));
      floats.push_back(std::bit_cast<float>((bits << 13) - step));
    }
  }
  return floats;
}

}  // namespace

TEST_CASE("element types: values and names are those of ddp.h", "[collectives][unit]") {
  CHECK(kElementTypes.size() == DDP_BFLOAT16 + 1);
  CHECK(element_facts(DDP_UINT8)->name == std::string("uint8"));
  CHECK(element_facts(DDP_INT16)->name == std::string("int16"));
  CHECK(element_facts(DDP_BFLOAT16)->name == std::string("bfloat16"));
  CHECK(element_facts(-1) == nullptr);
}

TEST_CASE("element types: a float16 means what IEEE 754 says", "[collectives][unit]") {
  CHECK(widened(DDP_FLOAT16, 0x3c00) == 1.0F);
  CHECK(widened(DDP_FLOAT16, 0xc000) == -2.0F);
  CHECK(widened(DDP_FLOAT16, 0x7bff) == 65504.0F);
  CHECK(widened(DDP_FLOAT16, 0x0001) == std::ldexp(1.0F, -24));
  CHECK(widened(DDP_FLOAT16, 0x03ff) == std::ldexp(1023.0F, -24));
  CHECK(widened(DDP_FLOAT16, 0xfc00) == -kInfinity);
  CHECK(std::isnan(widened(DDP_FLOAT16, 0x7c01)));
  CHECK(std::signbit(widened(DDP_FLOAT16, 0x8000)));
}

TEST_CASE("element types: every 16-bit number survives the conversion to 32 bits and back", "[collectives][unit]") {
  for (const std::int32_t dtype : {DDP_FLOAT16, DDP_BFLOAT16}) {
    int changed = 0;
    for (int bits = 0; bits < 0x10000; ++bits) {
      const float value = widened(dtype, static_cast<std::uint16_t>(bits));
      const std::uint16_t back = narrowed(dtype, value);
      changed += std::isnan(value) ? !std::isnan(widened(dtype, back)) : back != bits;
    }
    CHECK(changed == 0);
  }
}

TEST_CASE("element types: rounding is to the nearest, ties to even", "[collectives][unit]") {
  for (const std::int32_t dtype : {DDP_FLOAT16, DDP_BFLOAT16}) {
    const std::uint16_t infinity = narrowed(dtype, kInfinity);
    int wrong = 0;
    for (std::uint16_t bits = 0; bits + 1 < infinity; ++bits) {
      const auto next = static_cast<std::uint16_t>(bits + 1);
      const double middle = (static_cast<double>(widened(dtype, bits)) + static_cast<double>(widened(dtype, next))) / 2;
      const auto at = static_cast<float>(middle);  // exact: a float has more bits
      wrong += narrowed(dtype, at) != (bits % 2 == 0 ? bits : next);
      wrong += narrowed(dtype, std::nextafter(at, 0.0F)) != bits;
      wrong += narrowed(dtype, std::nextafter(at, kInfinity)) != next;
      wrong += narrowed(dtype, -at) != (narrowed(dtype, at) | 0x8000);
    }
    CHECK(wrong == 0);
  }
  CHECK(narrowed(DDP_FLOAT16, 65519.996F) == 0x7bff);
  CHECK(narrowed(DDP_FLOAT16, 65520.0F) == 0x7c00);
  CHECK(narrowed(DDP_FLOAT16, std::numeric_limits<float>::max()) == 0x7c00);
  CHECK(std::isnan(widened(DDP_FLOAT16, narrowed(DDP_FLOAT16, std::nanf("")))));
  CHECK(std::isnan(widened(DDP_BFLOAT16, narrowed(DDP_BFLOAT16, std::bit_cast<float>(0x7f800001U)))));
}

TEST_CASE("element types: every vector unit gives the bits of the plain functions", "[collectives][unit]") {
  std::vector<std::uint16_t> halves(0x10000);
  for (std::size_t i = 0; i < halves.size(); ++i) halves[i] = static_cast<std::uint16_t>(i);
  const std::vector<float> floats = telling_floats();
  std::vector<float> wide(halves.size());
  std::vector<std::uint16_t> narrowed(floats.size());
  for (const VectorUnit unit : vector_units()) {
    for (const std::int32_t dtype : {DDP_FLOAT16, DDP_BFLOAT16}) {
      CAPTURE(static_cast<int>(unit), dtype);
      widen(dtype, halves.data(), wide.data(), halves.size(), unit);
      const auto plain_widen = dtype == DDP_FLOAT16 ? &float16_to_float : &bfloat16_to_float;
      CHECK(std::equal(wide.begin(), wide.end(), halves.begin(), [&](float got, std::uint16_t half) {
        return std::bit_cast<std::uint32_t>(got) == std::bit_cast<std::uint32_t>(plain_widen(half));
      }));
      narrow(dtype, floats.data(), narrowed.data(), floats.size(), unit);
      const auto plain_narrow = dtype == DDP_FLOAT16 ? &float_to_float16 : &float_to_bfloat16;
      CHECK(std::equal(narrowed.begin(), narrowed.end(), floats.begin(),
                       [&](std::uint16_t got, float value) { return got == plain_narrow(value); }));
    }
  }
}

TEST_CASE("element types: arrays of any length and address are converted, and nothing around them changes",
          "[collectives][unit]") {
  const std::vector<std::uint16_t> halves(80, 0x3c00);  // 1.0 as float16
  for (const VectorUnit unit : vector_units()) {
    for (std::size_t offset = 0; offset < 4; ++offset) {
      for (std::size_t count = 0; count <= 70; ++count) {
        std::vector<float> wide(80, 2.0F);
        widen(DDP_FLOAT16, halves.data() + offset, wide.data() + offset, count, unit);
        std::vector<std::uint16_t> back(80, 0);
        narrow(DDP_FLOAT16, wide.data() + offset, back.data() + offset, count, unit);
        const bool kept = std::count(wide.begin(), wide.end(), 1.0F) == static_cast<std::ptrdiff_t>(count) &&
                          std::count(back.begin(), back.end(), 0x3c00) == static_cast<std::ptrdiff_t>(count);
        if (!kept) FAIL("unit " << static_cast<int>(unit) << ", offset " << offset << ", count " << count);
      }
    }
  }
}
