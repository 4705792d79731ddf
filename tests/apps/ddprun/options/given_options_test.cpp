// SPDX-License-Identifier: BSD-3-Clause
#include "apps/ddprun/options/given_options.hpp"

#include <catch2/catch.hpp>
#include <cstdlib>
#include <set>
#include <sstream>

#include "apps/ddprun/manual/help.hpp"
#include "apps/ddprun/manual/man_page.hpp"
#include "apps/ddprun/options/usage_error.hpp"

using namespace ddp::apps;
using Catch::Contains;

namespace {

// Sets an environment variable while it lives.
class Variable {
 public:
  Variable(const char* name, const char* value) : name_(name) { setenv(name, value, 1); }
  ~Variable() { unsetenv(name_); }
  Variable(const Variable&) = delete;
  Variable& operator=(const Variable&) = delete;

 private:
  const char* name_;
};

GivenOptions parse(const std::vector<std::string>& words) {
  GivenOptions given;
  Declaration declaration;
  declare(declaration, given);
  declaration.parse(words);
  return given;
}

Options declared() {
  GivenOptions given;
  Declaration declaration;
  declare(declaration, given);
  return declaration.options();
}

}  // namespace

TEST_CASE("given options: a value may be empty, and does not take the next option for a value", "[apps][unit]") {
  const GivenOptions given = parse({"--role=", "--rdzv-id=", "--gpus=", "--log-dir=logs"});
  CHECK(given.role.empty());
  CHECK(given.nodes.rdzv_id.empty());
  CHECK(given.gpus == "");
  CHECK(given.logs.log_dir == "logs");
  CHECK_FALSE(parse({}).gpus);
  CHECK_THROWS_WITH(parse({"--max-restarts="}), Contains("--max-restarts"));
}

TEST_CASE("given options: a value may look like anything", "[apps][unit]") {
  CHECK(parse({"--role=--tee"}).role == "--tee");
  CHECK(parse({"--rdzv-conf=a=b,c=d"}).nodes.rdzv_conf == "a=b,c=d");
  CHECK_THROWS_WITH(parse({"--max-restarts=-1"}), Contains("--max-restarts: '-1' is not a number, 0 or more"));
  CHECK_THROWS_AS(parse({"--max-restarts=1x"}), UsageError);
}

TEST_CASE("given options: the last of several counts", "[apps][unit]") {
  CHECK(parse({"--role=a", "--role=b"}).role == "b");
}

TEST_CASE("given options: a variable sets the default, unless it is empty", "[apps][unit]") {
  const Variable role("PET_ROLE", "trainer"), restarts("PET_MAX_RESTARTS", "");
  CHECK(parse({}).role == "trainer");
  CHECK(parse({"--role=ps"}).role == "ps");
  CHECK(parse({}).max_restarts == 0);
  const Variable from_file("PET_MAX_RESTARTS", "2\n");
  CHECK(parse({}).max_restarts == 2);
}

TEST_CASE("given options: PET_KEEP_MEMORY holds the default of --keep-memory", "[apps][unit]") {
  CHECK(parse({}).keep_memory.empty());
  CHECK(parse({"--keep-memory=1"}).keep_memory == "1");
  CHECK(parse({"--keep-memory=shadow"}).keep_memory == "shadow");
  CHECK_THROWS_WITH(parse({"--keep-memory=light"}), Contains("--keep-memory: give shadow or nothing, not 'light'"));
  const Variable variable("PET_KEEP_MEMORY", "shadow");
  CHECK(parse({}).keep_memory == "shadow");
}

TEST_CASE("given options: PET_GLOO holds the default of --gloo", "[apps][unit]") {
  CHECK(parse({}).gloo == "torch");
  const Variable variable("PET_GLOO", "ddp");
  CHECK(parse({}).gloo == "ddp");
  CHECK(parse({"--gloo=torch"}).gloo == "torch");
  CHECK_THROWS_WITH(parse({"--gloo=nccl"}), Contains("--gloo: give torch or ddp, not 'nccl'"));
}

TEST_CASE("given options: a time is a number of seconds, or has a unit", "[apps][unit]") {
  CHECK(parse({"--hang-timeout=0.5"}).hang_timeout == 0.5);
  CHECK(parse({"--hang-timeout=1500ms"}).hang_timeout == 1.5);
  CHECK(parse({"--shutdown-timeout=2m"}).shutdown_timeout == 120);
  CHECK(parse({"--preload-timeout=1h"}).preload_timeout == 3600);
  CHECK_THROWS_WITH(parse({"--shutdown-timeout=500ms"}), Contains("--shutdown-timeout: '500ms': give whole seconds"));
  CHECK_THROWS_WITH(parse({"--stacks-timeout=2m"}), Contains("--stacks-timeout: '2m' is not a time, 0 to 60 s; give "));
  for (const char* wrong : {"", "s", "5 s", "-1", "nan", "1d"}) {
    INFO(wrong);
    CHECK_THROWS_WITH(parse({"--hang-timeout=" + std::string(wrong)}), Contains("is not a time, 0 or more; give sec"));
  }
}

TEST_CASE("given options: the error about a wrong variable names the variable and its option", "[apps][unit]") {
  const Variable interval("PET_MONITOR_INTERVAL", "often");
  CHECK_THROWS_WITH(parse({}), Contains("PET_MONITOR_INTERVAL (--monitor-interval): 'often'"));
}

TEST_CASE("given options: a flag's variable is a number, or a word for yes or no", "[apps][unit]") {
  for (const char* on : {"1", "2", "-1", "true", "Yes", "on"}) {
    const Variable module("PET_MODULE", on);
    CAPTURE(on);
    CHECK(parse({}).module);
  }
  for (const char* off : {"0", "false", "NO", "off", ""}) {
    const Variable module("PET_MODULE", off);
    CAPTURE(off);
    CHECK_FALSE(parse({}).module);
    CHECK(parse({"--module"}).module);
  }
  const Variable module("PET_MODULE", "perhaps");
  CHECK_THROWS_WITH(parse({}), Contains("PET_MODULE (--module): 'perhaps' is neither 0 nor 1"));
}

TEST_CASE("help: has each option with its default and its variable, in 80 columns", "[apps][unit]") {
  const std::string page = help_page(declared());
  for (const Option& option : declared()) {
    CAPTURE(option.name);
    CHECK(page.find("  " + heading(option) + "\n") != std::string::npos);
  }
  CHECK_THAT(page, Contains("Default: spawn.") && Contains("[PET_START_METHOD]"));
  std::istringstream lines(page);
  for (std::string line; std::getline(lines, line);) CHECK(line.size() <= 80);
}

TEST_CASE("man page: has each option, and nothing in it is a request that roff does not know", "[apps][unit]") {
  const std::string page = man_page(declared(), "1.2.3");
  CHECK_THAT(page, Catch::StartsWith(".TH DDPRUN 1 \"\" \"ddprun 1.2.3\""));
  for (const Option& option : declared()) {
    std::string name;
    for (const char c : "--" + option.name) name += c == '-' ? std::string("\\-") : std::string(1, c);
    CAPTURE(option.name);
    CHECK(page.find(name) != std::string::npos);
  }
  const std::set<std::string> known = {".TH", ".SH", ".SS", ".TP", ".B", ".PP", ".nf", ".fi", ".RS", ".RE"};
  std::istringstream lines(page);
  for (std::string line; std::getline(lines, line);) {
    CAPTURE(line);
    CHECK_FALSE(line.starts_with('\''));
    if (line.starts_with('.')) CHECK(known.contains(line.substr(0, line.find(' '))));
  }
}

TEST_CASE("choices: the words in lower case of a metavar", "[apps][unit]") {
  CHECK(choices({.name = "a", .metavar = "N|cpu|gpu|auto"}) == std::vector<std::string>{"cpu", "gpu", "auto"});
  CHECK(choices({.name = "b", .metavar = "core-complex|c10d"}) == std::vector<std::string>{"core-complex", "c10d"});
  CHECK(choices({.name = "c", .metavar = "HOST[:PORT]"}).empty());
  CHECK(choices({.name = "d", .metavar = ""}).empty());
}
