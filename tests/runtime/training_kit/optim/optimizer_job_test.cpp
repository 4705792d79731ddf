// SPDX-License-Identifier: BSD-3-Clause
// Optimizers, clipping and the gradient scaler over several ranks, with real processes. Each rank's
// own checks are in optimizer_worker.cpp.
#include <catch2/catch.hpp>
#include <string>

#include "tests/support/process.hpp"

using namespace ddp::testing;

namespace {

// `folder` holds files, for the scenarios that have some.
std::string run(const std::string& ranks, const std::string& scenario, const std::string& folder = "") {
  INFO(ranks << " ranks");
  Process job({DDPRUN_BINARY, "--nproc-per-node", ranks, OPTIMIZER_WORKER, scenario, folder});
  const Result result = job.wait();
  CHECK(result.err.empty());
  CHECK(result.code == 0);
  CHECK(job.left_over().empty());
  return result.out;
}

}  // namespace

TEST_CASE("zero_redundancy_optimizer: 50 steps give the plain optimizer's bits, however parameters are split",
          "[training][integration]") {
  for (const char* ranks : {"1", "2", "3", "4", "8"}) CHECK(run(ranks, "same bits").empty());
}

TEST_CASE("zero_redundancy_optimizer: steps with several exchanges give the plain optimizer's bits",
          "[training][integration]") {
  for (const char* ranks : {"2", "3"}) CHECK(run(ranks, "large").empty());
}

TEST_CASE("zero_redundancy_optimizer: groups of parameters have their own options", "[training][integration]") {
  CHECK(run("3", "groups").empty());
}

TEST_CASE("zero_redundancy_optimizer: its state continues with the same bits on another number of ranks",
          "[training][integration]") {
  const TemporaryFolder folder;
  CHECK(run("4", "resharded", folder.path()).empty());
}

TEST_CASE("zero_redundancy_optimizer: each rank has a share of the state, and together the ranks have all of it once",
          "[training][integration]") {
  for (const char* ranks : {"1", "3", "8"}) CHECK(run(ranks, "parts").empty());
}

TEST_CASE("zero_redundancy_optimizer: ranks with other parameters are refused on every rank",
          "[training][integration]") {
  const std::string said = run("3", "mismatch");
  const std::string line =
      "other parameters failed: 5 ZeroRedundancyOptimizer: rank 1 of world gave other parameters than rank 0, in "
      "number, sizes or types\n";
  CHECK(said == line + line + line);
}

TEST_CASE(
    "zero_redundancy_optimizer: a rank that dies in the middle of a step leaves the others' parameters as they were",
    "[training][integration]") {
  CHECK_THAT(run("2", "death"), Catch::Matchers::StartsWith("a step failed: 3 ranks 0, 1: all_gather #"));
  CHECK_THAT(run("2", "stuck"), Catch::Matchers::StartsWith("a step failed: 2 ranks 0, 1: all_gather #"));
}

TEST_CASE("clip_grad_norm: the norm over shares is the norm of the whole, with the same bits on every rank",
          "[training][integration]") {
  for (const char* ranks : {"1", "2", "4"}) CHECK(run(ranks, "clip").empty());
}

TEST_CASE("grad_scaler: an overflow on one rank leaves the step out on all", "[training][integration]") {
  for (const char* ranks : {"1", "3"}) CHECK(run(ranks, "overflow").empty());
}
