// SPDX-License-Identifier: BSD-3-Clause
// Element-wise reductions, out[i] = a[i] op b[i], as plain loops for the compiler to vectorise. `out` may be `a`. There
// are none for 16-bit floating point, which is widened first, nor for averages and weighted sums, which libddp makes
// from sums of scaled contributions.
#pragma once

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
// A NaN of any rank is the result of Min and Max, as torch.minimum and torch.maximum have it: so it does not matter
// where in the order of ranks it comes. `b` is the result unless a comparison with it holds, which none does with NaN.
template <typename T>
bool is_nan(T value) {
  return value != value;
}
struct Min {
  template <typename T>
  static T apply(T a, T b) {
    return ((a < b) | is_nan(a)) ? a : b;  // `|`, since GCC does not vectorise `||`
  }
};
struct Max {
  template <typename T>
  static T apply(T a, T b) {
    return ((a > b) | is_nan(a)) ? a : b;
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

// Returns make.operator()<T, Op>() for the struct above that computes `op`, or nullptr if T has no such reduction.
template <typename T, typename Make>
auto for_operation(ReduceOp op, Make make) -> decltype(make.template operator()<T, Sum>()) {
  switch (op) {
    case ReduceOp::Sum:
      return make.template operator()<T, Sum>();
    case ReduceOp::Product:
      return make.template operator()<T, Product>();
    case ReduceOp::Min:
      return make.template operator()<T, Min>();
    case ReduceOp::Max:
      return make.template operator()<T, Max>();
    default:
      break;
  }
  if constexpr (std::is_integral_v<T>) {
    if (op == ReduceOp::And) return make.template operator()<T, And>();
    if (op == ReduceOp::Or) return make.template operator()<T, Or>();
    if (op == ReduceOp::ExclusiveOr) return make.template operator()<T, ExclusiveOr>();
  }
  return nullptr;
}

// Returns what for_operation() does, for an element type known at run time; nullptr for 16-bit floating point.
template <typename Make>
auto for_type(ElementType type, ReduceOp op, Make make) {
  switch (type) {
    case ElementType::Float32:
      return for_operation<float>(op, make);
    case ElementType::Float64:
      return for_operation<double>(op, make);
    case ElementType::Int8:
      return for_operation<std::int8_t>(op, make);
    case ElementType::Int16:
      return for_operation<std::int16_t>(op, make);
    case ElementType::Int32:
      return for_operation<std::int32_t>(op, make);
    case ElementType::Int64:
      return for_operation<std::int64_t>(op, make);
    case ElementType::UInt8:
      return for_operation<std::uint8_t>(op, make);
    case ElementType::UInt16:
      return for_operation<std::uint16_t>(op, make);
    case ElementType::UInt32:
      return for_operation<std::uint32_t>(op, make);
    case ElementType::UInt64:
      return for_operation<std::uint64_t>(op, make);
    case ElementType::Float16:
    case ElementType::BFloat16:
      break;
  }
  return decltype(for_operation<float>(op, make))(nullptr);
}

}  // namespace kernels

// Returns nullptr if there is no such reduction of this type.
inline ReduceFunction reduce_function(ddp_backend_dtype dtype, ddp_backend_reduce_op op) {
  return kernels::for_type(static_cast<ElementType>(dtype), static_cast<ReduceOp>(op),
                           []<typename T, typename Op>() -> ReduceFunction { return &kernels::reduce<T, Op>; });
}

}  // namespace ddp::collectives
