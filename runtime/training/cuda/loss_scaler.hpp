// SPDX-License-Identifier: BSD-3-Clause
// The loss scale in device memory, with the rules of torch.amp.GradScaler: gradients are divided by it, overflows are
// noted, and it falls or grows, all in the stream's order.
#pragma once

#include <memory>

#include "runtime/training/cuda/tensor_list.hpp"

namespace ddp::runtime {

class LossScaler {
 public:
  LossScaler(int device, const kernels::ScalerState& state);

  int device() const { return kernels_->device().index(); }
  kernels::ScalerState* state() const { return static_cast<kernels::ScalerState*>(memory_.get()); }
  // Divides `from` of each pair by the scale into `to`, and notes whether a result is not finite.
  void unscale(const TensorList& pairs) const;
  void update() const;  // ends an iteration
  void write(const kernels::ScalerState& state) const;
  kernels::ScalerState read() const;  // the host waits

 private:
  std::shared_ptr<const Kernels> kernels_;
  collectives::DeviceMemory memory_;
};

}  // namespace ddp::runtime
