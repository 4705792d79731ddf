// SPDX-License-Identifier: BSD-3-Clause
#include "collectives/float_conversion.hpp"

#include "collectives/element_types.hpp"
#include "collectives/float16.hpp"

namespace ddp::collectives {
namespace {

template <auto convert>
struct ConvertAll {
  template <typename From, typename To>
  [[gnu::always_inline]] static void run(const From* __restrict from, To* __restrict to, std::size_t count) {
    for (std::size_t i = 0; i < count; ++i) to[i] = convert(from[i]);
  }
};

bool is_float16(std::int32_t dtype) { return dtype == static_cast<std::int32_t>(ElementType::Float16); }

}  // namespace

void widen(std::int32_t dtype, const void* from, float* to, std::size_t count, VectorUnit unit) {
  const auto* in = static_cast<const std::uint16_t*>(from);
  if (is_float16(dtype)) return run_on<ConvertAll<&float16_to_float>>(unit, in, to, count);
  run_on<ConvertAll<&bfloat16_to_float>>(unit, in, to, count);
}

void narrow(std::int32_t dtype, const float* from, void* to, std::size_t count, VectorUnit unit) {
  auto* out = static_cast<std::uint16_t*>(to);
  if (is_float16(dtype)) return run_on<ConvertAll<&float_to_float16>>(unit, from, out, count);
  run_on<ConvertAll<&float_to_bfloat16>>(unit, from, out, count);
}

}  // namespace ddp::collectives
