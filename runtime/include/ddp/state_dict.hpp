// SPDX-License-Identifier: BSD-3-Clause
/// @file
/// State dictionaries: the values of plain parameters as named tensors, saved and loaded in one call.
///
///     ddp::save_parameters("model.safetensors", parameters);   // on one rank
///     ddp::load_parameters("model.safetensors", parameters);   // on all ranks, or before DistributedDataParallel
#pragma once

#include <algorithm>
#include <cstdint>
#include <string>
#include <vector>

#include "ddp/buffer.hpp"
#include "ddp/checkpoint.hpp"
#include "ddp/error.hpp"
#include "ddp/parameter.hpp"

namespace ddp {

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
