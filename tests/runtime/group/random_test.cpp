// SPDX-License-Identifier: BSD-3-Clause
// Compares random collectives with what each rank computes by itself; see random_worker.cpp. DDPRUN_RANDOM_CALLS is the
// number of calls per job (default 150). DDPRUN_RANDOM_SEED is the seed of the first size; each size adds one (default:
// drawn and printed).
#include <catch2/catch.hpp>
#include <random>
#include <string>

#include "tests/support/environment.hpp"
#include "tests/support/process.hpp"

using namespace ddp::testing;

TEST_CASE("collectives: random calls of every kind, type and size give what they should on every rank",
          "[runtime][integration]") {
  const auto first = number_from<unsigned long>("DDPRUN_RANDOM_SEED", std::random_device()());
  const std::string calls = variable("DDPRUN_RANDOM_CALLS", "150");
  Process::Options patient;
  patient.deadline = std::chrono::seconds(600);
  unsigned long seed = first;
  for (const char* size : {"1", "2", "3", "4", "8"}) {
    INFO("DDPRUN_RANDOM_SEED=" << seed << ", " << size << " ranks");
    const Result result =
        run({DDPRUN_BINARY, "--nproc-per-node", size, RANDOM_WORKER, std::to_string(seed), calls}, patient);
    CHECK(result.out.empty());
    CHECK(result.err.empty());
    CHECK(result.code == 0);
    ++seed;
  }
}
