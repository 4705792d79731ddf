// SPDX-License-Identifier: BSD-3-Clause
/// @file
/// Buffers: the memory that libddp works on, elements of one type on one device. Bytes: what stores keep and
/// collectives on objects carry.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "ddp/ddp.h"

namespace ddp {

/// Type of a buffer's elements.
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
  BFloat16 = DDP_BFLOAT16  ///< the upper half of a float; reduced in 32 bits, rounded once
};

/// Returns the size of an element in bytes.
inline std::size_t element_size(DType dtype) { return ddp_dtype_size(static_cast<std::int32_t>(dtype)); }

/// Returns the DType of a C++ element type: dtype_of<float>() is DType::Float32. 16-bit floating point has no C++ type
/// here: name its DType.
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

/// One device; the CPU by default.
struct Device {
  DeviceKind kind = DeviceKind::Cpu;  ///< CPU or GPU
  int index = 0;                      ///< number of the GPU; 0 for the CPU

  /// Returns the struct of ddp.h.
  ddp_device c() const { return {static_cast<std::int32_t>(kind), index}; }
};

namespace detail {
// Number types that have a DType.
template <typename T>
inline constexpr bool is_element = std::is_arithmetic_v<T> && !std::is_same_v<std::remove_cv_t<T>, bool> &&
                                   !std::is_same_v<std::remove_cv_t<T>, long double>;
}  // namespace detail

/// A pointer to `count` elements of one type. Never owns its memory, which must stay until the operation it is given to
/// has ended.
struct Buffer {
  void* data = nullptr;          ///< the first element; may be null if count is 0
  std::size_t count = 0;         ///< in elements, not bytes
  DType dtype = DType::Float32;  ///< type of each element
  Device device = {};            ///< where data is

  /// Makes an empty buffer, for arguments that are ignored, such as gather's output on ranks other than root.
  Buffer() = default;
  /// Makes a buffer of memory of any type, on any device.
  Buffer(void* data_, std::size_t count_, DType dtype_, Device device_ = {})
      : data(data_), count(count_), dtype(dtype_), device(device_) {}
  /// Makes a buffer of an array on the host, whose C++ type gives the DType.
  template <typename T>
  Buffer(T* data_, std::size_t count_) : Buffer(data_, count_, dtype_of<T>()) {}
  /// Makes a buffer of a whole vector; its elements must stay where they are.
  template <typename T>
  Buffer(std::vector<T>& v) : Buffer(v.data(), v.size()) {}  // NOLINT: a vector is a buffer
  /// Makes a buffer of a whole array.
  template <typename T, std::size_t N>
  Buffer(std::array<T, N>& a) : Buffer(a.data(), N) {}  // NOLINT: an array is a buffer
  /// Makes a buffer of a whole array.
  template <typename T, std::size_t N>
  Buffer(T (&a)[N]) : Buffer(static_cast<T*>(a), N) {}  // NOLINT: an array is a buffer
  /// Makes a buffer of one number, such as a loss.
  template <typename T, std::enable_if_t<detail::is_element<T> && !std::is_const_v<T>, int> = 0>
  Buffer(T& number) : Buffer(&number, 1) {}  // NOLINT: a number is a buffer

  /// Returns the size of the memory in bytes.
  std::size_t bytes() const { return count * element_size(dtype); }
  /// Returns the struct of ddp.h.
  ddp_buffer c() const { return {data, count, static_cast<std::int32_t>(dtype), device.c()}; }
};

/// A Buffer that is only read: what is sent, and the input of a collective. Whatever makes a Buffer makes one, and what
/// is const as well; but nothing temporary, since the memory must stay until the operation has ended.
struct ConstBuffer {
  const void* data = nullptr;    ///< the first element; may be null if count is 0
  std::size_t count = 0;         ///< in elements, not bytes
  DType dtype = DType::Float32;  ///< type of each element
  Device device = {};            ///< where data is

  /// Makes an empty buffer, for arguments that are ignored, such as scatter's input on ranks other than root.
  ConstBuffer() = default;
  /// Makes a buffer of memory of any type, on any device.
  ConstBuffer(const void* data_, std::size_t count_, DType dtype_, Device device_ = {})
      : data(data_), count(count_), dtype(dtype_), device(device_) {}
  /// Makes a buffer of an array on the host, whose C++ type gives the DType.
  template <typename T>
  ConstBuffer(const T* data_, std::size_t count_) : ConstBuffer(data_, count_, dtype_of<T>()) {}
  /// Makes a view of a buffer.
  ConstBuffer(const Buffer& b) : ConstBuffer(b.data, b.count, b.dtype, b.device) {}  // NOLINT: it is one, to be read
  /// Makes a buffer of a whole vector; its elements must stay where they are.
  template <typename T>
  ConstBuffer(const std::vector<T>& v) : ConstBuffer(v.data(), v.size()) {}  // NOLINT: a vector is a buffer
  /// Makes a buffer of a whole array.
  template <typename T, std::size_t N>
  ConstBuffer(const std::array<T, N>& a) : ConstBuffer(a.data(), N) {}  // NOLINT: an array is a buffer
  /// Makes a buffer of a whole array.
  template <typename T, std::size_t N>
  ConstBuffer(const T (&a)[N]) : ConstBuffer(static_cast<const T*>(a), N) {}  // NOLINT: an array is a buffer
  /// Makes a buffer of one number.
  template <typename T, std::enable_if_t<detail::is_element<T>, int> = 0>
  ConstBuffer(const T& number) : ConstBuffer(&number, 1) {}  // NOLINT: a number is a buffer
  /// Refuses a temporary vector.
  template <typename T>
  ConstBuffer(const std::vector<T>&&) = delete;
  /// Refuses a temporary array.
  template <typename T, std::size_t N>
  ConstBuffer(const std::array<T, N>&&) = delete;
  /// Refuses a temporary number.
  template <typename T, std::enable_if_t<detail::is_element<T>, int> = 0>
  ConstBuffer(const T&&) = delete;

  /// Returns the size of the memory in bytes.
  std::size_t bytes() const { return count * element_size(dtype); }
  /// Returns the struct of ddp.h, through which nothing may be written.
  ddp_buffer c() const { return {const_cast<void*>(data), count, static_cast<std::int32_t>(dtype), device.c()}; }
};

namespace detail {
inline void* element_at(void* data, std::size_t i, DType dtype) {
  return static_cast<std::byte*>(data) + i * element_size(dtype);
}
}  // namespace detail

/// A pointer to arbitrary bytes. Never owns them: what it was made from must live as long.
class Bytes {
 public:
  /// Makes an empty one.
  Bytes() = default;
  /// Points to any memory.
  Bytes(const void* data, std::size_t size) : c_{data, size} {}
  /// Points to a text, without its NUL.
  Bytes(const char* text) : Bytes(text, std::strlen(text)) {}  // NOLINT: a text is bytes
  /// Points to the content of a std::string, std::string_view, std::vector of std::byte, char or std::uint8_t, and the
  /// like.
  template <typename Container, typename Element = std::remove_pointer_t<decltype(std::declval<Container>().data())>,
            typename = std::enable_if_t<sizeof(Element) == 1 && std::is_trivially_copyable_v<Element>>>
  Bytes(const Container& container)  // NOLINT: it has bytes and nothing else
      : Bytes(container.data(), container.size()) {}

  /// Returns the struct of ddp.h.
  ddp_bytes c() const { return c_; }

 private:
  ddp_bytes c_ = {nullptr, 0};
};

namespace detail {

// Collects the texts that a call delivers to a sink.
class Texts {
 public:
  ddp_sink sink() { return {this, &take}; }
  std::vector<std::string> all() { return std::move(texts_); }
  std::string one() { return std::move(texts_.at(0)); }

 private:
  static void take(void* context, ddp_bytes value) {
    static_cast<Texts*>(context)->texts_.emplace_back(static_cast<const char*>(value.data), value.size);
  }
  std::vector<std::string> texts_;
};

}  // namespace detail

}  // namespace ddp
