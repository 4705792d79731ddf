// SPDX-License-Identifier: BSD-3-Clause
#include <catch2/catch.hpp>

#include "tests/support/process.hpp"

using namespace ddp::testing;

TEST_CASE("coordinator: a thousand agents run, stop, run again and leave", "[rendezvous][integration]") {
  const Result result = run({DDP_BENCH_BINARY, "rendezvous", "--nodes", "1000", "--ddprun", DDPRUN_BINARY});
  CAPTURE(result.err);
  CHECK(result.code == 0);
  for (const char* step : {"form", "beat", "stop", "restart", "end"}) {
    CHECK(count(result.out, std::string("{\"step\":\"") + step + "\",\"nodes\":1000,") == 1);
  }
  // The processor time that was measured is the coordinator's.
  CHECK(count(result.out, R"("coordinator_cpu_s":0.0,)") == 0);
  CHECK(count(result.err, "restart 1 of 1: rank 1 on node host1 was killed by SIGKILL") == 1);
}
