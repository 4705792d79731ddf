// SPDX-License-Identifier: BSD-3-Clause
/// @file
/// What a model is to libddp: tensors in plain memory, and their gradients.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "ddp/buffer.hpp"

namespace ddp {

/// A tensor of the model, a trainable one or a buffer: plain memory. Never owns.
struct Parameter {
  void* value = nullptr;  ///< count elements
  void* grad = nullptr;   ///< count elements, averaged in place; null: DistributedDataParallel::gradient(i) is used
  std::size_t count = 0;  ///< in elements
  DType dtype = DType::Float32;     ///< floating point; of a buffer any
  Device device = {};               ///< where value and grad are; of all parameters the same
  std::string name;                 ///< for error messages
  std::vector<std::int64_t> shape;  ///< its product is count; empty: one dimension. Compared across ranks

  /// To be filled in.
  Parameter() = default;
  /// Memory of the host, of a C++ type that has a DType.
  template <typename T>
  Parameter(std::string name_, T* value_, T* grad_, std::size_t count_, std::vector<std::int64_t> shape_ = {})
      : value(value_),
        grad(grad_),
        count(count_),
        dtype(dtype_of<T>()),
        name(std::move(name_)),
        shape(std::move(shape_)) {}
  /// The same without a gradient of its own: a buffer, or a parameter whose gradient is in a bucket.
  template <typename T>
  Parameter(std::string name_, T* value_, std::size_t count_, std::vector<std::int64_t> shape_ = {})
      : Parameter(std::move(name_), value_, static_cast<T*>(nullptr), count_, std::move(shape_)) {}
};

namespace detail {
inline Buffer value_of(const Parameter& p) { return {p.value, p.count, p.dtype, p.device}; }
inline Buffer gradient_of(const Parameter& p) { return {p.grad, p.count, p.dtype, p.device}; }
}  // namespace detail

}  // namespace ddp
