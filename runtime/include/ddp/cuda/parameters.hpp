// SPDX-License-Identifier: BSD-3-Clause
/// @file
/// Lists of parameters in the memory of a GPU, for the kernels of libddp.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "ddp/buffer.hpp"
#include "ddp/ddp.h"
#include "ddp/error.hpp"
#include "ddp/parameter.hpp"

namespace ddp::cuda::detail {

// Returns the GPU on which all parameters are. Throws Error with Status::InvalidArgument, which begins with `what`, if
// there is none, or if one is elsewhere.
inline int device_of(const std::string& what, const std::vector<Parameter>& parameters) {
  if (parameters.empty()) throw Error(Status::InvalidArgument, what + ": there are no parameters");
  const Device first = parameters.front().device;
  for (const Parameter& p : parameters) {
    if (p.device.kind == DeviceKind::Cuda && p.device.index == first.index) continue;
    throw Error(Status::InvalidArgument,
                what + ": parameter " + p.name + " is not in the memory of the GPU, on which all have to be");
  }
  return first.index;
}

// Returns the gradients that are there, for ddp_cuda_norm_create().
inline std::vector<ddp_cuda_tensor> gradients_of(const std::vector<Parameter>& parameters) {
  std::vector<ddp_cuda_tensor> tensors;
  for (const Parameter& p : parameters) {
    if (p.grad == nullptr) continue;
    tensors.push_back({nullptr, p.grad, {}, p.count, static_cast<std::int32_t>(p.dtype), 0});
  }
  return tensors;
}

struct PairsDeleter {
  void operator()(ddp_cuda_pairs* pairs) const { ddp_cuda_pairs_destroy(pairs); }
};

}  // namespace ddp::cuda::detail
