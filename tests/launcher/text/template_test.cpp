// SPDX-License-Identifier: BSD-3-Clause
#include "launcher/text/template.hpp"

#include <catch2/catch.hpp>

using ddp::launcher::substitute;

TEST_CASE("template: names are replaced as Python's Template.safe_substitute does", "[launcher][unit]") {
  const std::map<std::string, std::string> values = {{"rank", "5"}, {"host", "n1"}};
  CHECK(substitute("[$host:${rank}]: ", values) == "[n1:5]: ");
  CHECK(substitute("$rank$rank", values) == "55");
  CHECK(substitute("cost: $$rank", values) == "cost: $rank");
  CHECK(substitute("$ranks ${ranks} $other", values) == "$ranks ${ranks} $other");
  CHECK(substitute("$ ${rank ${} $1 end$", values) == "$ ${rank ${} $1 end$");
  CHECK(substitute("", values).empty());
}
