// SPDX-License-Identifier: BSD-3-Clause
// The kernels of training on one GPU: loads them once per device, and launches them on a stream with arguments of the
// right type.
//
//     kernels->launch<kernel::step_adam>(blocks, {table, control, coefficients}, stream);
//
// Threads: any.
#pragma once

#include <array>
#include <cstddef>
#include <memory>

#include "collectives/gpu/cuda_device.hpp"
#include "runtime/training/kernels/arguments.hpp"

namespace ddp::runtime {

// A type for each kernel, with its number and its arguments.
namespace kernel {
enum class Number : std::size_t {
#define DDP_NUMBER(name, Arguments_) name,
  DDP_TRAINING_KERNELS(DDP_NUMBER)
#undef DDP_NUMBER
      Count
};
#define DDP_KERNEL_TYPE(name, Arguments_)           \
  struct name {                                     \
    using Arguments = kernels::Arguments_;          \
    static constexpr Number kNumber = Number::name; \
  };
DDP_TRAINING_KERNELS(DDP_KERNEL_TYPE)
#undef DDP_KERNEL_TYPE
}  // namespace kernel

class Kernels {
 public:
  // Returns the kernels of the device with this number (CUDA_VISIBLE_DEVICES). Throws rendezvous::Error if there is no
  // driver, no such device, or no image for it.
  static std::shared_ptr<const Kernels> of(int device);

  explicit Kernels(int device);
  Kernels(const Kernels&) = delete;
  Kernels& operator=(const Kernels&) = delete;

  const collectives::CudaDevice& device() const { return device_; }

  template <typename Kernel>
  void launch(unsigned blocks, const typename Kernel::Arguments& arguments, collectives::CudaStream* stream) const {
    module_.launch(functions_[static_cast<std::size_t>(Kernel::kNumber)], blocks, kernels::kThreads, &arguments,
                   stream);
  }

 private:
  collectives::CudaDevice device_;
  collectives::KernelModule module_;
  std::array<collectives::CudaFunction*, static_cast<std::size_t>(kernel::Number::Count)> functions_;
};

}  // namespace ddp::runtime
