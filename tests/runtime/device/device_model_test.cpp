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

TEST_CASE("DDP on a GPU: buckets are registered with NCCL if that is wished, and averages are the same",
          "[runtime][integration]") {
  const std::string registers = GENERATE("windows", "none", "nothing");
  const char* backend = GENERATE("nccl", "cpu:gloo,cuda:nccl");
  Variables variables = with(fakes({{"FAKE_NCCL_LAG", "2"}, {"FAKE_NCCL_TRACE", "1"}}), backend);
  variables.insert({{"DDP_NCCL_REGISTER", "1"}, {"FAKE_NCCL_REGISTERS", registers}});
  CAPTURE(registers, backend);
  for (const std::string& output : run(2, "device model averages", variables)) {
    CHECK((output.find("nccl: window\n") != std::string::npos) == (registers == "windows"));
    CHECK((output.find("nccl: buffer\n") != std::string::npos) == (registers == "none"));
    CHECK((output.find("nccl: deregister\n") != std::string::npos) == (registers != "nothing"));
  }
}

TEST_CASE(
    "DDP on a GPU: ranks that have freed other memory register nothing, and an aborted group's buckets end with it",
    "[runtime][integration]") {
  Variables variables = with(fakes({{"FAKE_NCCL_TRACE", "1"}, {"DDP_NCCL_REGISTER", "1"}}), kBoth);
  for (const std::string& output : run(2, "device model registers", variables)) {
    const auto freed = output.find("one rank has freed its buckets");
    const auto again = output.find("another group");
    REQUIRE(again != std::string::npos);
    CHECK(output.substr(0, freed).find("nccl: window") != std::string::npos);
    CHECK(output.substr(freed, again - freed).find("nccl: window") == std::string::npos);
    CHECK(output.substr(again).find("nccl: window") != std::string::npos);
    CHECK(output.substr(again).find("nccl: abort") != std::string::npos);
  }
}

TEST_CASE("DDP on a GPU: all ranks register their buckets or none does", "[runtime][integration]") {
  for (const std::string& output : run(2, "device model registers on one rank", with(fakes(), kBoth))) {
    CHECK_THAT(output,
               Contains("unlike failed: ") && Contains("DDP_NCCL_REGISTER is 0 on rank 0 but 1 on rank 1: set it "
                                                       "alike on all ranks"));
    CHECK_THAT(output, Contains("DDP_NCCL_REGISTER is \"yes\": expected 0 or 1"));
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
