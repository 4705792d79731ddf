// SPDX-License-Identifier: BSD-3-Clause
// Compressed gradients with real processes. Each rank's own checks are in
// compression_scenarios.cpp.
#include <catch2/catch.hpp>
#include <string>

#include "tests/runtime/job/run_job.hpp"

using Catch::Matchers::Contains;
using ddp::test::run;
using ddp::test::run_with_a_death;

TEST_CASE("compressed gradients: every hook averages parameters of every type", "[training][integration]") {
  const int size = GENERATE(1, 2, 4);
  run(size, "compressed, every type");
}

TEST_CASE("compressed gradients: ranks with less input contribute zeros, with every hook", "[training][integration]") {
  const int size = GENERATE(1, 2, 4);
  run(size, "compressed, uneven");
}

TEST_CASE("compressed gradients: a refused hook is reported, and another can be registered",
          "[training][integration]") {
  const std::string output = run(1, "compression mistakes")[0];
  CHECK_THAT(output, Contains("kind failed: 1 there is no built-in communication hook 9"));
  CHECK_THAT(output, Contains("second failed: 1 DistributedDataParallel: there is a communication hook already"));
}

TEST_CASE("compressed gradients: when a rank is killed the others' step fails and names it",
          "[training][integration]") {
  const std::string hook = GENERATE("allreduce", "fp16", "bf16");
  for (const auto& [rank, said] : run_with_a_death(3, "die under " + hook, {1, "here"})) {
    INFO(hook << ": rank " << rank << " said: " << said);
    CHECK_THAT(said, Contains("step failed: "));  // from this rank's death, or later from the broken group
    CHECK_THAT(said, Contains("rank 1 on node b was killed by SIGKILL"));
  }
}
