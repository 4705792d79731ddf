// SPDX-License-Identifier: BSD-3-Clause
#include <catch2/catch.hpp>
#include <vector>

#include "runtime/training/cuda/kernel_images.hpp"

using Catch::Matchers::Contains;
using ddp::runtime::choose_image;
using ddp::runtime::KernelImage;

TEST_CASE("GPU kernels: a GPU gets the newest image of its major number", "[training][unit]") {
  const std::vector<KernelImage> images = {{7, 5, nullptr, 0}, {8, 0, nullptr, 0}, {8, 6, nullptr, 0}};
  CHECK(&choose_image(images, 75, 12000) == &images[0]);
  CHECK(&choose_image(images, 80, 12090) == &images[1]);
  CHECK(&choose_image(images, 89, 13000) == &images[2]);
}

TEST_CASE("GPU kernels: what is missing is named: the kernels, the driver, or the kind of GPU", "[training][unit]") {
  const std::vector<KernelImage> images = {{7, 5, nullptr, 0}, {12, 0, nullptr, 0}};
  CHECK_THROWS_WITH(choose_image({}, 80, 12000), Contains("built without them, because NVRTC"));
  CHECK_THROWS_WITH(choose_image(images, 75, 11080),
                    Contains("driver 525 or newer (CUDA 12.0); this one is of CUDA 11.8"));
  CHECK_THROWS_WITH(choose_image(images, 70, 12000),
                    Contains("compute capability is 7.0; libddp has kernels for 7.5, 12.0"));
}

TEST_CASE("GPU kernels: libddp carries an image for each kind of GPU, or none", "[training][unit]") {
  const std::vector<KernelImage>& images = ddp::runtime::kernel_images();
  if (images.empty()) return;
  REQUIRE(images.size() == 5);
  for (const KernelImage& image : images) CHECK(image.size > 4096);
  for (const int capability : {75, 80, 86, 89, 90, 100, 103, 120})
    CHECK_NOTHROW(choose_image(images, capability, 12000));
}
