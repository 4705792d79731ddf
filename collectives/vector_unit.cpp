// SPDX-License-Identifier: BSD-3-Clause
#include "collectives/vector_unit.hpp"

namespace ddp::collectives {
namespace {

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

}  // namespace

const std::vector<VectorUnit>& vector_units() {
  static const std::vector<VectorUnit> units = find_vector_units();
  return units;
}

}  // namespace ddp::collectives
