// SPDX-License-Identifier: BSD-3-Clause
// libddp in a process that has another Gloo, as libtorch has. Here the other one is a preloaded library in which every
// function of Gloo aborts. tests/interop uses the real libtorch.
#include <catch2/catch.hpp>
#include <csignal>
#include <string>

#include "tests/support/process.hpp"

using Catch::Matchers::Contains;
using ddp::testing::Process;
using ddp::testing::Result;
using ddp::testing::run;

namespace {

Process::Options with_hostile_gloo() {
  Process::Options options;
  options.environment = {{"LD_PRELOAD", HOSTILE_GLOO}};
  return options;
}

}  // namespace

TEST_CASE("deep binding: every collective works where the process's own Gloo functions abort",
          "[runtime][integration]") {
  Process job({DDPRUN_BINARY, "--nproc_per_node", "2", COLLECTIVE_WORKER, "collectives"}, with_hostile_gloo());
  const Result result = job.wait();
  INFO(result.out << result.err);
  CHECK(result.code == 0);
  CHECK(job.all_gone());
}

TEST_CASE("deep binding: without it the module meets the process's own Gloo functions", "[runtime][integration]") {
  const Result deep = run({GLOO_OPENER, GLOO_MODULE, "deep"}, with_hostile_gloo());
  INFO(deep.err);
  CHECK(deep.code == 0);

  const Result shallow = run({GLOO_OPENER, GLOO_MODULE, "shallow"}, with_hostile_gloo());
  CHECK(shallow.code == 128 + SIGABRT);
  CHECK_THAT(shallow.err, Contains("4gloo") && Contains("was called in the wrong library"));
}
