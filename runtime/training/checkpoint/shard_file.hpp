// SPDX-License-Identifier: BSD-3-Clause
// What one rank writes of a checkpoint: whole tensors and slices of tensors, in one safetensors file.
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
  const void* data = nullptr;  // the caller's, or a copy
  std::uint64_t bytes = 0;
};
using MetadataEntries = std::vector<std::pair<std::string, std::string>>;

// What a shard is to have. Throws rendezvous::Error{InvalidArgument} for what could not be written.
std::vector<TensorSlice> take_slices(std::span<const ddp_tensor_slice> slices);
MetadataEntries take_metadata(std::span<const ddp_metadata_entry> metadata);

// Writes FOLDER/NAME to the disk; its name is there once the folder is fsynced. In it a slice is called as to_string()
// says, "w[0:2, 0:3]". The record is of this file alone. written counts along, in bytes of tensors.
CheckpointRecord write_shard(const std::string& folder, const std::string& name, std::span<const TensorSlice> slices,
                             const MetadataEntries& metadata, std::atomic<std::uint64_t>& written);

}  // namespace ddp::runtime
