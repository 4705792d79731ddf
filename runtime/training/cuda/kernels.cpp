// SPDX-License-Identifier: BSD-3-Clause
#include "runtime/training/cuda/kernels.hpp"

#include <map>
#include <mutex>

#include "runtime/training/cuda/kernel_images.hpp"

namespace ddp::runtime {
namespace {

using collectives::CudaApi;
using collectives::CudaDevice;

const void* image_for(const CudaDevice& device) {
  int driver = 0;
  device.api().driver_get_version(&driver);
  return choose_image(kernel_images(), device.compute_capability(), driver).bytes;
}

}  // namespace

Kernels::Kernels(int device) : device_(collectives::cuda_api(), device), module_(device_, image_for(device_)) {
  std::size_t next = 0;
#define DDP_FUNCTION(name, Arguments) functions_[next++] = module_.function("ddp_" #name);
  DDP_TRAINING_KERNELS(DDP_FUNCTION)
#undef DDP_FUNCTION
}

std::shared_ptr<const Kernels> Kernels::of(int device) {
  static std::mutex mutex;
  static std::map<int, std::weak_ptr<const Kernels>> all;
  const std::lock_guard lock(mutex);
  std::shared_ptr<const Kernels> kernels = all[device].lock();
  if (kernels == nullptr) all[device] = kernels = std::make_shared<const Kernels>(device);
  return kernels;
}

}  // namespace ddp::runtime
