// SPDX-License-Identifier: BSD-3-Clause
/// @file
/// Checkpoints: one file in the safetensors format.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "ddp/buffer.hpp"
#include "ddp/ddp.h"
#include "ddp/error.hpp"

namespace ddp {

namespace detail {
struct CheckpointDeleter {
  void operator()(ddp_checkpoint* checkpoint) const { ddp_checkpoint_close(checkpoint); }
};
}  // namespace detail

/// A named tensor to be saved. Never owns.
struct Tensor {
  std::string name;                 ///< unique in its file
  const void* data = nullptr;       ///< as many elements as the shape says, row-major
  DType dtype = DType::Float32;     ///< of each element
  std::vector<std::int64_t> shape;  ///< an empty one is a scalar
};

/// Lines of text that a checkpoint carries beside its tensors: keys and values.
using Metadata = std::vector<std::pair<std::string, std::string>>;

/// Writes one safetensors file: temporary name, fsync, rename, so that a crash leaves the previous file or the new one.
/// Call it on one rank, and let the others wait, for example in a barrier. Any thread. Throws Error:
/// DDP_INVALID_ARGUMENT for a name that is empty or given twice, DDP_SYSTEM if the file cannot be written.
inline void save_checkpoint(const std::string& path, const std::vector<Tensor>& tensors, const Metadata& metadata) {
  std::vector<ddp_tensor> c_tensors;
  std::vector<ddp_metadata_entry> c_metadata;
  for (const Tensor& t : tensors) {
    c_tensors.push_back({t.name.c_str(), t.data, static_cast<std::int32_t>(t.dtype), t.shape.data(), t.shape.size()});
  }
  for (const auto& [key, value] : metadata) c_metadata.push_back({key.c_str(), value.c_str()});
  detail::check(
      ddp_checkpoint_save(path.c_str(), c_tensors.data(), c_tensors.size(), c_metadata.data(), c_metadata.size()));
}

/// A safetensors file opened for reading, whoever wrote it. Any thread may read.
class Checkpoint {
 public:
  /// Validates the header; throws Error with DDP_CORRUPT if the file is truncated or malformed.
  explicit Checkpoint(const std::string& path) {
    ddp_checkpoint* checkpoint = nullptr;
    detail::check(ddp_checkpoint_open(path.c_str(), &checkpoint));
    checkpoint_.reset(checkpoint);
  }
  /// The value of a key, if there is one.
  std::optional<std::string> metadata(const std::string& key) const {
    const char* value = ddp_checkpoint_metadata(checkpoint_.get(), key.c_str());
    return value ? std::optional<std::string>(value) : std::nullopt;
  }
  /// Copies the tensor into buffer, as many elements as its shape says. Throws Error: DDP_MISMATCH if its type or shape
  /// is not the one asked for, DDP_CORRUPT if there is no such tensor.
  void read(const std::string& name, Buffer buffer, const std::vector<std::int64_t>& shape) const {
    detail::check(ddp_checkpoint_read(checkpoint_.get(), name.c_str(), buffer.c(), shape.data(), shape.size()));
  }

 private:
  std::unique_ptr<ddp_checkpoint, detail::CheckpointDeleter> checkpoint_;
};

}  // namespace ddp
