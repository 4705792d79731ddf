// SPDX-License-Identifier: BSD-3-Clause
// Element-wise reductions, out[i] = a[i] op b[i], as plain loops for the compiler to vectorise. `out` may be `a`. There
// are none for 16-bit floating point, which libddp widens first, nor for averages and weighted sums, which it makes
// from sums of scaled contributions.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <type_traits>

#include "collectives/element_types.hpp"
#include "collectives/reduce_op.hpp"
#include "ddp/backend.h"

namespace ddp::collectives {

using ReduceFunction = void (*)(void* out, const void* a, const void* b, std::size_t count);

namespace kernels {

// Signed overflow is undefined in C++ but wraps in every framework. So integers are computed in an unsigned type of at
// least 32 bits, since a narrower one would be promoted to a signed int.
template <typename T, bool = std::is_integral_v<T>>
struct Arithmetic {
  using type = T;
};
template <typename T>
struct Arithmetic<T, true> {
  using type = std::common_type_t<std::make_unsigned_t<T>, unsigned>;
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

struct And {
  template <typename T>
  static T apply(T a, T b) {
    return static_cast<T>(a & b);
  }
};
struct Or {
  template <typename T>
  static T apply(T a, T b) {
    return static_cast<T>(a | b);
  }
};
struct ExclusiveOr {
  template <typename T>
  static T apply(T a, T b) {
    return static_cast<T>(a ^ b);
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
ReduceFunction of_type(ReduceOp op) {
  switch (op) {
    case ReduceOp::Sum:
      return &reduce<T, Sum>;
    case ReduceOp::Product:
      return &reduce<T, Product>;
    case ReduceOp::Min:
      return &reduce<T, Min>;
    case ReduceOp::Max:
      return &reduce<T, Max>;
    default:
      break;
  }
  if constexpr (std::is_integral_v<T>) {
    if (op == ReduceOp::And) return &reduce<T, And>;
    if (op == ReduceOp::Or) return &reduce<T, Or>;
    if (op == ReduceOp::ExclusiveOr) return &reduce<T, ExclusiveOr>;
  }
  return nullptr;
}

}  // namespace kernels

// Returns nullptr if there is no such reduction of this type.
inline ReduceFunction reduce_function(ddp_backend_dtype dtype, ddp_backend_reduce_op reduce_op) {
  const auto op = static_cast<ReduceOp>(reduce_op);
  switch (static_cast<ElementType>(dtype)) {
    case ElementType::Float32:
      return kernels::of_type<float>(op);
    case ElementType::Float64:
      return kernels::of_type<double>(op);
    case ElementType::Int8:
      return kernels::of_type<std::int8_t>(op);
    case ElementType::Int16:
      return kernels::of_type<std::int16_t>(op);
    case ElementType::Int32:
      return kernels::of_type<std::int32_t>(op);
    case ElementType::Int64:
      return kernels::of_type<std::int64_t>(op);
    case ElementType::UInt8:
      return kernels::of_type<std::uint8_t>(op);
    case ElementType::UInt16:
      return kernels::of_type<std::uint16_t>(op);
    case ElementType::UInt32:
      return kernels::of_type<std::uint32_t>(op);
    case ElementType::UInt64:
      return kernels::of_type<std::uint64_t>(op);
    case ElementType::Float16:
    case ElementType::BFloat16:
      break;
  }
  return nullptr;
}

}  // namespace ddp::collectives
