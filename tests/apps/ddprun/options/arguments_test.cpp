// SPDX-License-Identifier: BSD-3-Clause
#include "apps/ddprun/options/arguments.hpp"

#include <catch2/catch.hpp>

#include "apps/ddprun/options/usage_error.hpp"

using ddp::apps::Arguments;
using ddp::apps::Options;
using ddp::apps::Origin;
using ddp::apps::split_arguments;
using ddp::apps::Takes;
using ddp::apps::UsageError;
using Words = std::vector<std::string>;

namespace {

const Options kKnown = {{.name = "nproc-per-node"},
                        {.name = "nnodes"},
                        {.name = "max-restarts"},
                        {.name = "master-addr"},
                        {.name = "master-port"},
                        {.name = "module", .letter = 'm', .takes = Takes::Nothing},
                        {.name = "tee", .letter = 't'},
                        {.name = "standalone", .takes = Takes::Nothing},
                        {.name = "stand", .origin = Origin::Ddprun},
                        {.name = "event-handler"},
                        {.name = "event-file", .origin = Origin::Ddprun},
                        {.name = "gpus", .origin = Origin::Ddprun},
                        {.name = "legacy", .takes = Takes::ValueIfAttached, .bare_value = "dash"},
                        {.name = "serve", .takes = Takes::ValueIfPort, .bare_value = "0"}};

}  // namespace

TEST_CASE("arguments: dashes, underscores and both ways to give a value mean the same", "[apps][unit]") {
  for (const Words& words :
       {Words{"--nproc_per_node", "8"}, Words{"--nproc-per-node=8"}, Words{"--nproc_per-node=8"}}) {
    CHECK(split_arguments(words, kKnown).options == Words{"--nproc-per-node=8"});
  }
}

TEST_CASE("arguments: everything after the program is the program's", "[apps][unit]") {
  const Arguments split = split_arguments({"--nnodes=1", "train.py", "--nnodes", "7", "--", "-m"}, kKnown);
  CHECK(split.options == Words{"--nnodes=1"});
  CHECK(split.program == "train.py");
  CHECK(split.program_args == Words{"--nnodes", "7", "--", "-m"});
}

TEST_CASE("arguments: two dashes end the options", "[apps][unit]") {
  const Arguments split = split_arguments({"-m", "--", "pkg.mod", "a"}, kKnown);
  CHECK(split.options == Words{"--module"});
  CHECK(split.program == "pkg.mod");
  CHECK(split.program_args == Words{"a"});
}

// As argparse does for torchrun's parser, from Python 3.8 to 3.14.
TEST_CASE("arguments: the first two dashes are dropped before or right after the program, and only there",
          "[apps][unit]") {
  const struct {
    Words words;
    const char* program;
    Words args;
  } rows[] = {
      {{"s", "--", "a"}, "s", {"a"}},
      {{"-m", "s", "--", "a"}, "s", {"a"}},
      {{"s", "--", "--", "a"}, "s", {"--", "a"}},
      {{"s", "--"}, "s", {}},
      {{"s", "a", "--", "b"}, "s", {"a", "--", "b"}},
      {{"s", "--x", "--", "b"}, "s", {"--x", "--", "b"}},
      {{"--", "s", "--", "a"}, "s", {"--", "a"}},
      {{"-m", "--", "s", "--", "a"}, "s", {"--", "a"}},
      {{"-t", "3", "--", "s", "a"}, "s", {"a"}},
      {{"--", "-x", "a"}, "-x", {"a"}},
  };
  for (const auto& row : rows) {
    CAPTURE(row.words);
    const Arguments split = split_arguments(row.words, kKnown);
    CHECK(split.program == row.program);
    CHECK(split.program_args == row.args);
  }
}

TEST_CASE("arguments: a name that lacks words of an option leads to it", "[apps][unit]") {
  CHECK_THROWS_WITH(split_arguments({"--nproc_node=2"}, kKnown), Catch::Contains("did you mean --nproc-per-node?"));
  CHECK_THROWS_WITH(split_arguments({"--restarts", "2"}, kKnown), Catch::Contains("did you mean --max-restarts?"));
}

TEST_CASE("arguments: a prefix of one option stands for it", "[apps][unit]") {
  CHECK(split_arguments({"--nproc=2"}, kKnown).options == Words{"--nproc-per-node=2"});
  CHECK(split_arguments({"--standa"}, kKnown).options == Words{"--standalone"});
  CHECK_THROWS_WITH(split_arguments({"--master=x"}, kKnown), Catch::Contains("--master-addr --master-port"));
}

TEST_CASE("arguments: a prefix of one option of torchrun stands for it, whatever ddprun has added", "[apps][unit]") {
  CHECK(split_arguments({"--event-=x"}, kKnown).options == Words{"--event-handler=x"});
  CHECK(split_arguments({"--event-f=x"}, kKnown).options == Words{"--event-file=x"});
  CHECK(split_arguments({"--gp=1"}, kKnown).options == Words{"--gpus=1"});
}

TEST_CASE("arguments: a complete name is not taken for a prefix", "[apps][unit]") {
  CHECK(split_arguments({"--stand=1"}, kKnown).options == Words{"--stand=1"});
}

TEST_CASE("arguments: a value that may be left out is never the next word", "[apps][unit]") {
  const Arguments split = split_arguments({"--legacy", "train.py"}, kKnown);
  CHECK(split.options == Words{"--legacy=dash"});
  CHECK(split.program == "train.py");
  CHECK(split_arguments({"--legacy=underscore"}, kKnown).options == Words{"--legacy=underscore"});
}

TEST_CASE("arguments: a port that may be left out is the next word only if that ends in a port", "[apps][unit]") {
  for (const std::string port : {"8080", "0", "70000", "127.0.0.1:8080", "[::1]:0", "localhost:80"}) {
    CAPTURE(port);
    for (const Words& words : {Words{"--serve", port, "train.py", "80"}, Words{"--serve=" + port, "train.py", "80"}}) {
      const Arguments split = split_arguments(words, kKnown);
      CHECK(split.options == Words{"--serve=" + port});
      CHECK(split.program == "train.py");
    }
  }
  for (const std::string word : {"train.py", "3d.py", "x:y", "-m", "--standalone", "--"}) {
    CAPTURE(word);
    const Arguments split = split_arguments({"--serve", word, "8080"}, kKnown);
    CHECK(split.options.front() == "--serve=0");
    CHECK(split.program == (word.front() == '-' ? "8080" : word));
  }
  CHECK(split_arguments({"--serve"}, kKnown).options == Words{"--serve=0"});
}

TEST_CASE("arguments: short options take their value attached or after", "[apps][unit]") {
  CHECK(split_arguments({"-t3"}, kKnown).options == Words{"--tee=3"});
  CHECK(split_arguments({"-t=3"}, kKnown).options == Words{"--tee=3"});
  CHECK(split_arguments({"-t", "3"}, kKnown).options == Words{"--tee=3"});
}

TEST_CASE("arguments: a word with a leading dash is never taken for the program", "[apps][unit]") {
  CHECK_THROWS_AS(split_arguments({"-x", "train"}, kKnown), UsageError);
  CHECK_THROWS_WITH(split_arguments({"--nproc-per-nodes=2"}, kKnown),
                    Catch::Contains("did you mean --nproc-per-node?"));
  CHECK_THROWS_WITH(split_arguments({"--nnodes"}, kKnown), Catch::Contains("needs a value"));
  CHECK_THROWS_WITH(split_arguments({"--standalone=1"}, kKnown), Catch::Contains("takes no value"));
  CHECK_FALSE(split_arguments({}, kKnown).program);
}

TEST_CASE("arguments: a value may begin with a dash", "[apps][unit]") {
  CHECK(split_arguments({"--max-restarts", "-1"}, kKnown).options == Words{"--max-restarts=-1"});
}
