// SPDX-License-Identifier: BSD-3-Clause
// Compiles one loop for each vector unit that a processor may have, and runs it on the widest unit of this processor.
//
// A plain switch chooses at run time, not an ifunc resolver: the linker runs those before a sanitizer is set up. A loop
// must give the same bits on every unit, so that all ranks agree whatever machine they run on. Files that compute with
// floating point are therefore compiled with -ffp-contract=off: AVX-512 has a fused multiply-add, SSE has none.
#pragma once

#include <vector>

// Goes before a loop whose arrays are identical or do not overlap: element i of one meets only element i of the others.
#ifdef __clang__
#define DDP_ELEMENT_BY_ELEMENT _Pragma("clang loop vectorize(assume_safety)")
#else
#define DDP_ELEMENT_BY_ELEMENT _Pragma("GCC ivdep")
#endif

namespace ddp::collectives {

enum class VectorUnit { Baseline, Avx2, Avx512 };

// Returns the units of this processor, the widest last.
inline const std::vector<VectorUnit>& vector_units() {
  static const std::vector<VectorUnit> units = [] {
    std::vector<VectorUnit> found = {VectorUnit::Baseline};
#ifdef __x86_64__
    if (__builtin_cpu_supports("avx2")) found.push_back(VectorUnit::Avx2);
    if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512vl")) {
      found.push_back(VectorUnit::Avx512);
    }
#endif
    return found;
  }();
  return units;
}

// Loop::run is always_inline: it becomes part of each function below and is compiled for its instructions.
template <typename Loop, typename... Arguments>
auto run_on_baseline(Arguments... arguments) {
  return Loop::run(arguments...);
}

#ifdef __x86_64__
template <typename Loop, typename... Arguments>
[[gnu::target("avx2")]] auto run_on_avx2(Arguments... arguments) {
  return Loop::run(arguments...);
}

template <typename Loop, typename... Arguments>
[[gnu::target("avx512f,avx512bw,avx512vl")]] auto run_on_avx512(Arguments... arguments) {
  return Loop::run(arguments...);
}
#endif

template <typename Loop, typename... Arguments>
auto run_on(VectorUnit unit, Arguments... arguments) {
  switch (unit) {
#ifdef __x86_64__
    case VectorUnit::Avx512:
      return run_on_avx512<Loop>(arguments...);
    case VectorUnit::Avx2:
      return run_on_avx2<Loop>(arguments...);
#endif
    default:
      return run_on_baseline<Loop>(arguments...);
  }
}

}  // namespace ddp::collectives
