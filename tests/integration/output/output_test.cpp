// SPDX-License-Identifier: BSD-3-Clause
// The workers' output arrives complete, with whole lines and unchanged bytes.
#include <unistd.h>

#include <algorithm>
#include <catch2/catch.hpp>
#include <csignal>
#include <filesystem>
#include <sstream>

#include "tests/integration/ddprun.hpp"

using namespace ddp::testing;

namespace {

bool has_workers(const Process& job) {
  const std::vector<pid_t> pids = job.left_over();
  return std::any_of(pids.begin(), pids.end(), [](pid_t pid) {
    return count(read_file("/proc/" + std::to_string(pid) + "/comm"), "fake_worker") > 0;
  });
}

bool ends_with(const std::string& text, const std::string& end) {
  return text.size() >= end.size() && text.compare(text.size() - end.size(), end.size(), end) == 0;
}

}  // namespace

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

TEST_CASE("output: a process that keeps a worker's pipe open does not block ddprun", "[launcher][integration]") {
  Process job(ddprun({"--nproc_per_node=2"}, {"escape", "say=last line"}));
  const Result result = job.wait();
  CHECK(result.code == 0);
  CHECK(count(result.out, "last line\n") == 2);
  CHECK(job.left_over().empty());
}

TEST_CASE("output: a slow reader slows the workers, and misses nothing", "[launcher][integration]") {
  constexpr int kLines = 20'000;
  Process job(ddprun({"--nproc_per_node=2"}, {"flood=" + std::to_string(kLines)}));
  job.wait_for("line 0 of");
  usleep(2'500'000);  // a slow reader: it reads nothing during this time
  const Result result = job.wait();
  CHECK(result.code == 0);
  CHECK(count(result.out, "is one whole line\n") == 2 * kLines);
  CHECK(count(result.err, "is one whole line\n") == 2 * kLines);
}

namespace {

// A worker that has ended after writing more than the pipe to the test holds, but less than that
// plus its own pipe.
struct SaidAndGone {
  static constexpr std::size_t kBytes = 120'000;
  SaidAndGone() : job(ddprun({"--log-dir", folder.path()}, {"error={}", "long=" + std::to_string(kBytes)})) {
    wait_until([&] { return has_started() && !has_workers(job); });
  }
  bool has_started() const {
    std::filesystem::recursive_directory_iterator files(folder.path());
    return std::any_of(begin(files), end(files), [](auto& file) { return file.path().filename() == "error.json"; });
  }
  TemporaryFolder folder;
  Process job;
};

}  // namespace

TEST_CASE("output: a reader that returns after the workers' end finds all of their output", "[launcher][integration]") {
  SaidAndGone worker;
  usleep(2'500'000);
  const Result result = worker.job.wait();
  CHECK(result.code == 0);
  CHECK(result.out.size() == SaidAndGone::kBytes + 1);
}

TEST_CASE("output: SIGTERM ends the wait for a reader that does not come back", "[launcher][integration]") {
  SaidAndGone worker;
  worker.job.signal(SIGTERM);
  wait_until([&] { return worker.job.left_over().empty(); });  // before anything is read
  CHECK(worker.job.wait().out.size() < SaidAndGone::kBytes);
}

TEST_CASE("output: an unread console does not block a teed worker, whose log is whole, and the gap is reported",
          "[launcher][integration][P13]") {
  constexpr int kLines = 50'000;
  const TemporaryFolder folder;
  Process job(ddprun({"--nproc_per_node=2", "-t", "3", "--log-dir", folder.path()},
                     {"flood=" + std::to_string(kLines), "wait"}));
  wait_until([&] {
    int whole = 0;
    for (const auto& entry : std::filesystem::recursive_directory_iterator(folder.path())) {
      const std::string end = "line " + std::to_string(kLines - 1) + " of rank";
      if (entry.path().filename() == "stdout.log" && count(read_file(entry.path()), end) == 1) ++whole;
    }
    return whole == 2;
  });
  job.signal(SIGTERM);
  const Result result = job.wait();
  CHECK(result.code == 128 + SIGTERM);
  CHECK(count(result.out, "[ddprun: stdout took nothing for a while; ") >= 1);
  std::istringstream lines(result.out);
  for (std::string line; std::getline(lines, line);) {
    const bool is_whole = ends_with(line, "is one whole line") || ends_with(line, "are in the log files only]");
    CAPTURE(line);
    REQUIRE(is_whole);
  }
}
