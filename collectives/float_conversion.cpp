// SPDX-License-Identifier: BSD-3-Clause
#include "collectives/float_conversion.hpp"

#include "collectives/element_types.hpp"

namespace ddp::collectives {
namespace {

// Inlined into each of the functions below, so that it is compiled for that one's instructions.
template <auto convert, typename From, typename To>
[[gnu::always_inline]] inline void convert_all(const From* __restrict from, To* __restrict to, std::size_t count) {
  for (std::size_t i = 0; i < count; ++i) to[i] = convert(from[i]);
}

template <auto convert, typename From, typename To>
void convert_on_baseline(const From* from, To* to, std::size_t count) {
  convert_all<convert>(from, to, count);
}

#ifdef __x86_64__
template <auto convert, typename From, typename To>
[[gnu::target("avx2")]] void convert_on_avx2(const From* from, To* to, std::size_t count) {
  convert_all<convert>(from, to, count);
}

template <auto convert, typename From, typename To>
[[gnu::target("avx512f,avx512bw,avx512vl")]] void convert_on_avx512(const From* from, To* to, std::size_t count) {
  convert_all<convert>(from, to, count);
}
#endif

template <auto convert, typename From, typename To>
void convert_on(VectorUnit unit, const From* from, To* to, std::size_t count) {
  switch (unit) {
#ifdef __x86_64__
    case VectorUnit::Avx512:
      return convert_on_avx512<convert>(from, to, count);
    case VectorUnit::Avx2:
      return convert_on_avx2<convert>(from, to, count);
#endif
    default:
      return convert_on_baseline<convert>(from, to, count);
  }
}

std::vector<VectorUnit> find_vector_units() {
  std::vector<VectorUnit> units = {VectorUnit::Baseline};
#ifdef __x86_64__
  if (__builtin_cpu_supports("avx2")) units.push_back(VectorUnit::Avx2);
  if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512vl")) {
    units.push_back(VectorUnit::Avx512);
  }
#endif
  return units;
}

bool is_float16(std::int32_t dtype) { return dtype == static_cast<std::int32_t>(ElementType::Float16); }

}  // namespace

const std::vector<VectorUnit>& vector_units() {
  static const std::vector<VectorUnit> units = find_vector_units();
  return units;
}

void widen(std::int32_t dtype, const void* from, float* to, std::size_t count, VectorUnit unit) {
  const auto* in = static_cast<const std::uint16_t*>(from);
  if (is_float16(dtype)) return convert_on<&float16_to_float>(unit, in, to, count);
  convert_on<&bfloat16_to_float>(unit, in, to, count);
}

void narrow(std::int32_t dtype, const float* from, void* to, std::size_t count, VectorUnit unit) {
  auto* out = static_cast<std::uint16_t*>(to);
  if (is_float16(dtype)) return convert_on<&float_to_float16>(unit, from, out, count);
  convert_on<&float_to_bfloat16>(unit, from, out, count);
}

void widen(std::int32_t dtype, const void* from, float* to, std::size_t count) {
  widen(dtype, from, to, count, vector_units().back());
}

void narrow(std::int32_t dtype, const float* from, void* to, std::size_t count) {
  narrow(dtype, from, to, count, vector_units().back());
}

}  // namespace ddp::collectives
