// SPDX-License-Identifier: BSD-3-Clause
// Communication hooks on GPU memory in jobs. device_hook_scenarios.cpp is what each rank does and checks by itself.
#include <catch2/catch.hpp>
#include <string>

#include "tests/runtime/device/device_job.hpp"
#include "tests/support/hosts.hpp"

using Catch::Matchers::Contains;
using ddp::test::fakes;
using ddp::test::one_gpu;
using ddp::test::real_gpus;
using ddp::test::run;

TEST_CASE("hooks on a GPU: the average comes to what it comes to on the CPU, in the order of streams",
          "[runtime][integration]") {
  const std::string scenario = GENERATE("device hooks compute what the CPU does", "device hooks follow the streams");
  CAPTURE(scenario);
  run(GENERATE(1, 3), scenario, fakes({{"FAKE_NCCL_LAG", "2"}}));
}

TEST_CASE("hooks on a GPU: those that send 16 bits are refused with what to use", "[runtime][integration]") {
  const std::string output = run(1, "device hooks refuse 16 bits", fakes())[0];
  for (const std::string hook : {"fp16", "bf16"}) {
    CHECK_THAT(output,
               Contains(hook + " failed: 1 " + hook +
                        "_compress_hook: the gradients are on a GPU, where libddp converts none: use gradients "
                        "of 16 bits, which NCCL averages as they are, or ddp::libtorch::DistributedDataParallel"));
  }
}

TEST_CASE("hooks on a GPU: all of this holds on a real one", "[runtime][integration][gpu]") {
  if (real_gpus() == 0) ddp::testing::skip("there is no CUDA device");
  const std::string scenario = GENERATE("device hooks compute what the CPU does", "device hooks refuse 16 bits",
                                        "device hooks follow the streams");
  CAPTURE(scenario);
  run(2, scenario, one_gpu());
}
