// SPDX-License-Identifier: BSD-3-Clause
// What workers print arrives whole, complete and as they wrote it.
#include <catch2/catch.hpp>
#include <csignal>
#include <sstream>

#include "tests/integration/ddprun.hpp"

using namespace ddp::testing;

TEST_CASE("output: lines of many workers never mix and none is lost", "[launcher][integration]") {
  constexpr int kLines = 300;
  const Result result = run(ddprun({"--nproc_per_node=4"}, {"lines=" + std::to_string(kLines)}));
  REQUIRE(result.code == 0);
  std::vector<int> next(4, 0);
  std::istringstream lines(result.out);
  for (std::string line; std::getline(lines, line);) {
    int number = -1, rank = -1, end = 0;
    sscanf(line.c_str(), "line %d of rank %d is one whole line%n", &number, &rank, &end);
    REQUIRE(end == static_cast<int>(line.size()));
    REQUIRE(number == next.at(static_cast<std::size_t>(rank))++);
  }
  CHECK(next == std::vector<int>(4, kLines));
}

TEST_CASE("output: one worker's bytes pass as they are, its last line unfinished or not", "[launcher][integration]") {
  CHECK(run(ddprun({}, {"part=no newline"})).out == "no newline");
  CHECK(run(ddprun({}, {std::string("say=\xff\xfe invalid UTF-8")})).out == "\xff\xfe invalid UTF-8\n");
  Process asking(ddprun({}, {"part=Name? ", "catch=TERM", "wait"}));
  asking.wait_for("Name? ");  // before there is a newline
  asking.signal(SIGTERM);
  asking.wait();
}

TEST_CASE("output: an unfinished line is ended before another's begins", "[launcher][integration]") {
  const Result result = run(ddprun({"--nproc_per_node=2"}, {"part=unfinished"}));
  CHECK((result.out == "unfinished\nunfinished"));
}

TEST_CASE("output: a closed stdout ends the output, not the job", "[launcher][integration]") {
  Process::Options closed;
  closed.close_stdout = true;
  Process job(ddprun({"--nproc_per_node=2"}, {"lines=500", "shout=done"}), closed);
  const Result result = job.wait();
  CHECK(result.code == 0);
  CHECK(count(result.err, "done\n") == 2);
}

TEST_CASE("output: a process that keeps a worker's pipe open does not hold ddprun back", "[launcher][integration]") {
  Process job(ddprun({"--nproc_per_node=2"}, {"escape", "say=last line"}));
  const Result result = job.wait();
  CHECK(result.code == 0);
  CHECK(count(result.out, "last line\n") == 2);
  CHECK(job.left_over().empty());
}
