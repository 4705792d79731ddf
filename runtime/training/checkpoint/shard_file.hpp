// SPDX-License-Identifier: BSD-3-Clause
// The file that one rank writes for a checkpoint: whole tensors and slices of tensors, in the
// safetensors format.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "ddp/ddp.h"
#include "runtime/training/checkpoint/record.hpp"
#include "runtime/training/tensor_file/tensor_box.hpp"

namespace ddp::runtime {

struct TensorSlice {
  std::string name;
  std::int32_t dtype = DDP_FLOAT32;
  Box box;
  Shape whole_shape;
  const void* data = nullptr;  // the caller's memory, or a copy on the host
  std::uint64_t bytes = 0;
  ddp_device device = {DDP_CPU, 0};  // where the caller's memory is
};
inline bool is_on_gpu(const TensorSlice& slice) { return slice.device.kind == DDP_CUDA; }
using MetadataEntries = std::vector<std::pair<std::string, std::string>>;

// Check the caller's arguments and return them as values, slices in the order of the file. Throw
// rendezvous::Error{InvalidArgument}.
std::vector<TensorSlice> take_slices(std::span<const ddp_tensor_slice> slices);
MetadataEntries take_metadata(std::span<const ddp_metadata_entry> metadata);

// Writes FOLDER/NAME to the disk; the name itself is durable once the folder is fsynced. A slice's
// name in the file ends in its box: "w[0:2, 0:3]". Returns a record of this file alone. Adds the
// bytes of tensors to `written` as they are written.
CheckpointRecord write_shard(const std::string& folder, const std::string& name, std::span<const TensorSlice> slices,
                             const MetadataEntries& metadata, std::atomic<std::uint64_t>& written);

}  // namespace ddp::runtime
