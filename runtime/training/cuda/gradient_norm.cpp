// SPDX-License-Identifier: BSD-3-Clause
#include "runtime/training/cuda/gradient_norm.hpp"

#include "rendezvous/base/error.hpp"
#include "runtime/device/current_stream.hpp"
#include "runtime/training/optim/gradient_math.hpp"

namespace ddp::runtime {

GradientNorm::GradientNorm(int device, const std::vector<ddp_cuda_tensor>& tensors, std::size_t shares)
    : kernels_(Kernels::of(device)),
      shares_(shares),
      lanes_(kernels_->device(), (kernels::kLanes + 2 * kernels::kLanes / kernels::kCombined) * sizeof(double)),
      sums_(kernels_->device(), (shares + 3) * sizeof(double)) {
  if (shares == 0) rendezvous::invalid_argument("norm: 0 shares");
  set_tensors(tensors);
}

void GradientNorm::set_tensors(const std::vector<ddp_cuda_tensor>& tensors) {
  std::vector<kernels::TensorEntry> entries;
  for (const ddp_cuda_tensor& tensor : tensors) entries.push_back(entry_of("norm", tensor));
  list_ = std::make_unique<TensorList>(kernels_, entries);
}

void GradientNorm::measure(double norm_type) {
  const Norm norm = norm_of(norm_type);
  norm_type_ = norm_type;
  collectives::CudaStream* stream = current_stream(kernels_->device().index());
  auto* lanes = static_cast<double*>(lanes_.get());
  double* own = shares_ == 1 ? powers_of_shares() : own_powers();
  kernels_->launch<kernel::add_powers>(kernels::kNormBlocks, {list_->table(), lanes, norm_type, norm}, stream);
  for (std::uint32_t left = kernels::kLanes; left > 1;) {
    const std::uint32_t sums = left / kernels::kCombined;
    double* to = sums == 1 ? own : lanes + left;
    const std::uint32_t blocks = (sums + kernels::kThreads - 1) / kernels::kThreads;
    kernels_->launch<kernel::combine>(blocks, {lanes, to, sums, norm}, stream);
    lanes = to;
    left = sums;
  }
}

void GradientNorm::clip(double max_norm) {
  if (norm_type_ == 0) rendezvous::invalid_argument("clip: the norm was not measured");
  collectives::CudaStream* stream = current_stream(kernels_->device().index());
  kernels_->launch<kernel::clip_factor>(
      1, {powers_of_shares(), shares_, norm(), max_norm, norm_type_, norm_of(norm_type_)}, stream);
  if (list_->blocks() > 0) kernels_->launch<kernel::clip>(list_->blocks(), {list_->table(), norm()}, stream);
}

double GradientNorm::read() const {
  double result = 0;
  kernels_->device().download(&result, norm(), sizeof result, current_stream(kernels_->device().index()));
  return result;
}

}  // namespace ddp::runtime
