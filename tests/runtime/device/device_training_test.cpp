// SPDX-License-Identifier: BSD-3-Clause
// Optimizers, the loss scale and clipping on GPU memory in jobs. device_training_scenarios.cpp is what each rank does
// and checks by itself.
#include <catch2/catch.hpp>
#include <string>

#include "runtime/training/cuda/kernel_images.hpp"
#include "tests/runtime/device/device_job.hpp"
#include "tests/support/hosts.hpp"

using ddp::test::fakes;
using ddp::test::one_gpu;
using ddp::test::real_gpus;
using ddp::test::run;

namespace {

void need_kernels() {
  if (ddp::runtime::kernel_images().empty()) ddp::testing::skip("libddp was built without kernels for GPUs (no NVRTC)");
}

}  // namespace

TEST_CASE("training on a GPU: ranks share overflows and norms, and train as on the CPU", "[runtime][integration]") {
  need_kernels();
  const std::string scenario =
      GENERATE("device training shares overflows", "device training clips shares", "device training steps");
  CAPTURE(scenario);
  run(GENERATE(1, 3), scenario, fakes({{"FAKE_NCCL_LAG", "2"}}));
}

TEST_CASE("training on a GPU: all of this holds on a real one", "[runtime][integration][gpu]") {
  need_kernels();
  if (real_gpus() == 0) ddp::testing::skip("there is no CUDA device");
  const std::string scenario =
      GENERATE("device training shares overflows", "device training clips shares", "device training steps");
  CAPTURE(scenario);
  run(2, scenario, one_gpu());
}
