// SPDX-License-Identifier: BSD-3-Clause
#include "apps/ddp_bench/contenders/memory_contender.hpp"

#include <bit>
#include <cstdint>
#include <cstring>

namespace ddp::bench {
namespace {

volatile std::uint32_t seen;  // keeps the compiler from removing the reads

void read(const float* data, std::size_t count) {
  std::uint32_t all = 0;
  for (std::size_t i = 0; i < count; ++i) all ^= std::bit_cast<std::uint32_t>(data[i]);
  seen = all;
}

void write(float* data, std::size_t count) { std::memset(data, 0, count * sizeof(float)); }

// Writes back what it reads. The compiler cannot skip it, since -0 would become 0.
void update(float* data, std::size_t count) {
  for (std::size_t i = 0; i < count; ++i) data[i] += 0.0F;
}

}  // namespace

void MemoryContender::run(Collective collective, const float* input, float* output, std::size_t count) {
  const std::size_t part = count / static_cast<std::size_t>(size_);
  const bool is_root = rank_ == 0;
  switch (collective) {
    case Collective::AllReduce:
      return update(output, count);
    case Collective::Broadcast:
      return is_root ? read(output, count) : write(output, count);
    case Collective::Reduce:
      return is_root ? update(output, count) : read(output, count);
    case Collective::AllGather:
      return read(input, part), write(output, count);
    case Collective::ReduceScatter:
      return read(input, count), write(output, part);
    case Collective::AllToAll:
      return read(input, count), write(output, count);
    case Collective::Gather:
      return is_root ? write(output, count) : read(input, part);
    case Collective::Scatter:
      return is_root ? read(input, count) : write(output, part);
    case Collective::Barrier:
      return;
  }
}

}  // namespace ddp::bench
