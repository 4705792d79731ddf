// SPDX-License-Identifier: BSD-3-Clause
// The element types of collectives: their names and sizes. The values equal ddp_dtype's (ddp/ddp.h).
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>

namespace ddp::collectives {

enum class ElementType : std::int32_t {
  Float32 = 0,
  Float64 = 1,
  Int32 = 2,
  Int64 = 3,
  UInt8 = 4,
  Int8 = 5,
  Int16 = 6,
  UInt16 = 7,
  UInt32 = 8,
  UInt64 = 9,
  Float16 = 10,
  BFloat16 = 11,
};

struct ElementFacts {
  const char* name;  // PyTorch's name
  std::size_t size;  // bytes
};
inline constexpr std::array<ElementFacts, 12> kElementTypes = {{{"float32", 4},
                                                                {"float64", 8},
                                                                {"int32", 4},
                                                                {"int64", 8},
                                                                {"uint8", 1},
                                                                {"int8", 1},
                                                                {"int16", 2},
                                                                {"uint16", 2},
                                                                {"uint32", 4},
                                                                {"uint64", 8},
                                                                {"float16", 2},
                                                                {"bfloat16", 2}}};

// Returns nullptr for an unknown type.
inline const ElementFacts* element_facts(std::int32_t dtype) {
  const bool known = dtype >= 0 && static_cast<std::size_t>(dtype) < kElementTypes.size();
  return known ? &kElementTypes[static_cast<std::size_t>(dtype)] : nullptr;
}

// Returns the size of one element in bytes, or 0 for an unknown type.
inline std::size_t element_size(std::int32_t dtype) {
  const ElementFacts* facts = element_facts(dtype);
  return facts ? facts->size : 0;
}

// Returns PyTorch's name of an element type, such as "float32".
inline const char* dtype_name(std::int32_t dtype) {
  const ElementFacts* facts = element_facts(dtype);
  return facts ? facts->name : "unknown type";
}

// Returns why `data` cannot be memory of `count` elements; empty if it can.
inline std::string why_no_elements(const void* data, std::size_t count, std::int32_t dtype) {
  const std::size_t size = element_size(dtype);
  if (size == 0) return "there is no element type " + std::to_string(dtype);
  if (data == nullptr && count > 0) return "null data for " + std::to_string(count) + " elements";
  if (count > SIZE_MAX / 2 / size) return std::to_string(count) + " elements do not fit in memory";
  return "";
}
inline constexpr char kNotInCpuMemory[] = "not in CPU memory; nothing else is supported here";

inline bool is_16_bit_float(std::int32_t dtype) {
  return dtype == static_cast<std::int32_t>(ElementType::Float16) ||
         dtype == static_cast<std::int32_t>(ElementType::BFloat16);
}
inline bool is_floating_point(std::int32_t dtype) {
  return dtype == static_cast<std::int32_t>(ElementType::Float32) ||
         dtype == static_cast<std::int32_t>(ElementType::Float64) || is_16_bit_float(dtype);
}

}  // namespace ddp::collectives
