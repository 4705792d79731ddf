// SPDX-License-Identifier: BSD-3-Clause
// The compiled kernels that libddp carries, made by kernels/compile_kernels.py; none if NVRTC was not there.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

namespace ddp::runtime {

struct KernelImage {
  int major;  // compute capability: it runs on GPUs of the same major number and at least this minor one
  int minor;
  const unsigned char* bytes;  // a cubin
  std::size_t size;
};

const std::vector<KernelImage>& kernel_images();

// The least driver: images of NVRTC 12 run on all drivers of CUDA 12.
constexpr int kLeastDriverVersion = 12000;

// Returns the image for a GPU of this compute capability (90 is 9.0), the newest that it can run, with a driver of this
// version. Throws rendezvous::Error{System} with what is missing.
const KernelImage& choose_image(const std::vector<KernelImage>& images, int compute_capability, int driver_version);

}  // namespace ddp::runtime
