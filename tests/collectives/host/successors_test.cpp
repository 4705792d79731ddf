// SPDX-License-Identifier: BSD-3-Clause
// Groups that await successors: a new process takes the place of a rank that was killed (successions.hpp), and what
// ends such a group all the same.
#include <unistd.h>

#include <catch2/catch.hpp>
#include <csignal>
#include <cstdlib>
#include <functional>
#include <string>

#include "collectives/backend_error.hpp"
#include "tests/collectives/host/job.hpp"
#include "tests/collectives/host/successions.hpp"

using namespace ddp::collectives;
using namespace ddp::collectives::test;
using Catch::Matchers::Contains;

TEST_CASE("successors: whenever ranks are killed, others take their places, and all results are as without kills",
          "[collectives][integration]") {
  const char* text = std::getenv("DDPRUN_HOST_SUCCESSIONS");
  const int kills = text != nullptr ? std::atoi(text) : 40;
  for (const std::uint32_t ranks : {2U, 4U}) kill_and_succeed(ranks, kills);
}
