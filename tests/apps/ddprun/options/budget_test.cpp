// SPDX-License-Identifier: BSD-3-Clause
// --restart-window, --exclude-after and --topology: which jobs may have them, and what is said to the others.
#include <catch2/catch.hpp>

#include "apps/ddprun/options/options.hpp"
#include "apps/ddprun/options/usage_error.hpp"

using namespace ddp::apps;
using Catch::Matchers::Contains;
using Words = std::vector<std::string>;

namespace {

ddp::launcher::LaunchConfig config_of(Words options) {
  options.emplace_back("--no-python");
  options.emplace_back("true");
  return std::get<Launch>(parse_options(options, {})).config;
}

Words c10d(const Words& more) {
  Words words = {"--nnodes=4", "--rdzv-backend=c10d", "--rdzv-endpoint=localhost"};
  words.insert(words.end(), more.begin(), more.end());
  return words;
}

}  // namespace

TEST_CASE("restart window: a time with its unit, for jobs that may restart", "[apps][unit]") {
  CHECK(config_of({}).job.restart_window.count() == 0);
  CHECK(config_of({"--max-restarts=3", "--restart-window=90s"}).job.restart_window == std::chrono::seconds(90));
  CHECK(config_of({"--max-restarts=3", "--restart-window=2h"}).job.restart_window == std::chrono::hours(2));
  CHECK_THROWS_WITH(config_of({"--restart-window=1h"}), Contains("--restart-window 1h does nothing without"));
  for (const char* wrong : {"0", "1d", "-1s", "soon"}) {
    INFO(wrong);
    CHECK_THROWS_WITH(config_of({"--max-restarts=3", "--restart-window=" + std::string(wrong)}),
                      Contains("give a time such as 90s, 30m or 2h"));
  }
}

TEST_CASE("exclude after: for nodes that others can replace", "[apps][unit]") {
  CHECK(config_of(c10d({"--exclude-after=2"})).job.exclude_after == 2);
  CHECK(config_of({"--exclude-after=0"}).job.exclude_after == 0);
  CHECK_THROWS_WITH(config_of({"--exclude-after=2"}), Contains("needs nodes that can take the place of others"));
  CHECK_THROWS_WITH(config_of({"--exclude-after=2", "--nnodes=2", "--master-addr=localhost"}),
                    Contains("several with --rdzv-backend c10d"));
}

TEST_CASE("topology: for nodes whose ranks nobody gave, and a node rank is a wish there", "[apps][unit]") {
  CHECK(config_of(c10d({"--node-rank=3"})).wanted_rank == 3);
  CHECK(config_of(c10d({})).wanted_rank == -1);
  CHECK_THROWS_WITH(config_of(c10d({"--topology=/no/such/file"})), Contains("--topology /no/such/file: No such file"));
  CHECK_THROWS_WITH(config_of({"--topology=/no/such/file"}), Contains("this one has one node"));
  CHECK_THROWS_WITH(config_of({"--topology=f", "--nnodes=2", "--master-addr=localhost"}),
                    Contains("here --node-rank says what the order is"));
}
