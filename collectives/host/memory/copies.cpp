// SPDX-License-Identifier: BSD-3-Clause
#include "collectives/host/memory/copies.hpp"

#include <cstring>

#include "collectives/vector_unit.hpp"

namespace ddp::collectives {
namespace {

constexpr std::size_t kLeastForVectors = 2048;  // memcpy is not `rep movsb` below this
constexpr std::size_t kStep = 128;

// Copies whole steps. Each is four vectors: a compiler would make memcpy of a loop over single ones.
struct CopySteps {
  [[gnu::always_inline]] static void run(unsigned char* to, const unsigned char* from, std::size_t bytes) {
    using Vector [[gnu::vector_size(32), gnu::aligned(1), gnu::may_alias]] = unsigned char;
    for (std::size_t i = 0; i < bytes; i += kStep) {
      const Vector* const source = reinterpret_cast<const Vector*>(from + i);
      Vector* const target = reinterpret_cast<Vector*>(to + i);
      const Vector first = source[0], second = source[1], third = source[2], fourth = source[3];
      target[0] = first;
      target[1] = second;
      target[2] = third;
      target[3] = fourth;
    }
  }
};

bool runs_on_amd() {
#ifdef __x86_64__
  return __builtin_cpu_is("amd");
#else
  return false;
#endif
}

}  // namespace

void copy(unsigned char* to, const unsigned char* from, std::size_t bytes) {
  static const bool is_amd = runs_on_amd();
  if (bytes == 0 || to == from) return;
  if (is_amd && bytes >= kLeastForVectors) return copy_by_vectors(to, from, bytes);
  std::memcpy(to, from, bytes);
}

void copy_by_vectors(unsigned char* to, const unsigned char* from, std::size_t bytes) {
  static const VectorUnit unit = vector_units().back();
  const std::size_t done = bytes / kStep * kStep;
  run_on<CopySteps>(unit, to, from, done);
  std::memcpy(to + done, from + done, bytes - done);
}

}  // namespace ddp::collectives
