// SPDX-License-Identifier: BSD-3-Clause
#include "apps/ddprun/options/log_options.hpp"

#include <catch2/catch.hpp>

#include "apps/ddprun/options/usage_error.hpp"

using namespace ddp::apps;
using ddp::launcher::Console;
using Words = std::vector<std::string>;

TEST_CASE("log options: streams are 0 to 3 for all workers, or rank:0-3 for each", "[launcher][unit]") {
  for (int value = 0; value <= 3; ++value) {
    const auto choice = parse_streams("tee", std::to_string(value));
    CHECK(choice.has(Console::Stdout, 7) == (value == 1 || value == 3));
    CHECK(choice.has(Console::Stderr, 7) == (value == 2 || value == 3));
  }
  const auto choice = parse_streams("tee", "0:3,1:0,12:2");
  CHECK((choice.has(Console::Stdout, 0) && choice.has(Console::Stderr, 0)));
  CHECK((!choice.has(Console::Stdout, 12) && choice.has(Console::Stderr, 12)));
  CHECK((!choice.has(Console::Stdout, 1) && !choice.has(Console::Stdout, 2)));
}

TEST_CASE("log options: other streams are refused, and both forms are named", "[launcher][unit]") {
  for (const char* text : {"4", "0:4", "a", "", "-1", "33", "0:", ":1", "0:1,", "0:1,2", "0:1 ,1:2", "0:1:2", "0:12"}) {
    INFO("'" << text << "'");
    CHECK_THROWS_AS(parse_streams("redirects", text), UsageError);
  }
  CHECK_THROWS_WITH(parse_streams("redirects", "4"),
                    Catch::StartsWith("--redirects 4: give 0 ") && Catch::Contains("LOCAL_RANK:0-3"));
}

TEST_CASE("log options: a comma within a word is written twice", "[launcher][unit]") {
  CHECK(parse_words("apple,orange") == Words{"apple", "orange"});
  CHECK(parse_words("a,,b,c") == Words{"a,b", "c"});
  CHECK(parse_words("a,,,b") == Words{"a,", "b"});
  CHECK(parse_words("").empty());
  CHECK(parse_words("loss,") == Words{"loss"});
}

TEST_CASE("log options: a prefix comes from the option, else from the variable, else from the default",
          "[launcher][unit]") {
  LogOptions options;
  CHECK(resolve_logs(options, nullptr).line_prefix == "[${role_name}${local_rank}]:");
  CHECK(resolve_logs(options, "").line_prefix == "[${role_name}${local_rank}]:");
  CHECK(resolve_logs(options, "[$rank] ").line_prefix == "[$rank] ");
  options.log_line_prefix_template = "> ";
  CHECK(resolve_logs(options, "[$rank] ").line_prefix == "> ");
}

TEST_CASE("log options: ranks to show are a list of numbers", "[launcher][unit]") {
  LogOptions options;
  CHECK(!resolve_logs(options, nullptr).shown_ranks);
  options.local_ranks_filter = "0, 2,11";
  CHECK(resolve_logs(options, nullptr).shown_ranks == std::set<int>{0, 2, 11});
  for (const char* text : {"a", "0,", "0;1", "-1", ","}) {
    options.local_ranks_filter = text;
    CHECK_THROWS_AS(resolve_logs(options, nullptr), UsageError);
  }
}

TEST_CASE("log options: --log-dir /dev/null leaves everything on the console", "[launcher][unit]") {
  LogOptions options;
  options.log_dir = "/dev/null";
  options.redirects = "3";
  options.tee = "0:1";
  CHECK(!resolve_logs(options, nullptr).writes_logs());
  options.duplicate_stdout_filters = "loss";
  CHECK_THROWS_AS(resolve_logs(options, nullptr), UsageError);
}
