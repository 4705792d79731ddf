// SPDX-License-Identifier: BSD-3-Clause
/// @file
/// Master weights on a GPU: float32 copies of 16-bit weights, for the optimizer. The change of one step is often too
/// small for 16 bits; in the copies it adds up.
///
///     ddp::cuda::MasterWeights master(parameters);   // float16 or bfloat16 ones on a GPU, and their gradients
///     ddp::AdamW optimizer(master.parameters());
///     for (;;) {
///       backward();                                   // gradients of 16 bits, averaged over the ranks
///       master.read_gradients();                      // or ddp::cuda::GradScaler::unscale(master)
///       optimizer.step();
///       master.write_values();                        // into the model, rounded to the nearest
///     }
#pragma once

#include <cstddef>
#include <memory>
#include <vector>

#include "ddp/buffer.hpp"
#include "ddp/cuda/memory.hpp"
#include "ddp/cuda/parameters.hpp"
#include "ddp/ddp.h"
#include "ddp/error.hpp"
#include "ddp/parameter.hpp"

namespace ddp::cuda {

/// Float32 copies of 16-bit parameters on a GPU, and of their gradients. Other parameters are in parameters() as they
/// were given: the optimizer works on them in place. Its functions put kernels on the current stream; the host does not
/// wait. One thread at a time. Source: apex's master parameters (opt level O2); ddp::MasterWeights on the CPU.
class MasterWeights {
 public:
  /// Copies the values. The parameters' memory must stay; the list need not. Throws Error: Status::InvalidArgument for
  /// a parameter that is not on the GPU, not of floating point or has no gradient; Status::System where libddp has no
  /// kernels. The host waits.
  explicit MasterWeights(const std::vector<Parameter>& parameters)
      : device_(detail::device_of("MasterWeights", parameters)), masters_(parameters) {
    std::size_t bytes = 0;
    for (const Parameter& p : parameters) {
      if (p.grad == nullptr) throw Error(Status::InvalidArgument, "MasterWeights: " + p.name + " has no gradient");
      if (is_copied(p)) bytes += aligned(p.count);
    }
    values_ = Memory(device_, bytes);
    gradients_ = Memory(device_, bytes);
    std::size_t at = 0;
    for (Parameter& p : masters_) {
      if (!is_copied(p)) continue;
      p.value = static_cast<std::byte*>(values_.data()) + at;
      p.grad = static_cast<std::byte*>(gradients_.data()) + at;
      p.dtype = DType::Float32;
      at += aligned(p.count);
    }
    make_pairs(parameters);
    read_values();
  }

  /// Returns the parameters for the optimizer, in the order and with the names of the model's.
  const std::vector<Parameter>& parameters() const { return masters_; }

  /// Copies the model's gradients to those of parameters().
  void read_gradients() { ddp::detail::check(ddp_cuda_multiply(gradient_pairs_.get(), 1)); }
  /// Copies the masters' values, rounded to the nearest, to the model.
  void write_values() { ddp::detail::check(ddp_cuda_convert(to_model_.get())); }
  /// Copies the model's values to the masters, for example after a checkpoint of the model alone was read.
  void read_values() { ddp::detail::check(ddp_cuda_convert(from_model_.get())); }
  /// Returns the pairs of gradients, the model's and the masters', for ddp_cuda_unscale().
  const ddp_cuda_pairs* gradient_pairs() const { return gradient_pairs_.get(); }

 private:
  using Pairs = std::unique_ptr<ddp_cuda_pairs, detail::PairsDeleter>;

  static bool is_copied(const Parameter& p) { return p.dtype == DType::Float16 || p.dtype == DType::BFloat16; }
  // Size of a copy in bytes: as cudaMalloc aligns, so that loads of several elements are possible.
  static std::size_t aligned(std::size_t count) { return (count * sizeof(float) + 255) / 256 * 256; }

  static Pairs pairs(int device, const std::vector<ddp_buffer>& from, const std::vector<ddp_buffer>& to) {
    ddp_cuda_pairs* made = nullptr;
    ddp::detail::check(ddp_cuda_pairs_create(device, from.data(), to.data(), from.size(), &made));
    return Pairs(made);
  }

  void make_pairs(const std::vector<Parameter>& model) {
    std::vector<ddp_buffer> model_values, master_values, model_gradients, master_gradients;
    for (std::size_t i = 0; i < model.size(); ++i) {
      model_gradients.push_back(ddp::detail::gradient_of(model[i]).c());
      master_gradients.push_back(ddp::detail::gradient_of(masters_[i]).c());
      if (!is_copied(model[i])) continue;
      model_values.push_back(ddp::detail::value_of(model[i]).c());
      master_values.push_back(ddp::detail::value_of(masters_[i]).c());
    }
    to_model_ = pairs(device_, master_values, model_values);
    from_model_ = pairs(device_, model_values, master_values);
    gradient_pairs_ = pairs(device_, model_gradients, master_gradients);
  }

  int device_;
  std::vector<Parameter> masters_;
  Memory values_;
  Memory gradients_;
  Pairs to_model_;
  Pairs from_model_;
  Pairs gradient_pairs_;
};

}  // namespace ddp::cuda
