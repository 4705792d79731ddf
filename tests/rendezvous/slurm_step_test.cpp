// SPDX-License-Identifier: BSD-3-Clause
#include "rendezvous/slurm_step.hpp"

#include <catch2/catch.hpp>
#include <set>

using ddp::rendezvous::slurm_step;

TEST_CASE("slurm step: its id and its ports follow from the numbers of job and step", "[rendezvous][unit]") {
  const auto step = slurm_step("1000", "2");
  REQUIRE(step);
  CHECK(step->id == "slurm-1000.2");
  CHECK(step->ports.front() == 20000 + (1000 * 16 + 2) % 12000);
  CHECK(step->ports.size() == 8);
  CHECK(slurm_step("1000", "2")->ports == step->ports);
  for (const char* no_number : {"", "x", "1000_2", "-1"}) {
    CHECK_FALSE(slurm_step(no_number, "0"));
    CHECK_FALSE(slurm_step("1000", no_number));
  }
}

TEST_CASE("slurm step: no port of a step is the first choice of a neighbour", "[rendezvous][unit]") {
  std::set<std::uint16_t> firsts;
  for (int job = 4711000; job < 4711050; ++job) {
    for (int step = 0; step < 16; ++step)
      firsts.insert(slurm_step(std::to_string(job), std::to_string(step))->ports[0]);
  }
  CHECK(firsts.size() == 50 * 16);
  for (int job = 4711000; job < 4711050; ++job) {
    const auto ports = slurm_step(std::to_string(job), "0")->ports;
    for (std::size_t i = 0; i < ports.size(); ++i) {
      CHECK(ports[i] >= 20000);
      CHECK(ports[i] < 32000);
      if (i > 0) CHECK(firsts.count(ports[i]) == 0);
    }
  }
}
