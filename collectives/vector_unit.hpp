// SPDX-License-Identifier: BSD-3-Clause
// One loop, compiled for each vector unit a processor may have, run on the widest that this one has.
//
// The choice is made at run time and by a plain switch: a resolver of the linker's (ifunc) runs before a sanitizer
// does. A loop must give the same bits on every unit, whatever machine a rank runs on: files that compute with floating
// point are compiled with -ffp-contract=off, since AVX-512 has a fused multiply-add and SSE has not.
#pragma once

#include <vector>

// Before a loop whose arrays are each other or do not overlap: element i of one meets element i of the others only.
#ifdef __clang__
#define DDP_ELEMENT_BY_ELEMENT _Pragma("clang loop vectorize(assume_safety)")
#else
#define DDP_ELEMENT_BY_ELEMENT _Pragma("GCC ivdep")
#endif

namespace ddp::collectives {

enum class VectorUnit { Baseline, Avx2, Avx512 };

// Those of this processor, the widest last.
const std::vector<VectorUnit>& vector_units();

// Loop::run is always_inline: it becomes a part of each of these, and is compiled for that one's instructions.
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
