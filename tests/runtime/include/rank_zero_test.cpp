// SPDX-License-Identifier: BSD-3-Clause
// Output of rank 0 only: lines, a progress bar; on a terminal, in a pipe, under ddprun.
#include <catch2/catch.hpp>
#include <string>

#include "ddp/training/progress_bar.hpp"
#include "tests/support/process.hpp"

using namespace ddp::testing;
using Catch::Matchers::Contains;
using Catch::Matchers::EndsWith;
using Catch::Matchers::StartsWith;
using ddp::detail::progress_line;

namespace {

std::string line(std::uint64_t count, std::uint64_t total, double seconds, std::size_t width = 0,
                 const std::string& postfix = "", std::uint64_t initial = 0) {
  const std::string description = "train";
  return progress_line({description, postfix, count, total, initial, seconds}, width);
}

Process::Options as_rank(const std::string& rank) {
  Process::Options options;
  options.environment = {{"RANK", rank}, {"WORLD_SIZE", "2"}, {"MASTER_ADDR", "127.0.0.1"}, {"MASTER_PORT", "1"}};
  return options;
}

std::string said(const std::string& scenario, Process::Options options) {
  options.environment.insert({"TERM", "xterm"});
  const Result result = run({RANK_ZERO_WORKER, scenario}, options);
  CHECK(result.code == 0);
  return options.on_terminal ? result.out : result.err;
}

}  // namespace

TEST_CASE("progress: a line has share, count, time, time left and rate", "[runtime][unit]") {
  CHECK(line(0, 1000, 0) == "train:   0% 0/1000 [00:00]");
  CHECK(line(420, 1000, 12) == "train:  42% 420/1000 [00:12, 00:16 left, 35.0/s]");
  CHECK(line(1000, 1000, 4000) == "train: 100% 1000/1000 [1:06:40, 4.0 s each]");
  CHECK(line(7, 0, 2) == "train: 7 [00:02, 3.5/s]");
  CHECK(line(12'345'678, 0, 2) == "train: 12345678 [00:02, 6172839/s]");
  CHECK(line(1200, 1000, 10) == "train: 100% 1200/1000 [00:10, 120.0/s]");
  CHECK(line(420, 1000, 12, 0, "loss 0.5") == "train:  42% 420/1000 [00:12, 00:16 left, 35.0/s] loss 0.5");
}

TEST_CASE("progress: the rate does not count what was done before", "[runtime][unit]") {
  CHECK(line(600, 1000, 10, 0, "", 500) == "train:  60% 600/1000 [00:10, 00:40 left, 10.0/s]");
  CHECK(line(500, 1000, 10, 0, "", 500) == "train:  50% 500/1000 [00:10]");
}

TEST_CASE("progress: the bar fills the terminal and no more", "[runtime][unit]") {
  CHECK(line(420, 1000, 12, 70) == "train:  42% [=======>           ] 420/1000 [00:12, 00:16 left, 35.0/s]");
  CHECK(line(1000, 1000, 10, 60) == "train: 100% [===================] 1000/1000 [00:10, 100.0/s]");
  CHECK(line(420, 1000, 12, 70).size() == 70);
  for (std::size_t width = 1; width < 200; ++width) {
    const std::string drawn = line(420, 1000, 12, width, "\xc3\xa9\xc3\xa9\xc3\xa9");
    CHECK(ddp::detail::columns_of(drawn) <= width);
    CHECK((static_cast<unsigned char>(drawn.back()) & 0xc0) != 0xc0);  // no half of a character
  }
  CHECK(line(420, 1000, 12, 20) == "train:  42% 420/1000");
}

TEST_CASE("rank zero: only rank 0 prints and runs rank_zero_only", "[runtime][integration]") {
  CHECK(said("only", as_rank("0")) == "on one rank\n7\n");
  CHECK(said("only", as_rank("1")).empty());
  Process job({DDPRUN_BINARY, "--nproc-per-node", "3", RANK_ZERO_WORKER, "only in a session"});
  const Result result = job.wait();
  CHECK(result.err == "rank 0 of 3\n");
  CHECK(job.left_over().empty());
}

TEST_CASE("rank zero: a process without a job is rank 0, and so is one whose job makes no sense",
          "[runtime][integration]") {
  Process::Options options;
  CHECK(run({"env", "-u", "RANK", "-u", "WORLD_SIZE", RANK_ZERO_WORKER, "only"}, options).err == "on one rank\n7\n");
  options.environment = {{"RANK", "many"}};
  CHECK(said("only", options) == "on one rank\n7\n");
}

TEST_CASE("progress: on a terminal one line is drawn again and again and its last state stays",
          "[runtime][integration]") {
  Process::Options options = as_rank("0");
  options.on_terminal = true;
  const std::string drawn = said("bar", options);
  CHECK(count(drawn, "\r") >= 100);
  CHECK_THAT(drawn, StartsWith("\rtrain:   0% ["));
  CHECK(count(drawn, "\n") == 1);
  const std::string last = drawn.substr(drawn.rfind("\rtrain"));
  CHECK_THAT(last, StartsWith("\rtrain: 100% [======") && Contains("100/100 [") && EndsWith(" loss 1\x1b[K\r\n"));
}

TEST_CASE("progress: lines that are logged meanwhile stand above the bar", "[runtime][integration]") {
  Process::Options options = as_rank("0");
  options.on_terminal = true;
  const std::string drawn = said("bar and lines", options);
  CHECK_THAT(drawn, Contains("\r\x1b[Ka line\r\ntrain:   1% ["));
  CHECK_THAT(drawn, EndsWith("\nafter it\r\n"));
}

TEST_CASE("progress: in a pipe there is a line now and then, without control characters", "[runtime][integration]") {
  const std::string often = said("bar", as_rank("0"));
  CHECK(often.find_first_of("\r\x1b") == std::string::npos);
  CHECK(count(often, "\n") == 101);  // at every tick, as the options say
  CHECK_THAT(often, EndsWith(" loss 1\n"));
  const std::string seldom = said("patient bar", as_rank("0"));
  CHECK(count(seldom, "\n") == 1);
  CHECK_THAT(seldom, StartsWith("100% 100/100 ["));
  CHECK(said("bar", as_rank("1")).empty());
  Process::Options dumb = as_rank("0");
  dumb.on_terminal = true;
  dumb.environment["TERM"] = "dumb";
  CHECK(count(said("patient bar", dumb), "\r") == 1);  // added by the terminal before the newline
}

TEST_CASE("progress: ddprun hands the lines of rank 0 through", "[runtime][integration]") {
  Process job({DDPRUN_BINARY, "--nproc-per-node", "2", "--tee", "3", RANK_ZERO_WORKER, "patient bar"});
  const Result result = job.wait();
  CHECK(result.code == 0);
  CHECK(count(result.err, "[default0]:100% 100/100 [") == 1);
  CHECK(count(result.err, "[default1]") == 0);
}

TEST_CASE("progress: a tick costs less than a microsecond", "[runtime][integration]") {
  CHECK_THAT(said("ticks", as_rank("0")), EndsWith("cheap\n"));
}
