// SPDX-License-Identifier: BSD-3-Clause
#include "runtime/base/scale.hpp"

#include "ddp/ddp.h"

namespace ddp::runtime {
namespace {

template <typename T>
void scale_elements(void* to, const void* from, std::size_t count, T factor) {
  T* out = static_cast<T*>(to);
  const T* in = static_cast<const T*>(from);
  for (std::size_t i = 0; i < count; ++i) out[i] = in[i] * factor;
}

}  // namespace

void scale(void* to, const void* from, std::size_t count, std::int32_t dtype, double factor) {
  if (dtype == DDP_FLOAT32) {
    scale_elements(to, from, count, static_cast<float>(factor));
  } else {
    scale_elements(to, from, count, factor);
  }
}

double averaging_factor(int size, std::int32_t dtype) {
  if (dtype == DDP_FLOAT64) return 1.0 / size;
  return static_cast<double>(1.0F / static_cast<float>(size));
}

}  // namespace ddp::runtime
