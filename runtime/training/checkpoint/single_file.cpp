// SPDX-License-Identifier: BSD-3-Clause
#include "runtime/training/checkpoint/single_file.hpp"

#include <algorithm>
#include <memory>
#include <string_view>
#include <vector>

#include "rendezvous/base/error.hpp"
#include "rendezvous/base/new_file.hpp"
#include "runtime/base/buffer.hpp"
#include "runtime/device/host_copy.hpp"
#include "runtime/training/tensor_file/durable_file.hpp"
#include "runtime/training/tensor_file/safetensors.hpp"

namespace ddp::runtime {

using rendezvous::invalid_argument;

void save_checkpoint(const std::string& path, std::span<const ddp_tensor> tensors,
                     std::span<const ddp_metadata_entry> metadata) {
  if (tensors.data() == nullptr && !tensors.empty()) invalid_argument("checkpoint " + path + ": the tensors are null");
  std::vector<ddp_tensor> sorted(tensors.begin(), tensors.end());
  const auto name = [](const ddp_tensor& tensor) {
    return std::string_view(tensor.name != nullptr ? tensor.name : "");
  };
  std::stable_sort(sorted.begin(), sorted.end(), [&](const ddp_tensor& a, const ddp_tensor& b) {
    return lies_before(a.dtype, name(a), b.dtype, name(b));
  });
  const std::string header = make_header(path, sorted, metadata);
  for (const ddp_tensor& tensor : tensors) check_device(tensor.name, tensor.device);
  NewFile file(rendezvous::temporary_name(path));
  file.write(header.data(), header.size());
  std::unique_ptr<HostPieces> pieces;  // for the GPU of the tensor before
  for (const ddp_tensor& tensor : sorted) {
    if (tensor.device.kind == DDP_CPU) {
      file.write(tensor.data, data_bytes(tensor));
      continue;
    }
    if (pieces == nullptr || pieces->device() != tensor.device.index) {
      pieces = std::make_unique<HostPieces>(tensor.device.index);
    }
    pieces->for_each(tensor.data, data_bytes(tensor),
                     [&](const char* bytes, std::size_t size) { file.write(bytes, size); });
  }
  file.replace(path);
}

}  // namespace ddp::runtime
