// SPDX-License-Identifier: BSD-3-Clause
// Jobs of ranks that share a batch. Each rank's own checks are in batch_norm_worker.cpp.
#include <catch2/catch.hpp>
#include <random>
#include <string>
#include <vector>

#include "tests/support/environment.hpp"
#include "tests/support/process.hpp"

using namespace ddp::testing;

namespace {

std::string normalise(const std::string& ranks, const std::string& scenario, const std::string& argument = "") {
  Process job({DDPRUN_BINARY, "--nproc-per-node", ranks, BATCH_NORM_WORKER, scenario, argument});
  const Result result = job.wait();
  INFO(result.out << result.err);
  CHECK(result.code == 0);
  CHECK(job.all_gone());
  return result.out;
}

}  // namespace

TEST_CASE("sync batch norm: ranks get torch's results for the whole batch, however its rows are spread",
          "[runtime][integration]") {
  CHECK(normalise(GENERATE("1", "2", "3", "4", "8"), "golden", GOLDEN_FOLDER "/batch_norm.safetensors").empty());
}

TEST_CASE("sync batch norm: ranks get the results of one process with the whole batch", "[runtime][integration]") {
  const std::string seed = variable("DDPRUN_RANDOM_SEED", std::to_string(std::random_device()()));
  INFO("DDPRUN_RANDOM_SEED=" << seed);
  CHECK(normalise(GENERATE("1", "2", "3", "8"), "whole", seed).empty());
}

TEST_CASE("sync batch norm: fewer than two values per channel are an error on every rank, without lasting effect",
          "[runtime][integration]") {
  CHECK(normalise(GENERATE("1", "2", "4"), "too_few").empty());
}

TEST_CASE("sync batch norm: every rank reports a rank with other channels, without lasting effect",
          "[runtime][integration]") {
  CHECK(normalise(GENERATE("2", "4"), "other_channels").empty());
}

TEST_CASE("sync batch norm: arguments that do not fit together are refused with a reason", "[runtime][integration]") {
  CHECK(normalise("1", "mistakes").empty());
}

TEST_CASE("sync batch norm: eval without running statistics uses this rank's batch", "[runtime][integration]") {
  CHECK(normalise("2", "bare_eval").empty());
}
