// SPDX-License-Identifier: BSD-3-Clause
// Optimizers, the loss scale and clipping on GPU memory in jobs. device_training_scenarios.cpp is what each rank does
// and checks by itself.
#include <catch2/catch.hpp>
#include <string>

#include "tests/runtime/device/device_job.hpp"
#include "tests/support/hosts.hpp"

using Catch::Matchers::Contains;
using ddp::test::fakes;
using ddp::test::need_kernels;
using ddp::test::one_gpu;
using ddp::test::real_gpus;
using ddp::test::run;

TEST_CASE("training on a GPU: ranks share overflows and norms, and train as on the CPU", "[runtime][integration]") {
  need_kernels();
  const std::string scenario =
      GENERATE("device training shares overflows", "device training clips shares", "device training steps");
  CAPTURE(scenario);
  run(GENERATE(1, 3), scenario, fakes({{"FAKE_NCCL_LAG", "2"}}));
}

TEST_CASE("training on a GPU: hooks come to what they come to on the CPU, in the order of streams",
          "[runtime][integration]") {
  need_kernels();
  const std::string scenario = GENERATE("device hooks compute what the CPU does",
                                        "device hooks leave 16 bits as they are", "device hooks follow the streams");
  CAPTURE(scenario);
  run(GENERATE(1, 3), scenario, fakes({{"FAKE_NCCL_LAG", "2"}}));
}

TEST_CASE("training on a GPU: ZeroRedundancyOptimizer comes to what the plain one does, with a part of its state",
          "[runtime][integration]") {
  need_kernels();
  const std::string scenario = GENERATE("device zero computes what the plain one does", "device zero reduces to owners",
                                        "device zero hands over its state", "device zero leaves out steps",
                                        "device zero follows the stream", "device zero exchanges in chunks");
  CAPTURE(scenario);
  run(GENERATE(1, 3), scenario, fakes({{"FAKE_NCCL_LAG", "2"}}));
}

TEST_CASE("training on a GPU: ZeroRedundancyOptimizer refuses parameters that differ", "[runtime][integration]") {
  need_kernels();
  for (const std::string& output : run(2, "device zero refuses what differs", fakes())) {
    CHECK_THAT(output, Contains("other parameters failed: 5 ZeroRedundancyOptimizer: rank 1 of world gave other "
                                "parameters than rank 0, in number, sizes or types"));
    CHECK_THAT(output, Contains("another order failed: 1 ") &&
                           Contains("parameter 1 of the model is another one of the optimizer: with reduce_hook() "
                                    "give both the same parameters in the same order"));
  }
}

TEST_CASE("training on a GPU: all of this holds on a real one", "[runtime][integration][gpu]") {
  need_kernels();
  if (real_gpus() == 0) ddp::testing::skip("there is no CUDA device");
  const std::string scenario =
      GENERATE("device training shares overflows", "device training clips shares", "device training steps",
               "device hooks compute what the CPU does", "device hooks leave 16 bits as they are",
               "device hooks follow the streams", "device zero computes what the plain one does",
               "device zero reduces to owners", "device zero hands over its state", "device zero leaves out steps",
               "device zero follows the stream");
  CAPTURE(scenario);
  run(2, scenario, one_gpu());
}
