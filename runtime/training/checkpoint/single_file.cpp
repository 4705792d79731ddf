// SPDX-License-Identifier: BSD-3-Clause
#include "runtime/training/checkpoint/single_file.hpp"

#include "collectives/gpu/cuda_device.hpp"
#include "rendezvous/base/new_file.hpp"
#include "runtime/base/buffer.hpp"
#include "runtime/device/host_copy.hpp"
#include "runtime/training/tensor_file/durable_file.hpp"
#include "runtime/training/tensor_file/safetensors.hpp"

namespace ddp::runtime {
namespace {

void write_data(NewFile& file, const ddp_tensor& tensor) {
  if (tensor.device.kind == DDP_CPU) return file.write(tensor.data, data_bytes(tensor));
  const collectives::CudaDevice device(collectives::cuda_api(), tensor.device.index);
  for_each_piece_on_host(device, tensor.data, data_bytes(tensor),
                         [&](const char* bytes, std::size_t size) { file.write(bytes, size); });
}

}  // namespace

void save_checkpoint(const std::string& path, std::span<const ddp_tensor> tensors,
                     std::span<const ddp_metadata_entry> metadata) {
  const std::string header = make_header(path, tensors, metadata);
  for (const ddp_tensor& tensor : tensors) check_device(tensor.name, tensor.device);
  NewFile file(rendezvous::temporary_name(path));
  file.write(header.data(), header.size());
  for (const ddp_tensor& tensor : tensors) write_data(file, tensor);
  file.replace(path);
}

}  // namespace ddp::runtime
