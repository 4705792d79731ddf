// SPDX-License-Identifier: BSD-3-Clause
/// @file
/// Parameters: a model's tensors in plain memory, and their gradients.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "ddp/buffer.hpp"

namespace ddp {

/// A tensor of the model in plain memory: a trainable parameter or a buffer. Never owns its memory.
struct Parameter {
  void* value = nullptr;  ///< count elements
  void* grad = nullptr;   ///< count elements, averaged in place; null: DistributedDataParallel::gradient(i) is used
  std::size_t count = 0;  ///< in elements
  DType dtype = DType::Float32;     ///< floating point; for a buffer any
  Device device = {};               ///< where value and grad are; the same for all parameters
  std::string name;                 ///< for error messages
  std::vector<std::int64_t> shape;  ///< compared across ranks; its product is count; empty: one dimension

  /// Makes an empty one, to be filled in.
  Parameter() = default;
  /// Makes a parameter in memory of the host, of a C++ type that has a DType.
  template <typename T>
  Parameter(std::string name_, T* value_, T* grad_, std::size_t count_, std::vector<std::int64_t> shape_ = {})
      : value(value_),
        grad(grad_),
        count(count_),
        dtype(dtype_of<T>()),
        name(std::move(name_)),
        shape(std::move(shape_)) {}
  /// Makes a tensor without a gradient pointer: a buffer, or a parameter whose gradient is in a
  /// bucket.
  template <typename T>
  Parameter(std::string name_, T* value_, std::size_t count_, std::vector<std::int64_t> shape_ = {})
      : Parameter(std::move(name_), value_, static_cast<T*>(nullptr), count_, std::move(shape_)) {}
};

namespace detail {
inline Buffer value_of(const Parameter& p) { return {p.value, p.count, p.dtype, p.device}; }
inline Buffer gradient_of(const Parameter& p) { return {p.grad, p.count, p.dtype, p.device}; }
}  // namespace detail

}  // namespace ddp
