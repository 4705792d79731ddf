// SPDX-License-Identifier: BSD-3-Clause
// DistributedDataParallel on GPU memory. device_model_scenarios.cpp is what each rank does and checks by itself.
#include <catch2/catch.hpp>
#include <string>

#include "tests/runtime/device/device_job.hpp"
#include "tests/support/hosts.hpp"

using Catch::Matchers::Contains;
using ddp::test::fakes;
using ddp::test::one_gpu;
using ddp::test::real_gpus;
using ddp::test::run;
using ddp::test::Variables;

namespace {

const char* const kBoth = "cpu:gloo,cuda:nccl";

Variables with(Variables variables, const char* backend) {
  variables["TEST_BACKEND"] = backend;
  return variables;
}

}  // namespace

TEST_CASE("DDP on a GPU: values are rank 0's and gradients the average, wherever they are stored",
          "[runtime][integration]") {
  const char* backend = GENERATE("nccl", "cpu:gloo,cuda:nccl");
  const int size = GENERATE(1, 2, 3);
  CAPTURE(backend, size);
  run(size, "device model averages", with(fakes({{"FAKE_NCCL_LAG", "2"}}), backend));
}

TEST_CASE("DDP on a GPU: every floating-point type is averaged", "[runtime][integration]") {
  run(GENERATE(2, 4), "device model types", with(fakes(), kBoth));
}

TEST_CASE("DDP on a GPU: a bucket is reduced during the rest of backward, and the host does not wait",
          "[runtime][integration]") {
  run(GENERATE(1, 2, 4), "device model overlaps", with(fakes(), kBoth));
}

TEST_CASE("DDP on a GPU: gradients of one bucket may come from several streams", "[runtime][integration]") {
  run(GENERATE(2, 4), "device model on two streams", with(fakes(), kBoth));
}

TEST_CASE("DDP on a GPU: all ranks learn of unused parameters, with and without a backend for the CPU",
          "[runtime][integration]") {
  const char* backend = GENERATE("nccl", "cpu:gloo,cuda:nccl");
  run(GENERATE(2, 4), "device model unused", with(fakes(), backend));
}

TEST_CASE("DDP on a GPU: buffers of either kind of memory are rank 0's, and inputs may be uneven",
          "[runtime][integration]") {
  const char* backend = GENERATE("nccl", "cpu:gloo,cuda:nccl");
  run(GENERATE(1, 3), "device model buffers", with(fakes(), backend));
}

TEST_CASE("DDP on a GPU: invalid memory is refused with the name of the parameter", "[runtime][integration]") {
  for (const std::string& output : run(2, "device model refusals", with(fakes(), kBoth))) {
    CHECK_THAT(output, Contains("two places failed: 1 parameter 1 (host) is on the CPU but parameter 0 (p0) is on a "
                                "GPU: a model's parameters are in one place"));
    CHECK_THAT(output, Contains("another device failed: 1 parameter 1 (p1) is on cuda:"));
    CHECK_THAT(output, Contains("in a process that works on cuda:"));
    CHECK_THAT(output, Contains("no backend failed: 1 parameter 0 (p0) is on cuda:"));
    CHECK_THAT(output, Contains(", for which on the CPU has no backend: give it \"nccl\", or "
                                "\"cpu:gloo,cuda:nccl\""));
  }
}

TEST_CASE("DDP on a GPU: losses equal those on the CPU", "[runtime][integration]") {
  run(GENERATE(1, 2, 4), "device model trains", fakes());
}

TEST_CASE("DDP on a GPU: all of this holds on a real one", "[runtime][integration][gpu]") {
  if (real_gpus() == 0) ddp::testing::skip("there is no CUDA device");
  const std::string scenario =
      GENERATE("device model averages", "device model types", "device model overlaps", "device model on two streams",
               "device model unused", "device model buffers", "device model trains");
  const char* backend = GENERATE("nccl", "cpu:gloo,cuda:nccl");
  CAPTURE(scenario, backend);
  run(2, scenario, with(one_gpu(), backend));
}
