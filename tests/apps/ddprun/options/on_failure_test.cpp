// SPDX-License-Identifier: BSD-3-Clause
// --on-failure: which jobs may have it, and what is said to the others.
#include <catch2/catch.hpp>

#include "apps/ddprun/options/options.hpp"
#include "apps/ddprun/options/usage_error.hpp"

using namespace ddp::apps;
using Catch::Matchers::Contains;
using Words = std::vector<std::string>;

namespace {

bool survivors_stay(Words options) {
  options.emplace_back("--no-python");
  options.emplace_back("true");
  return std::get<Launch>(parse_options(options, {})).config.job.survivors_stay;
}

// The options of an elastic job.
Words elastic(const std::string& on_failure, const Words& more = {}) {
  Words words = {"--on-failure=" + on_failure, "--nnodes=2:4", "--rdzv-backend=c10d", "--rdzv-endpoint=localhost"};
  words.insert(words.end(), more.begin(), more.end());
  return words;
}

}  // namespace

TEST_CASE("on failure: restart, the default, keeps no worker", "[apps][unit]") {
  CHECK_FALSE(survivors_stay({}));
  CHECK_FALSE(survivors_stay({"--on-failure=restart"}));
  CHECK_FALSE(survivors_stay(elastic("restart", {"--keep-memory"})));
}

TEST_CASE("on failure: replace is for a fixed number of nodes with restarts", "[apps][unit]") {
  CHECK(survivors_stay({"--on-failure=replace", "--max-restarts=1"}));
  CHECK(survivors_stay({"--on-failure=replace", "--max-restarts=1", "--nnodes=3", "--rdzv-endpoint=localhost"}));
  CHECK_THROWS_WITH(survivors_stay({"--on-failure=replace"}),
                    Contains("--on-failure replace does nothing without --max-restarts N, since each failure spends a "
                             "restart; give both"));
  CHECK_THROWS_WITH(survivors_stay(elastic("replace", {"--max-restarts=1"})),
                    Contains("--on-failure replace needs a fixed number of nodes, since it waits for a replacement; "
                             "give --nnodes 4, or --on-failure shrink, which goes on with the nodes that are left"));
}

TEST_CASE("on failure: shrink is for an elastic number of nodes, with or without restarts", "[apps][unit]") {
  CHECK(survivors_stay(elastic("shrink")));
  CHECK(survivors_stay(elastic("shrink", {"--max-restarts=3"})));
  CHECK_THROWS_WITH(survivors_stay({"--on-failure=shrink", "--max-restarts=3"}),
                    Contains("--on-failure shrink needs an elastic number of nodes, since a job of --nnodes 1 cannot "
                             "go on with fewer; give --nnodes MIN:MAX, or --on-failure replace"));
  CHECK_THROWS_WITH(survivors_stay({"--on-failure=shrink", "--nnodes=3", "--rdzv-endpoint=localhost"}),
                    Contains("give --nnodes MIN:3, or --on-failure replace"));
}

TEST_CASE("on failure: no worker that stays has kept memory", "[apps][unit]") {
  const Words replace = {"--on-failure=replace", "--max-restarts=1", "--keep-memory"};
  CHECK_THROWS_WITH(survivors_stay(replace), Contains("--on-failure replace does not go with --keep-memory: a new "
                                                      "process gets its state from a worker that stays"));
  CHECK_THROWS_WITH(survivors_stay(elastic("shrink", {"--keep-memory"})),
                    Contains("--on-failure shrink does not go with --keep-memory"));
}

TEST_CASE("on failure: another choice is refused with the three that there are", "[apps][unit]") {
  CHECK_THROWS_WITH(survivors_stay({"--on-failure=grow"}),
                    Contains("restart") && Contains("replace") && Contains("shrink") && Contains("'grow'"));
}
