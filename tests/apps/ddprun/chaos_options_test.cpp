// SPDX-License-Identifier: BSD-3-Clause
#include "apps/ddprun/commands/change/chaos_options.hpp"

#include <catch2/catch.hpp>

#include "apps/ddprun/options/usage_error.hpp"

using Catch::Matchers::Contains;
using namespace ddp::apps;
using namespace std::chrono_literals;

TEST_CASE("chaos options: without any, a worker of the only job is killed every 30 s", "[apps][unit]") {
  const ChaosOptions options = parse_chaos({});
  CHECK(options.job.empty());
  CHECK(options.kind == ChaosKind::Worker);
  CHECK(options.every == 30s);
  CHECK_FALSE(options.count);
  CHECK_FALSE(options.seed);
}

TEST_CASE("chaos options: values follow a space or =, times have units", "[apps][unit]") {
  const ChaosOptions options = parse_chaos({"--every", "5m", "job7", "--kind=node", "--count=3", "--seed", "0"});
  CHECK(options.job == "job7");
  CHECK(options.kind == ChaosKind::Node);
  CHECK(options.every == 5min);
  CHECK(options.count == 3);
  CHECK(options.seed == 0U);
  CHECK(parse_chaos({"--every=250ms", "--kind=agent"}).every == 250ms);
  CHECK(parse_chaos({"--every=7"}).every == 7s);
  CHECK(parse_chaos({"--every=2h"}).every == 2h);
}

TEST_CASE("chaos options: what makes no sense is refused with the usage", "[apps][unit]") {
  const std::vector<std::pair<std::vector<std::string>, std::string>> cases = {
      {{"--every=0s"}, "--every 0s: give a time such as"},
      {{"--every", "30 s"}, "--every 30 s: give a time such as"},
      {{"--every=9999999999h"}, "give a time such as"},
      {{"--every=-1"}, "give a time such as"},
      {{"--kind=rank"}, "--kind rank: give worker, agent or node"},
      {{"--count=0"}, "--count 0: give a number of kills"},
      {{"--seed=x"}, "--seed x: give a number"},
      {{"--seed"}, "--seed needs a value"},
      {{"--now"}, "there is no option --now"},
      {{"--now=1"}, "there is no option --now"},
      {{"a", "b"}, "\"b\" is too much"},
  };
  for (const auto& [arguments, words] : cases) {
    CAPTURE(words);
    CHECK_THROWS_WITH(parse_chaos(arguments), Contains(words) && Contains("(ddprun chaos [JOB]"));
    CHECK_THROWS_AS(parse_chaos(arguments), SyntaxError);
  }
}
