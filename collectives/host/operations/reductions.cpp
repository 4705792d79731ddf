// SPDX-License-Identifier: BSD-3-Clause
#include "collectives/host/operations/reductions.hpp"

#include <algorithm>
#include <cstring>
#include <vector>

#include "collectives/element_types.hpp"
#include "collectives/float_conversion.hpp"
#include "collectives/reduce_kernels.hpp"
#include "collectives/vector_unit.hpp"

namespace ddp::collectives {
namespace {

constexpr std::size_t kBlock = 4096;  // bytes: intermediate results stay in the first cache

template <typename T, typename Op>
struct CombineAll {
  [[gnu::always_inline]] static void run(const T* a, const T* b, T* out, std::size_t count) {
    DDP_ELEMENT_BY_ELEMENT
    for (std::size_t i = 0; i < count; ++i) out[i] = Op::apply(a[i], b[i]);
  }
};

template <typename T, typename Op>
void combine(const void* a, const void* b, void* out, std::size_t count) {
  static const VectorUnit unit = vector_units().back();
  run_on<CombineAll<T, Op>>(unit, static_cast<const T*>(a), static_cast<const T*>(b), static_cast<T*>(out), count);
}

Reduction::Combine find(ElementType type, ReduceOp op) {
  return kernels::for_type(type, op, []<typename T, typename Op>() -> Reduction::Combine { return &combine<T, Op>; });
}

}  // namespace

Reduction::Reduction(ddp_backend_dtype dtype, ddp_backend_reduce_op op)
    : dtype_(dtype),
      element_size_(element_size(dtype)),
      is_16_bit_(is_16_bit_float(dtype)),
      combine_(find(is_16_bit_ ? ElementType::Float32 : static_cast<ElementType>(dtype), static_cast<ReduceOp>(op))) {}

void Reduction::run(const unsigned char* const* sources, std::size_t ranks, unsigned char* out,
                    std::size_t count) const {
  if (is_16_bit_) return run_16_bit(nullptr, sources, ranks, out, count, Stage::Last);
  if (ranks == 2) return combine_(sources[0], sources[1], out, count);
  if (ranks == 1) {
    std::memmove(out, sources[0], count * element_size_);
    return;
  }
  // `out` is written last, since it may be a source.
  alignas(64) unsigned char sum[kBlock];
  for (std::size_t done = 0; done < count;) {
    const std::size_t some = std::min(count - done, kBlock / element_size_);
    const std::size_t at = done * element_size_;
    combine_(sources[0] + at, sources[1] + at, sum, some);
    for (std::size_t r = 2; r + 1 < ranks; ++r) combine_(sum, sources[r] + at, sum, some);
    combine_(sum, sources[ranks - 1] + at, out + at, some);
    done += some;
  }
}

void Reduction::run_stage(const unsigned char* partial, const unsigned char* const* sources, std::size_t ranks,
                          unsigned char* out, std::size_t count, Stage stage) const {
  if (is_16_bit_) return run_16_bit(partial, sources, ranks, out, count, stage);
  if (partial == nullptr) return run(sources, ranks, out, count);
  std::vector<const unsigned char*> all = {partial};
  all.insert(all.end(), sources, sources + ranks);
  run(all.data(), all.size(), out, count);
}

void Reduction::run_16_bit(const unsigned char* partial, const unsigned char* const* sources, std::size_t ranks,
                           unsigned char* out, std::size_t count, Stage stage) const {
  constexpr std::size_t kMost = kBlock / sizeof(float);
  alignas(64) float sum[kMost];
  alignas(64) float next[kMost];
  for (std::size_t done = 0; done < count;) {
    const std::size_t some = std::min(count - done, kMost);
    const std::size_t at = done * element_size_;
    if (partial != nullptr) {
      std::memcpy(sum, partial + done * sizeof(float), some * sizeof(float));
    } else {
      widen(dtype_, sources[0] + at, sum, some);
    }
    for (std::size_t r = partial != nullptr ? 0 : 1; r < ranks; ++r) {
      widen(dtype_, sources[r] + at, next, some);
      combine_(sum, next, sum, some);
    }
    if (stage == Stage::Last) {
      narrow(dtype_, sum, out + at, some);
    } else {
      std::memcpy(out + done * sizeof(float), sum, some * sizeof(float));
    }
    done += some;
  }
}

}  // namespace ddp::collectives
