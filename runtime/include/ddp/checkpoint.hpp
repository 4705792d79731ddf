// SPDX-License-Identifier: BSD-3-Clause
/// @file
/// Checkpoints: one file in the safetensors format, or a folder in which all ranks save a training's steps. State
/// dictionaries: the values of plain parameters as named tensors, saved and loaded in one call.
///
///     ddp::save_parameters("model.safetensors", parameters);   // on one rank
///     ddp::load_parameters("model.safetensors", parameters);   // on all ranks, or before DistributedDataParallel
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <initializer_list>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "ddp/buffer.hpp"
#include "ddp/ddp.h"
#include "ddp/error.hpp"
#include "ddp/parameter.hpp"
#include "ddp/process_group.hpp"

namespace ddp {

namespace detail {
struct CheckpointDeleter {
  void operator()(ddp_checkpoint* checkpoint) const { ddp_checkpoint_close(checkpoint); }
};
struct CheckpointFolderDeleter {
  void operator()(ddp_checkpoint_folder* folder) const { ddp_checkpoint_folder_destroy(folder); }
};
}  // namespace detail

/// A named tensor to be saved. Never owns its memory.
struct Tensor {
  std::string name;                 ///< unique in its file
  const void* data = nullptr;       ///< as many elements as the shape says, row-major
  DType dtype = DType::Float32;     ///< type of each element
  std::vector<std::int64_t> shape;  ///< an empty one is a scalar
  Device device = {};               ///< where data is

  /// Returns the struct of ddp.h, which points into this one.
  ddp_tensor c() const {
    return {name.c_str(), data, static_cast<std::int32_t>(dtype), shape.data(), shape.size(), device.c()};
  }
};

/// The part of a tensor that a rank saves. Never owns its memory.
struct TensorSlice {
  Tensor part;                            ///< the elements that are here, under the name of the whole tensor
  std::vector<std::int64_t> offset;       ///< index of the first element in each dimension of the tensor
  std::vector<std::int64_t> whole_shape;  ///< shape of the whole tensor

  /// Saves the whole tensor.
  TensorSlice(const Tensor& whole) : part(whole), offset(whole.shape.size()), whole_shape(whole.shape) {}  // NOLINT
  /// Saves a slice.
  TensorSlice(Tensor part_, std::vector<std::int64_t> offset_, std::vector<std::int64_t> whole_shape_)
      : part(std::move(part_)), offset(std::move(offset_)), whole_shape(std::move(whole_shape_)) {}
};

/// Everything that a rank saves: tensors, slices, or both.
class TensorSlices {
 public:
  /// Saves nothing.
  TensorSlices() = default;
  /// Saves whole tensors.
  TensorSlices(std::initializer_list<Tensor> tensors) : all_(tensors.begin(), tensors.end()) {}
  /// Saves whole tensors.
  TensorSlices(const std::vector<Tensor>& tensors) : all_(tensors.begin(), tensors.end()) {}  // NOLINT: the same
  /// Saves slices, and whole tensors with them.
  TensorSlices(std::initializer_list<TensorSlice> slices) : all_(slices) {}
  /// Saves slices.
  TensorSlices(std::vector<TensorSlice> slices) : all_(std::move(slices)) {}  // NOLINT: the same

  /// Returns the structs of ddp.h, which point into this one.
  std::vector<ddp_tensor_slice> c() const {
    std::vector<ddp_tensor_slice> c;
    for (const TensorSlice& each : all_) {
      const std::size_t rank = each.part.shape.size();
      if (each.offset.size() != rank || each.whole_shape.size() != rank) {
        throw Error(Status::InvalidArgument, each.part.name +
                                                 ": offset and whole_shape need one entry for each of its " +
                                                 std::to_string(rank) + " dimensions");
      }
      c.push_back({each.part.c(), each.offset.data(), each.whole_shape.data()});
    }
    return c;
  }

 private:
  std::vector<TensorSlice> all_;
};

/// Text that is saved together with the tensors: keys and values.
using Metadata = std::vector<std::pair<std::string, std::string>>;

namespace detail {

inline std::vector<ddp_metadata_entry> c_metadata(const Metadata& metadata) {
  std::vector<ddp_metadata_entry> c;
  for (const auto& [key, value] : metadata) c.push_back({key.c_str(), value.c_str()});
  return c;
}

}  // namespace detail

/// Writes one safetensors file: under a temporary name, with fsync and rename, so that a crash
/// leaves the previous file or the new one. Call it on one rank, and let the others wait, for
/// example in a barrier. Any thread. Throws Error: Status::InvalidArgument for a name that is empty
/// or given twice, Status::System if the file cannot be written.
inline void save_checkpoint(const std::string& path, const std::vector<Tensor>& tensors, const Metadata& metadata) {
  std::vector<ddp_tensor> c_tensors;
  for (const Tensor& each : tensors) c_tensors.push_back(each.c());
  const auto c_metadata = detail::c_metadata(metadata);
  detail::check(
      ddp_checkpoint_save(path.c_str(), c_tensors.data(), c_tensors.size(), c_metadata.data(), c_metadata.size()));
}

/// Returns the tensors that this rank should save, of tensors that every rank has, so that each
/// saves about as many bytes. Every rank gives the same tensors in the same order.
inline std::vector<Tensor> share_of(const std::vector<Tensor>& tensors, const ProcessGroup& group) {
  const auto bytes_of = [](const Tensor& tensor) {
    std::size_t bytes = element_size(tensor.dtype);
    for (const std::int64_t n : tensor.shape) bytes *= static_cast<std::size_t>(n);
    return bytes;
  };
  double all = 0;
  for (const Tensor& tensor : tensors) all += static_cast<double>(bytes_of(tensor));
  std::vector<Tensor> share;
  double before = 0;
  for (const Tensor& tensor : tensors) {  // a tensor is of the rank in whose part its middle lies
    const double bytes = static_cast<double>(bytes_of(tensor));
    const double middle = all > 0 ? (before + bytes / 2) / all : 0;
    // Empty tensors at the end have their middle at the very end: they are the last rank's.
    const int owner = std::min(static_cast<int>(middle * group.size()), group.size() - 1);
    if (owner == group.rank()) share.push_back(tensor);
    before += bytes;
  }
  return share;
}

/// A checkpoint opened for reading: a safetensors file of any program, or a step of a
/// CheckpointFolder. Any thread may read.
class Checkpoint {
 public:
  /// Opens a file, or a step's folder, and validates header and record. Throws Error with
  /// Status::Corrupt if something is truncated or malformed.
  explicit Checkpoint(const std::string& path) {
    ddp_checkpoint* checkpoint = nullptr;
    detail::check(ddp_checkpoint_open(path.c_str(), &checkpoint));
    checkpoint_.reset(checkpoint);
  }
  /// Takes ownership of a checkpoint of ddp.h.
  explicit Checkpoint(ddp_checkpoint* checkpoint) : checkpoint_(checkpoint) {}
  /// Returns the step of the checkpoint; -1 for a plain file.
  std::int64_t step() const { return ddp_checkpoint_step(checkpoint_.get()); }
  /// Returns the value of a metadata key, if there is one.
  std::optional<std::string> metadata(const std::string& key) const {
    const char* value = ddp_checkpoint_metadata(checkpoint_.get(), key.c_str());
    return value ? std::optional<std::string>(value) : std::nullopt;
  }
  /// Returns all tensors in the order of names, without data. Those of a type that libddp does not
  /// have, such as F8_E4M3, are left out. The file's BOOL is DType::UInt8, bytes of 0 and 1.
  std::vector<Tensor> tensors() const {
    std::vector<Tensor> all;
    for (std::size_t i = 0; i < ddp_checkpoint_tensor_count(checkpoint_.get()); ++i) {
      ddp_tensor c;
      detail::check(ddp_checkpoint_tensor(checkpoint_.get(), i, &c));
      if (c.dtype < 0) continue;
      all.push_back({c.name, nullptr, static_cast<DType>(c.dtype), {c.shape, c.shape + c.rank}, {}});
    }
    return all;
  }
  /// Copies a tensor into buffer, as many elements as its shape says. Throws Error: Status::Mismatch
  /// if its type or shape is not the one asked for, Status::Corrupt if there is no such tensor or
  /// its bytes are not what was written.
  void read(const std::string& name, Buffer buffer, const std::vector<std::int64_t>& shape) const {
    detail::check(ddp_checkpoint_read(checkpoint_.get(), name.c_str(), buffer.c(), shape.data(), shape.size()));
  }
  /// Copies a slice of a tensor into buffer: shape[d] elements starting at offset[d] in each
  /// dimension d, however the tensor was sliced when it was saved. Reads no more than it needs.
  void read_slice(const std::string& name, Buffer buffer, const std::vector<std::int64_t>& offset,
                  const std::vector<std::int64_t>& shape) const {
    if (offset.size() != shape.size()) {
      throw Error(Status::InvalidArgument, name + ": offset and shape differ in their number of dimensions");
    }
    detail::check(ddp_checkpoint_read_slice(checkpoint_.get(), name.c_str(), buffer.c(), offset.data(), shape.data(),
                                            shape.size()));
  }
  /// Reads everything and compares it with its checksums. Throws Error: Status::Corrupt names the file and the tensor
  /// that is not as it was written. A plain file has no checksums.
  void verify() const { detail::check(ddp_checkpoint_verify(checkpoint_.get())); }

 private:
  std::unique_ptr<ddp_checkpoint, detail::CheckpointDeleter> checkpoint_;
};

/// How a CheckpointFolder is used.
struct CheckpointOptions {
  std::int64_t keep_last = 0;              ///< number of steps to keep after each save, of those up to it; 0: all
  std::int64_t keep_every = 0;             ///< multiples of this number are kept as well; 0: none
  Milliseconds timeout = kDefaultTimeout;  ///< for a save in flight, and for other ranks; the group's by default
  bool read_only = false;                  ///< whether nothing is created or saved here
  bool follow_copies = true;               ///< whether save_async() calls PendingSave::follow()
};

/// A save in flight. It is a plain value, valid as long as its folder; dropping it neither waits
/// nor cancels.
class PendingSave {
 public:
  /// Wraps a save of ddp.h.
  PendingSave(ddp_checkpoint_folder* folder, std::uint64_t save) : folder_(folder), save_(save) {}
  /// Waits until the save is on the disk. Throws its failure; after Status::Timeout the save goes on.
  void wait(Milliseconds timeout = kDefaultTimeout) const {
    detail::check(ddp_checkpoint_folder_wait(folder_, save_, timeout.count()));
  }
  /// Makes this thread's current stream of a GPU wait until the tensors there are copied; the host does not wait. Call
  /// it before work that changes them, if CheckpointOptions::follow_copies is off.
  void follow() const { detail::check(ddp_checkpoint_folder_follow(folder_)); }
  /// Returns whether the save has ended. Neither waits nor throws.
  bool is_completed() const { return ddp_checkpoint_folder_has_ended(folder_, save_) != 0; }

 private:
  ddp_checkpoint_folder* folder_;
  std::uint64_t save_;
};

/// All checkpoints of a training, on a file system that all ranks share. Each step is a folder of
/// its own, which gets its name once all of it is on the disk: whatever process is killed at
/// whatever moment, what was saved before can be read.
///
/// save(), save_async(), latest() and latest_valid() are collective over the group; they run in a
/// group that belongs to the folder, so they wait for nothing else. If one rank fails, all throw
/// its error, and what was saved before is unchanged; if one is lost or late, later saves fail too.
/// One thread at a time. Destroy it before its session.
class CheckpointFolder {
 public:
  /// Opens a folder for this process alone.
  explicit CheckpointFolder(const std::string& path, const CheckpointOptions& options = {})
      : CheckpointFolder(static_cast<ddp_group*>(nullptr), path, options) {}
  /// Opens a folder for the ranks of a group, and creates it if necessary. Collective. Throws Error
  /// with Status::System if it cannot be written to.
  CheckpointFolder(const ProcessGroup& group, const std::string& path, const CheckpointOptions& options = {})
      : CheckpointFolder(member(group, path), path, options) {}

  /// Saves a step, and returns when it is on the disk. Each rank gives what it writes: everything on
  /// rank 0 and nothing elsewhere, share_of() what all have, or its own slices. Together they make
  /// every tensor whole, with each element once. Rank 0's metadata is saved. A step of the same
  /// number is replaced.
  void save(std::int64_t step, const TensorSlices& slices, const Metadata& metadata = {}) {
    const auto c_slices = slices.c();
    const auto c_metadata = detail::c_metadata(metadata);
    detail::check(ddp_checkpoint_folder_save(folder_.get(), step, c_slices.data(), c_slices.size(), c_metadata.data(),
                                             c_metadata.size()));
  }
  /// Starts saving a step: copies the tensors and returns, and a thread writes the copy. Waits for
  /// the save before, and throws its failure if no wait() has thrown it. Tensors on a GPU are copied
  /// to pinned memory behind the work on the current stream, on another stream, for which the
  /// current one waits; the host does not. With CheckpointOptions::follow_copies off, the next step
  /// runs beside the copies until PendingSave::follow(). Source: torch.distributed.checkpoint.async_save.
  PendingSave save_async(std::int64_t step, const TensorSlices& slices, const Metadata& metadata = {}) {
    const auto c_slices = slices.c();
    const auto c_metadata = detail::c_metadata(metadata);
    std::uint64_t save = 0;
    detail::check(ddp_checkpoint_folder_save_async(folder_.get(), step, c_slices.data(), c_slices.size(),
                                                   c_metadata.data(), c_metadata.size(), &save));
    return PendingSave(folder_.get(), save);
  }

  /// Returns the saved steps, in ascending order. Not collective.
  std::vector<std::int64_t> steps() const {
    std::vector<std::int64_t> steps;
    std::size_t count = 0;
    do {
      steps.resize(count);
      detail::check(ddp_checkpoint_folder_steps(folder_.get(), steps.data(), steps.size(), &count));
    } while (count > steps.size());
    steps.resize(count);
    return steps;
  }
  /// Opens the checkpoint of a step. Not collective.
  Checkpoint open(std::int64_t step) const {
    ddp_checkpoint* checkpoint = nullptr;
    detail::check(ddp_checkpoint_folder_open_step(folder_.get(), step, &checkpoint));
    return Checkpoint(checkpoint);
  }
  /// Opens the newest checkpoint, the same on every rank, if there is one. Collective. Its bytes are
  /// compared with their checksums when they are read.
  std::optional<Checkpoint> latest() { return open_latest(false, nullptr); }
  /// Opens the newest checkpoint in which every byte is as it was written: it first reads all of
  /// them, each rank some of the files, and calls skipped(why) for each newer checkpoint that is
  /// damaged. Throws Error with Status::Corrupt if there are checkpoints but none is whole.
  /// Collective.
  std::optional<Checkpoint> latest_valid(const std::function<void(const std::string&)>& skipped = nullptr) {
    return open_latest(true, skipped);
  }

 private:
  static ddp_group* member(const ProcessGroup& group, const std::string& path) {
    if (group) return group.c();
    throw Error(Status::InvalidArgument, "checkpoints in " + path + ": this process is no member of the group");
  }
  CheckpointFolder(ddp_group* group, const std::string& path, const CheckpointOptions& options) {
    const ddp_checkpoint_folder_options c = {sizeof(ddp_checkpoint_folder_options),
                                             options.keep_last,
                                             options.keep_every,
                                             options.timeout.count(),
                                             options.read_only ? 1 : 0,
                                             options.follow_copies ? 0 : 1};
    ddp_checkpoint_folder* folder = nullptr;
    detail::check(ddp_checkpoint_folder_create(group, path.c_str(), &c, &folder));
    folder_.reset(folder);
  }
  std::optional<Checkpoint> open_latest(bool verify, const std::function<void(const std::string&)>& skipped) {
    detail::Texts why;
    ddp_checkpoint* checkpoint = nullptr;
    const ddp_status status = ddp_checkpoint_folder_open_latest(folder_.get(), verify ? 1 : 0, why.sink(), &checkpoint);
    if (skipped) {
      for (const std::string& each : why.all()) skipped(each);
    }
    detail::check(status);
    return checkpoint != nullptr ? std::optional<Checkpoint>(Checkpoint(checkpoint)) : std::nullopt;
  }

  std::unique_ptr<ddp_checkpoint_folder, detail::CheckpointFolderDeleter> folder_;
};

namespace detail {

inline std::vector<std::int64_t> shape_of(const Parameter& p) {
  return p.shape.empty() ? std::vector<std::int64_t>{static_cast<std::int64_t>(p.count)} : p.shape;
}

inline std::string names_of(const char* what, const std::vector<std::string>& names) {
  std::string text;
  for (const std::string& name : names) text += (text.empty() ? "" : ", ") + name;
  return text.empty() ? "" : std::string("; ") + what + ": " + text;
}

// Throws Error with Status::Mismatch, which names the tensors, unless a checkpoint has exactly these.
inline void require_same(const std::string& path, const std::vector<Tensor>& found, const std::vector<Tensor>& wanted) {
  std::vector<std::string> missing, unexpected, different;
  const auto of = [](const std::string& name, const std::vector<Tensor>& tensors) {
    return std::find_if(tensors.begin(), tensors.end(), [&](const Tensor& t) { return t.name == name; });
  };
  for (const Tensor& each : wanted) {
    const auto tensor = of(each.name, found);
    if (tensor == found.end()) {
      missing.push_back(each.name);
    } else if (tensor->dtype != each.dtype || tensor->shape != each.shape) {
      different.push_back(each.name);
    }
  }
  for (const Tensor& t : found) {
    if (of(t.name, wanted) == wanted.end()) unexpected.push_back(t.name);
  }
  if (missing.empty() && unexpected.empty() && different.empty()) return;
  throw Error(Status::Mismatch, path + ": these are not the model's parameters" + names_of("missing", missing) +
                                    names_of("unexpected", unexpected) +
                                    names_of("of another type or shape", different));
}

}  // namespace detail

/// Returns the parameters' values as tensors, where they lie: for save_checkpoint() together with an optimizer's state,
/// or for CheckpointFolder::save(). A name is the prefix and the parameter's name. Source:
/// torch.nn.Module.state_dict.
inline std::vector<Tensor> state_dict(const std::vector<Parameter>& parameters, const std::string& prefix = {}) {
  std::vector<Tensor> tensors;
  for (const Parameter& p : parameters) {
    tensors.push_back({prefix + p.name, p.value, p.dtype, detail::shape_of(p), p.device});
  }
  return tensors;
}

/// Copies values of a checkpoint into the parameters. They are found by name, as state_dict() makes it; the checkpoint
/// may have other tensors too. Throws what Checkpoint::read() throws; the parameters before the one in question have
/// their new values then. Source: torch.nn.Module.load_state_dict(strict=False), but no parameter may be missing.
inline void load_state_dict(const std::vector<Parameter>& parameters, const Checkpoint& checkpoint,
                            const std::string& prefix = {}) {
  for (const Parameter& p : parameters) {
    checkpoint.read(prefix + p.name, detail::value_of(p), detail::shape_of(p));
  }
}

/// Saves the parameters' values in a safetensors file. Call it on one rank, as save_checkpoint(), whose errors it
/// throws. Source: torch.save(model.state_dict(), path).
inline void save_parameters(const std::string& path, const std::vector<Parameter>& parameters,
                            const Metadata& metadata = {}) {
  save_checkpoint(path, state_dict(parameters), metadata);
}

/// Loads the values that save_parameters(), or any other program, has saved in a safetensors file. Throws Error with
/// Status::Mismatch, which names the tensors and changes nothing, if the file lacks some of the parameters or has
/// others, or if a type or shape differs. Source: model.load_state_dict(torch.load(path)).
inline void load_parameters(const std::string& path, const std::vector<Parameter>& parameters) {
  const Checkpoint file(path);
  detail::require_same(path, file.tensors(), state_dict(parameters));
  load_state_dict(parameters, file);
}

}  // namespace ddp
