// SPDX-License-Identifier: BSD-3-Clause
// How a block goes over its chunks of a list of tensors, and how elements of 16 bits are read and written.
#pragma once

#include "collectives/float16.hpp"
#include "runtime/training/kernels/arguments.hpp"
#include "runtime/training/kernels/place.hpp"

namespace ddp::runtime::kernels {

// Calls use(tensor, chunk) for each chunk of this block.
template <typename Use>
inline void for_each_chunk(const Table& table, const Place& at, const Use& use) {
  for (std::uint64_t c = at.block; c < table.chunk_count; c += at.blocks) {
    const Chunk chunk = *memory(table.chunks + c, 1);
    const TensorEntry tensor = *memory(table.tensors + chunk.tensor, 1);
    use(tensor, chunk);
  }
}

// Returns the chunk's elements of a tensor.
template <typename T>
inline T* part_of(void* tensor, const Chunk& chunk) {
  return memory(static_cast<T*>(tensor) + chunk.first, chunk.count);
}

// Elements of 64 bits. store() returns what was stored.
struct DoubleElements {
  using Bits = double;
  double* at;
  DoubleElements(void* tensor, Type /*type*/, const Chunk& chunk) : at(part_of<double>(tensor, chunk)) {}
  Bits bits(std::uint64_t i) const { return at[i]; }
  double value(Bits bits) const { return bits; }
  double load(std::uint64_t i) const { return at[i]; }
  double store(std::uint64_t i, double value) const { return at[i] = value; }
};

// Elements of 32 or 16 bits as floats. store() returns what the rounded element is. The type is the same for all
// threads of a block, so asking for each element costs nothing beside the memory; a loop for each type made the code
// five times as large.
struct FloatElements {
  union Bits {
    float whole;
    std::uint16_t half;
  };
  void* at;
  Type type;
  FloatElements(void* tensor, Type type_, const Chunk& chunk)
      : at(type_ == Type::Float32 ? static_cast<void*>(part_of<float>(tensor, chunk))
                                  : part_of<std::uint16_t>(tensor, chunk)),
        type(type_) {}
  Bits bits(std::uint64_t i) const {
    if (type == Type::Float32) return {.whole = static_cast<float*>(at)[i]};
    return {.half = static_cast<std::uint16_t*>(at)[i]};
  }
  float value(Bits bits) const {
    if (type == Type::Float32) return bits.whole;
    return type == Type::Float16 ? collectives::float16_to_float(bits.half) : collectives::bfloat16_to_float(bits.half);
  }
  float load(std::uint64_t i) const { return value(bits(i)); }
  float store(std::uint64_t i, float value) const {
    if (type == Type::Float32) return static_cast<float*>(at)[i] = value;
    static_cast<std::uint16_t*>(at)[i] =
        type == Type::Float16 ? collectives::float_to_float16(value) : collectives::float_to_bfloat16(value);
    return load(i);
  }
};

// Calls use(elements) with the elements of the type.
template <typename Use>
inline void with_elements(void* tensor, Type type, const Chunk& chunk, const Use& use) {
  if (type == Type::Float64) return use(DoubleElements(tensor, type, chunk));
  use(FloatElements(tensor, type, chunk));
}

// Calls use(i, value) for each element of this thread, in order. It reads kLoads of them before it uses the first, so
// use() must not change others: with one load at a time a thread would mostly wait for memory.
constexpr std::uint64_t kLoads = 4;
template <typename Elements, typename Use>
inline void for_each_value(const Elements& from, std::uint64_t count, const Place& at, const Use& use) {
  for (std::uint64_t first = at.thread; first < count; first += kLoads * at.threads) {
    typename Elements::Bits loaded[kLoads];
    for (std::uint64_t k = 0; k < kLoads; ++k) {
      const std::uint64_t i = first + k * at.threads;
      loaded[k] = from.bits(i < count ? i : first);
    }
    for (std::uint64_t k = 0; k < kLoads; ++k) {
      const std::uint64_t i = first + k * at.threads;
      if (i < count) use(i, from.value(loaded[k]));
    }
  }
}

}  // namespace ddp::runtime::kernels
