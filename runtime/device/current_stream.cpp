// SPDX-License-Identifier: BSD-3-Clause
#include "runtime/device/current_stream.hpp"

#include <cstddef>
#include <vector>

namespace ddp::runtime {
namespace {

thread_local std::vector<collectives::CudaStream*> streams;  // indexed by device

}  // namespace

collectives::CudaStream* current_stream(int device) {
  const auto index = static_cast<std::size_t>(device);
  return index < streams.size() ? streams[index] : nullptr;
}

void set_current_stream(int device, collectives::CudaStream* stream) {
  const auto index = static_cast<std::size_t>(device);
  if (index >= streams.size()) streams.resize(index + 1);
  streams[index] = stream;
}

}  // namespace ddp::runtime
