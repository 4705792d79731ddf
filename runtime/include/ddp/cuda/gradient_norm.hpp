// SPDX-License-Identifier: BSD-3-Clause
/// @file
/// Clipping on a GPU: the norm of gradients, and a limit for it, without a host that waits.
///
///     ddp::cuda::GradientNorm norm(optimizer.parameters());   // once
///     for (;;) {
///       ...                                                   // gradients, averaged
///       norm.clip(1);                                         // kernels on the current stream
///       optimizer.step();
///       if (step % 100 == 0) std::printf("%g\n", norm.value());  // here the host waits
///     }
#pragma once

#include <cstddef>
#include <memory>
#include <vector>

#include "ddp/buffer.hpp"
#include "ddp/cuda/parameters.hpp"
#include "ddp/ddp.h"
#include "ddp/error.hpp"
#include "ddp/parameter.hpp"
#include "ddp/process_group.hpp"
#include "ddp/work.hpp"

namespace ddp::cuda {

/// The norm of all gradients as one vector, in the memory of a GPU. Sums are computed in 64 bits, in an order that
/// depends on the parameters only, so ranks with the same gradients get the same bits; ddp::clip_grad_norm() adds in
/// another order. One thread at a time.
class GradientNorm {
 public:
  /// Prepares for parameters whose memory stays. Parameters without a gradient are left out. Throws Error:
  /// Status::InvalidArgument for one that is not on the GPU, Status::System where libddp has no kernels. The host
  /// waits.
  explicit GradientNorm(const std::vector<Parameter>& parameters) : GradientNorm(ProcessGroup(), parameters, 1) {}
  /// Prepares for gradients of which each rank of the group has a share; clip() is then a collective.
  GradientNorm(ProcessGroup group, const std::vector<Parameter>& share)
      : GradientNorm(group, share, static_cast<std::size_t>(group.size())) {}

  /// Scales all gradients so that their norm is at most max_norm. norm_type is 2, 1, kInfinityNorm, or any other number
  /// above 0. An infinite norm makes the gradients 0, one that is not a number makes all of them NaN. Source:
  /// torch.nn.utils.clip_grad_norm_.
  void clip(double max_norm, double norm_type = 2) {
    ddp::detail::check(ddp_cuda_norm_measure(norm_.get(), norm_type));
    if (shares_ > 1) gather();
    ddp::detail::check(ddp_cuda_norm_clip(norm_.get(), max_norm));
  }
  /// Returns the norm from before the last clip(). The host waits for the current stream.
  double value() const {
    double value = 0;
    ddp::detail::check(ddp_cuda_norm_read(norm_.get(), &value));
    return value;
  }

 private:
  struct Deleter {
    void operator()(ddp_cuda_norm* norm) const { ddp_cuda_norm_destroy(norm); }
  };

  GradientNorm(ProcessGroup group, const std::vector<Parameter>& parameters, std::size_t shares)
      : group_(group), shares_(shares), device_(detail::device_of("GradientNorm", parameters)) {
    const std::vector<ddp_cuda_tensor> tensors = detail::gradients_of(parameters);
    ddp_cuda_norm* made = nullptr;
    ddp::detail::check(ddp_cuda_norm_create(device_, tensors.data(), tensors.size(), shares, &made));
    norm_.reset(made);
  }

  // Not a reduction: ReduceOp::Max of a NaN and a number might be the number.
  void gather() {
    void* own = nullptr;
    void* all = nullptr;
    ddp::detail::check(ddp_cuda_norm_addresses(norm_.get(), &own, &all));
    const Device gpu = {DeviceKind::Cuda, device_};
    group_.all_gather(Buffer(own, 1, DType::Float64, gpu), Buffer(all, shares_, DType::Float64, gpu));
  }

  ProcessGroup group_;
  std::size_t shares_;
  int device_;
  std::unique_ptr<ddp_cuda_norm, Deleter> norm_;
};

}  // namespace ddp::cuda
