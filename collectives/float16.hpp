// SPDX-License-Identifier: BSD-3-Clause
// The conversion of one 16-bit floating-point number to 32 bits and back. float_conversion.hpp converts arrays.
#pragma once

#include <bit>
#include <cstdint>

namespace ddp::collectives {

// Exact: 32 bits hold every 16-bit value. Computes with no subnormal float, since processors take ten times as long for
// them and small gradients are full of them.
inline float float16_to_float(std::uint16_t half) {
  const std::uint32_t sign = std::uint32_t{half & 0x8000U} << 16;
  const std::int32_t magnitude = half & 0x7fff;
  const std::int32_t subnormal = std::bit_cast<std::int32_t>(static_cast<float>(magnitude) * 0x1p-24F);
  const std::int32_t exponent = (magnitude >= 0x7c00 ? 224 : 112) << 23;  // infinity and NaN keep the largest exponent
  const std::int32_t bits = magnitude < 0x400 ? subnormal : (magnitude << 13) + exponent;
  return std::bit_cast<float>(static_cast<std::uint32_t>(bits) | sign);
}

// Rounds to the nearest value, ties to even. Values out of range become infinity; NaN stays NaN.
inline std::uint16_t float_to_float16(float value) {
  const std::uint32_t bits = std::bit_cast<std::uint32_t>(value);
  const std::uint32_t sign = bits & 0x80000000U;
  const std::uint32_t magnitude = bits ^ sign;
  // Normal result: shift the exponent and round the bits that are cut off. A carry out of the mantissa goes into the
  // exponent, as it should.
  const std::uint32_t normal = (magnitude - (112U << 23) + 0xfffU + ((magnitude >> 13) & 1U)) >> 13;
  // Subnormal result: adding 0.5 makes the hardware round at the right bit.
  const std::uint32_t subnormal =
      std::bit_cast<std::uint32_t>(std::bit_cast<float>(magnitude) + 0.5F) - std::bit_cast<std::uint32_t>(0.5F);
  const std::uint32_t special = magnitude > 0x7f800000U ? 0x7e00U : 0x7c00U;
  std::uint32_t half = magnitude < (113U << 23) ? subnormal : normal;
  half = magnitude >= 0x477ff000U ? special : half;  // 65520 and above
  return static_cast<std::uint16_t>(half | sign >> 16);
}

inline float bfloat16_to_float(std::uint16_t bfloat) { return std::bit_cast<float>(std::uint32_t{bfloat} << 16); }

inline std::uint16_t float_to_bfloat16(float value) {
  const std::uint32_t bits = std::bit_cast<std::uint32_t>(value);
  const std::uint32_t rounded = (bits + 0x7fffU + ((bits >> 16) & 1U)) >> 16;
  const bool is_nan = (bits & 0x7fffffffU) > 0x7f800000U;
  return static_cast<std::uint16_t>(is_nan ? (bits >> 16 | 0x40U) : rounded);
}

}  // namespace ddp::collectives
