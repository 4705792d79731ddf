// SPDX-License-Identifier: BSD-3-Clause
// The norm of gradients in device memory, and clipping by it. Sums are in 64 bits. Only the
// list of tensors decides their order, so ranks with equal gradients get equal bits.
#pragma once

#include <cstddef>
#include <memory>
#include <vector>

#include "runtime/training/cuda/tensor_list.hpp"

namespace ddp::runtime {

class GradientNorm {
 public:
  // `shares` is the number of ranks that each have a share of the gradients; 1 if this rank has them all.
  GradientNorm(int device, const std::vector<ddp_cuda_tensor>& tensors, std::size_t shares);

  void set_tensors(const std::vector<ddp_cuda_tensor>& tensors);  // the host waits
  // Sums the powers of this rank's gradients into own_powers().
  void measure(double norm_type);
  double* own_powers() const { return powers_of_shares() + shares_; }
  // The sum of each share, which the caller gathers; with one share the caller need not.
  double* powers_of_shares() const { return static_cast<double*>(sums_.get()); }
  // Scales this rank's gradients so that the norm of all shares is at most max_norm.
  void clip(double max_norm);
  double* norm() const { return own_powers() + 1; }  // from before clip()
  double read() const;                               // the host waits

 private:
  std::shared_ptr<const Kernels> kernels_;
  std::size_t shares_;
  double norm_type_ = 0;  // what the last measure() was given; 0: nothing yet
  collectives::DeviceMemory lanes_;
  collectives::DeviceMemory sums_;  // powers of shares, own powers, norm, factor
  std::unique_ptr<TensorList> list_;
};

}  // namespace ddp::runtime
