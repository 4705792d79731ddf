// SPDX-License-Identifier: BSD-3-Clause
/// @file
/// The memory that libddp works on: elements of a type, in an order, on a device.
#pragma once

#include <cstddef>
#include <cstdint>
#include <type_traits>
#include <vector>

#include "ddp/ddp.h"

namespace ddp {

/// The type of a buffer's elements.
enum class DType : std::int32_t {
  Float32 = DDP_FLOAT32,   ///< float
  Float64 = DDP_FLOAT64,   ///< double
  Int32 = DDP_INT32,       ///< 4 bytes
  Int64 = DDP_INT64,       ///< 8 bytes
  UInt8 = DDP_UINT8,       ///< 1 byte
  Int8 = DDP_INT8,         ///< 1 byte
  Int16 = DDP_INT16,       ///< 2 bytes
  UInt16 = DDP_UINT16,     ///< 2 bytes
  UInt32 = DDP_UINT32,     ///< 4 bytes
  UInt64 = DDP_UINT64,     ///< 8 bytes
  Float16 = DDP_FLOAT16,   ///< IEEE half; reduced in 32 bits, rounded once
  BFloat16 = DDP_BFLOAT16  ///< the upper half of a float; likewise
};

/// How many bytes an element has.
inline std::size_t element_size(DType dtype) { return ddp_dtype_size(static_cast<std::int32_t>(dtype)); }

/// DType of a C++ element type: dtype_of<float>() is DType::Float32. 16-bit floating point has none: name its DType.
template <typename T>
constexpr DType dtype_of() {
  using U = std::remove_cv_t<T>;
  if constexpr (std::is_same_v<U, float>) {
    return DType::Float32;
  } else if constexpr (std::is_same_v<U, double>) {
    return DType::Float64;
  } else {
    static_assert(std::is_integral_v<U> && !std::is_same_v<U, bool>, "libddp has no element type for this C++ type");
    constexpr bool is_signed = std::is_signed_v<U>;
    if constexpr (sizeof(U) == 1) return is_signed ? DType::Int8 : DType::UInt8;
    if constexpr (sizeof(U) == 2) return is_signed ? DType::Int16 : DType::UInt16;
    if constexpr (sizeof(U) == 4) return is_signed ? DType::Int32 : DType::UInt32;
    if constexpr (sizeof(U) == 8) return is_signed ? DType::Int64 : DType::UInt64;
  }
}

/// Kind of device that memory is on.
enum class DeviceKind : std::int32_t {
  Cpu = DDP_CPU,   ///< the host
  Cuda = DDP_CUDA  ///< an NVIDIA GPU
};

/// One device. By default the CPU.
struct Device {
  DeviceKind kind = DeviceKind::Cpu;  ///< CPU or GPU
  int index = 0;                      ///< number of the GPU; 0 for the CPU

  /// Returns it as ddp.h has it.
  ddp_device c() const { return {static_cast<std::int32_t>(kind), index}; }
};

/// count elements at data. Never owns: the memory must stay until the operation it is given to has ended.
struct Buffer {
  void* data = nullptr;          ///< the first element; may be null if count is 0
  std::size_t count = 0;         ///< in elements, not bytes
  DType dtype = DType::Float32;  ///< of each element
  Device device = {};            ///< where data is

  /// Nothing: for those that are not looked at, such as gather's output away from the root.
  Buffer() = default;
  /// Memory of any type, on any device.
  Buffer(void* data_, std::size_t count_, DType dtype_, Device device_ = {})
      : data(data_), count(count_), dtype(dtype_), device(device_) {}
  /// An array on the host whose C++ type says what is in it.
  template <typename T>
  Buffer(T* data_, std::size_t count_) : Buffer(data_, count_, dtype_of<T>()) {}
  /// All of a vector, as long as its elements stay where they are.
  template <typename T>
  Buffer(std::vector<T>& v) : Buffer(v.data(), v.size()) {}  // NOLINT: a vector is a buffer

  /// How much memory it is.
  std::size_t bytes() const { return count * element_size(dtype); }
  /// For ddp.h.
  ddp_buffer c() const { return {data, count, static_cast<std::int32_t>(dtype), device.c()}; }
};

namespace detail {
inline void* element_at(void* data, std::size_t i, DType dtype) {
  return static_cast<std::byte*>(data) + i * element_size(dtype);
}
}  // namespace detail

}  // namespace ddp
