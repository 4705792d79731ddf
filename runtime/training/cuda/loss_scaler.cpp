// SPDX-License-Identifier: BSD-3-Clause
#include "runtime/training/cuda/loss_scaler.hpp"

#include "runtime/device/current_stream.hpp"

namespace ddp::runtime {

using kernels::ScalerState;

LossScaler::LossScaler(int device, const ScalerState& state)
    : kernels_(Kernels::of(device)), memory_(kernels_->device(), sizeof(ScalerState)) {
  kernels_->device().upload(memory_.get(), &state, sizeof state, current_stream(device));
}

void LossScaler::unscale(const TensorList& pairs) const {
  if (pairs.blocks() == 0) return;
  kernels_->launch<kernel::unscale>(pairs.blocks(), {pairs.table(), state()}, current_stream(device()));
}

void LossScaler::update() const { kernels_->launch<kernel::update_scaler>(1, {state()}, current_stream(device())); }

void LossScaler::write(const ScalerState& state_to_set) const {
  kernels_->launch<kernel::set_scaler>(1, {state(), state_to_set}, current_stream(device()));
}

ScalerState LossScaler::read() const {
  ScalerState result = {};
  kernels_->device().download(&result, memory_.get(), sizeof result, current_stream(device()));
  return result;
}

}  // namespace ddp::runtime
