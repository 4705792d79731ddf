// SPDX-License-Identifier: BSD-3-Clause
// Compares our declarations of a library's functions with those of its real headers; the test is that it compiles. The
// types have different names, so their kind and size are compared, which decide how they are passed.
#pragma once

#include <type_traits>

namespace ddp::testing {

template <typename T>
constexpr int kind_of() {
  if (std::is_void_v<T>) return 0;
  if (std::is_pointer_v<T>) return 1;
  if (std::is_integral_v<T> || std::is_enum_v<T>) return 2;
  return 3;
}

template <typename A, typename B>
constexpr bool passed_alike() {
  if constexpr (std::is_void_v<A> || std::is_void_v<B>) {
    return std::is_void_v<A> && std::is_void_v<B>;
  } else {
    return kind_of<A>() == kind_of<B>() && sizeof(A) == sizeof(B);  // NOLINT(bugprone-sizeof-expression)
  }
}

template <typename Ours, typename Real>
struct CalledAlike : std::false_type {};
template <typename R, typename... A, typename Q, typename... B>
struct CalledAlike<R (*)(A...), Q (*)(B...)> {
  static constexpr bool compare() {
    if constexpr (sizeof...(A) != sizeof...(B)) {
      return false;
    } else {
      return passed_alike<R, Q>() && (passed_alike<A, B>() && ...);
    }
  }
  static constexpr bool value = compare();
};

}  // namespace ddp::testing

#define CALLED_ALIKE(table, member, real)                                                       \
  static_assert(::ddp::testing::CalledAlike<decltype(table::member), decltype(&::real)>::value, \
                #member " is not " #real)
