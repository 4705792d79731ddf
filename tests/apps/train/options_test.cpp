// SPDX-License-Identifier: BSD-3-Clause
#include <catch2/catch.hpp>
#include <vector>

#include "apps/train/failure.hpp"
#include "apps/train/options.hpp"

namespace train {
namespace {

using Catch::Contains;

Options parse(std::vector<const char*> arguments) {
  arguments.insert(arguments.begin(), "train");
  return parse_options(static_cast<int>(arguments.size()), arguments.data());
}

TEST_CASE("options: all have defaults", "[train][unit]") {
  const Options options = parse({});
  CHECK(options.data == "/usr/share/common-licenses");
  CHECK(options.help.empty());
  CHECK_FALSE(options.resume);
}

TEST_CASE("options: take the given values", "[train][unit]") {
  const Options options = parse({"--width", "32", "--heads=2", "--lr", "1e-3", "--resume", "--checkpoint", "x",
                                 "--seed", "18446744073709551615"});
  CHECK(options.shape.width == 32);
  CHECK(options.shape.heads == 2);
  CHECK(options.learning_rate == 1e-3);
  CHECK(options.checkpoint == "x");
  CHECK(options.seed == 18446744073709551615U);
  CHECK(options.resume);
}

TEST_CASE("options: an error is one line that names the option", "[train][unit]") {
  CHECK_THROWS_WITH(parse({"--steps", "0"}), Contains("--steps"));
  CHECK_THROWS_WITH(parse({"--steps", "many"}), Contains("--steps"));
  CHECK_THROWS_WITH(parse({"--steps", "99999999999"}), Contains("--steps"));
  CHECK_THROWS_WITH(parse({"--seed", "-1"}), Contains("--seed"));
  CHECK_THROWS_WITH(parse({"--nothing"}), Contains("--nothing"));
  CHECK_THROWS_WITH(parse({"stray"}), Contains("stray"));
  CHECK_THROWS_WITH(parse({"--width", "30"}), Contains("--width 30") && Contains("--heads 4"));
  CHECK_THROWS_WITH(parse({"--steps", "0"}), !Contains("\n"));
  CHECK_THROWS_AS(parse({"--steps", "0"}), BadInput);
}

TEST_CASE("options: help lists every one of them", "[train][unit]") {
  CHECK_THAT(parse({"--help"}).help, Contains("--global-batch") && Contains("--checkpoint-every") && Contains("--log"));
}

}  // namespace
}  // namespace train
