// SPDX-License-Identifier: BSD-3-Clause
#include "runtime/training/cuda/tensor_list.hpp"

#include <algorithm>
#include <climits>

#include "collectives/element_types.hpp"
#include "rendezvous/base/error.hpp"
#include "runtime/base/buffer.hpp"
#include "runtime/device/current_stream.hpp"

namespace ddp::runtime {
namespace {

using collectives::DeviceMemory;
using kernels::Chunk;
using kernels::TensorEntry;
using kernels::Type;
using rendezvous::invalid_argument;

std::vector<Chunk> chunks_of(const std::vector<TensorEntry>& tensors) {
  std::vector<Chunk> chunks;
  for (std::size_t t = 0; t < tensors.size(); ++t) {
    for (std::uint64_t first = 0; first < tensors[t].count; first += kernels::kChunkElements) {
      const std::uint64_t count = std::min<std::uint64_t>(kernels::kChunkElements, tensors[t].count - first);
      chunks.push_back({first, static_cast<std::uint32_t>(t), static_cast<std::uint32_t>(count)});
    }
  }
  return chunks;
}

template <typename T>
std::unique_ptr<DeviceMemory> uploaded(const collectives::CudaDevice& device, const std::vector<T>& values) {
  const std::size_t bytes = values.size() * sizeof(T);
  auto memory = std::make_unique<DeviceMemory>(device, bytes);
  device.upload(memory->get(), values.data(), bytes, current_stream(device.index()));
  return memory;
}

Type type_of(const std::string& what, std::int32_t dtype) {
  if (!collectives::is_floating_point(dtype)) {
    invalid_argument(what + ": works on floating point, not on " + dtype_name(dtype));
  }
  return static_cast<Type>(dtype);
}

}  // namespace

TensorList::TensorList(const std::shared_ptr<const Kernels>& kernels, const std::vector<TensorEntry>& tensors) {
  const std::vector<Chunk> chunks = chunks_of(tensors);
  if (chunks.empty()) return;
  kernels->device().refuse_in_capture(current_stream(kernels->device().index()),
                                      "sending a list of tensors to the GPU: take the first step before");
  tensors_ = uploaded(kernels->device(), tensors);
  chunks_ = uploaded(kernels->device(), chunks);
  table_ = {static_cast<const TensorEntry*>(tensors_->get()), static_cast<const Chunk*>(chunks_->get()), chunks.size()};
}

unsigned TensorList::blocks() const {
  return static_cast<unsigned>(std::min<std::uint64_t>(table_.chunk_count, INT_MAX));
}

TensorEntry entry_of(const std::string& what, const ddp_cuda_tensor& tensor) {
  check_elements(what.c_str(), tensor.grad, tensor.count, tensor.dtype);
  const Type type = type_of(what, tensor.dtype);
  return {tensor.value, tensor.grad, {tensor.states[0], tensor.states[1]}, tensor.count, type, type, tensor.group, 0};
}

TensorEntry pair_of(const std::string& what, int device, const ddp_buffer& from, const ddp_buffer& to) {
  for (const ddp_buffer* buffer : {&from, &to}) {
    check_elements(what.c_str(), buffer->data, buffer->count, buffer->dtype);
    if (buffer->device.kind == DDP_CUDA && buffer->device.index == device) continue;
    invalid_argument(what + ": memory that is not on cuda:" + std::to_string(device));
  }
  if (from.count != to.count) {
    invalid_argument(what + ": from " + std::to_string(from.count) + " elements to " + std::to_string(to.count));
  }
  if (from.dtype != to.dtype && from.dtype != DDP_FLOAT32 && to.dtype != DDP_FLOAT32) {
    invalid_argument(what + ": not from " + dtype_name(from.dtype) + " to " + dtype_name(to.dtype) +
                     ": convert through float32");
  }
  return {from.data, to.data, {nullptr, nullptr}, from.count, type_of(what, from.dtype), type_of(what, to.dtype), 0, 0};
}

}  // namespace ddp::runtime
