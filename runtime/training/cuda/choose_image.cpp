// SPDX-License-Identifier: BSD-3-Clause
#include "rendezvous/base/error.hpp"
#include "runtime/training/cuda/kernel_images.hpp"

namespace ddp::runtime {
namespace {

std::string dotted(int tenfold) { return std::to_string(tenfold / 10) + "." + std::to_string(tenfold % 10); }

[[noreturn]] void no_image_because(const std::string& why) {
  throw rendezvous::Error(rendezvous::ErrorCode::System, "kernels for GPUs: " + why);
}

}  // namespace

const KernelImage& choose_image(const std::vector<KernelImage>& images, int compute_capability, int driver_version) {
  if (images.empty()) {
    no_image_because(
        "this libddp was built without them, because NVRTC 12.8 or 12.9 was not there: build it again after `pip "
        "install "
        "nvidia-cuda-nvrtc-cu12`, with -DDDPRUN_NVRTC=<its libnvrtc.so.12>");
  }
  if (driver_version < kLeastDriverVersion) {
    no_image_because("they need NVIDIA's driver 525 or newer (CUDA 12.0); this one is of CUDA " +
                     std::to_string(driver_version / 1000) + "." + std::to_string(driver_version % 1000 / 10));
  }
  const KernelImage* best = nullptr;
  std::string there;
  for (const KernelImage& image : images) {
    const int capability = 10 * image.major + image.minor;
    there += (there.empty() ? "" : ", ") + dotted(capability);
    const bool runs = image.major == compute_capability / 10 && image.minor <= compute_capability % 10;
    if (runs && (best == nullptr || best->minor < image.minor)) best = &image;
  }
  if (best != nullptr) return *best;
  no_image_because("this GPU's compute capability is " + dotted(compute_capability) + "; libddp has kernels for " +
                   there + " and what is compatible with them");
}

}  // namespace ddp::runtime
