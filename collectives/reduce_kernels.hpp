// SPDX-License-Identifier: BSD-3-Clause
// Element-wise reductions, out[i] = a[i] op b[i], for every (type, operation) the backend table names. out may be a.
// Plain loops for the compiler to vectorise.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <type_traits>

#include "collectives/backend.h"

namespace ddp::collectives {

using ReduceFunction = void (*)(void* out, const void* a, const void* b, std::size_t count);

namespace kernels {

// Signed overflow is undefined in C++ but wraps in every framework: compute in the unsigned type of the same width.
template <typename T, bool = std::is_integral_v<T>>
struct Arithmetic {
  using type = T;
};
template <typename T>
struct Arithmetic<T, true> {
  using type = std::make_unsigned_t<T>;
};

struct Sum {
  template <typename T>
  static T apply(T a, T b) {
    using U = typename Arithmetic<T>::type;
    return static_cast<T>(static_cast<U>(a) + static_cast<U>(b));
  }
};
struct Product {
  template <typename T>
  static T apply(T a, T b) {
    using U = typename Arithmetic<T>::type;
    return static_cast<T>(static_cast<U>(a) * static_cast<U>(b));
  }
};
struct Min {
  template <typename T>
  static T apply(T a, T b) {
    return std::min(a, b);
  }
};
struct Max {
  template <typename T>
  static T apply(T a, T b) {
    return std::max(a, b);
  }
};

template <typename T, typename Op>
void reduce(void* out, const void* a, const void* b, std::size_t count) {
  T* to = static_cast<T*>(out);
  const T* left = static_cast<const T*>(a);
  const T* right = static_cast<const T*>(b);
  for (std::size_t i = 0; i < count; ++i) to[i] = Op::apply(left[i], right[i]);
}

template <typename T>
ReduceFunction of_type(ddp_backend_reduce_op op) {
  switch (op) {
    case 0:
      return &reduce<T, Sum>;
    case 2:
      return &reduce<T, Product>;
    case 3:
      return &reduce<T, Min>;
    case 4:
      return &reduce<T, Max>;
    default:
      return nullptr;  // 1, the average, is made from a sum by libddp
  }
}

}  // namespace kernels

// nullptr if there is no such reduction. The numbers are ddp_dtype's and ddp_reduce_op's.
inline ReduceFunction reduce_function(ddp_backend_dtype dtype, ddp_backend_reduce_op op) {
  switch (dtype) {
    case 0:
      return kernels::of_type<float>(op);
    case 1:
      return kernels::of_type<double>(op);
    case 2:
      return kernels::of_type<std::int32_t>(op);
    case 3:
      return kernels::of_type<std::int64_t>(op);
    case 4:
      return kernels::of_type<std::uint8_t>(op);
    default:
      return nullptr;
  }
}

inline std::size_t element_size(ddp_backend_dtype dtype) {
  constexpr std::size_t kSizes[] = {4, 8, 4, 8, 1};
  return dtype >= 0 && dtype < 5 ? kSizes[dtype] : 0;
}

}  // namespace ddp::collectives
