// SPDX-License-Identifier: BSD-3-Clause
/// @file
/// Modules of libtorch in checkpoints: safetensors files, and the steps of a CheckpointFolder.
///
///     if (session.rank() == 0) ddp::libtorch::save_module(*net, "net.safetensors");
///     ddp::libtorch::load_module(*net, "net.safetensors");                            // on every rank
///
///     ddp::CheckpointFolder folder(session.world(), "checkpoints");
///     if (const auto newest = folder.latest()) ddp::libtorch::load_module(*net, *newest);
///     ddp::libtorch::save_module(*net, folder, step);                                 // each rank writes its share
///
/// The names are those of Python's state_dict(), so that `net.load_state_dict(load_file("net.safetensors"))`
/// reads the file there, and load_module() reads what Python's save_file() has written.
#pragma once

#include <ATen/Functions.h>
#include <ATen/core/Tensor.h>
#include <ATen/core/grad_mode.h>
#include <torch/nn/module.h>

#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "ddp/checkpoint.hpp"
#include "ddp/error.hpp"
#include "ddp/libtorch/tensor.hpp"
#include "ddp/process_group.hpp"
#include "ddp/session.hpp"

namespace ddp::libtorch {

namespace detail {

// A parameter or buffer of a module, under its name in a checkpoint.
struct NamedTensor {
  std::string name;
  at::Tensor tensor;  // the module's

  // Describes it, with a copy of its elements row by row on the host.
  ddp::Tensor c(const at::Tensor& elements) const {
    const void* data = elements.defined() ? elements.data_ptr() : nullptr;
    return {name, data, dtype_of(tensor.scalar_type()), tensor.sizes().vec()};
  }
};

inline std::vector<NamedTensor> state_of(const torch::nn::Module& module, const std::string& prefix) {
  std::vector<NamedTensor> state;
  for (const auto& dictionary : {module.named_parameters(), module.named_buffers()}) {
    for (const auto& named : dictionary) {
      if (named.value().defined()) state.push_back({prefix + named.key(), named.value().detach()});
    }
  }
  return state;
}

// Reads everything before it changes anything.
inline void load(const std::vector<NamedTensor>& state, const Checkpoint& checkpoint) {
  const at::NoGradGuard no_grad;
  std::vector<at::Tensor> values;
  for (const NamedTensor& each : state) {
    values.push_back(at::empty(each.tensor.sizes(), at::TensorOptions().dtype(each.tensor.scalar_type())));
    checkpoint.read(each.name, buffer(values.back()), each.tensor.sizes().vec());
  }
  for (std::size_t i = 0; i < state.size(); ++i) state[i].tensor.copy_(values[i]);
}

}  // namespace detail

/// A module's parameters and buffers as tensors of a checkpoint. Values that are on a GPU, or do not
/// lie row by row, are copied to the host when this object is made; the others stay where they are,
/// so keep the module until the tensors have been saved.
class ModuleState {
 public:
  /// Takes the tensors of a module. A name is the prefix and the module's name for it; a bool becomes a byte. Throws
  /// Error with Status::InvalidArgument for a type of element that libddp does not have.
  explicit ModuleState(const torch::nn::Module& module, const std::string& prefix = {}) {
    for (const detail::NamedTensor& each : detail::state_of(module, prefix)) {
      elements_.push_back(each.tensor.to(at::kCPU).contiguous());
      tensors_.push_back(each.c(elements_.back()));
    }
  }
  /// Returns the tensors, to be saved with others: `folder.save(step, share_of(state.tensors(), group))`.
  const std::vector<ddp::Tensor>& tensors() const { return tensors_; }

 private:
  std::vector<at::Tensor> elements_;
  std::vector<ddp::Tensor> tensors_;
};

/// Saves a module's parameters and buffers in a safetensors file. Call it on one rank, as
/// save_checkpoint(), whose errors it throws. Source: safetensors.torch.save_model.
inline void save_module(const torch::nn::Module& module, const std::string& path, const Metadata& metadata = {}) {
  save_checkpoint(path, ModuleState(module).tensors(), metadata);
}
/// Saves a module as a step of a folder; each rank of the folder's group writes its share. Collective. Returns when it
/// is on the disk. Source: torch.distributed.checkpoint.save.
inline void save_module(const torch::nn::Module& module, CheckpointFolder& folder, std::int64_t step,
                        const Metadata& metadata = {}, const ProcessGroup& group = default_group()) {
  folder.save(step, share_of(ModuleState(module).tensors(), group), metadata);
}
/// Starts saving a module as a step of a folder: copies its values and returns, and a thread writes the copy. More at
/// CheckpointFolder::save_async(). Source: torch.distributed.checkpoint.async_save.
inline PendingSave save_module_async(const torch::nn::Module& module, CheckpointFolder& folder, std::int64_t step,
                                     const Metadata& metadata = {}, const ProcessGroup& group = default_group()) {
  return folder.save_async(step, share_of(ModuleState(module).tensors(), group), metadata);
}

/// Loads what save_module(), or any other program, has saved in a safetensors file, into the module's own memory.
/// Throws Error with Status::Mismatch, which names the tensors and changes nothing, if the file lacks some of the
/// module's or has others, or if a type or shape differs. Source: safetensors.torch.load_model.
inline void load_module(torch::nn::Module& module, const std::string& path) {
  const Checkpoint file(path);
  const auto state = detail::state_of(module, {});
  std::vector<ddp::Tensor> wanted;
  for (const detail::NamedTensor& each : state) wanted.push_back(each.c({}));
  ddp::detail::require_same(path, file.tensors(), wanted);
  detail::load(state, file);
}
/// Loads a module from a checkpoint that may have other tensors too, under names with a prefix. Throws what
/// Checkpoint::read() throws, and changes nothing then.
inline void load_module(torch::nn::Module& module, const Checkpoint& checkpoint, const std::string& prefix = {}) {
  detail::load(detail::state_of(module, prefix), checkpoint);
}

}  // namespace ddp::libtorch
