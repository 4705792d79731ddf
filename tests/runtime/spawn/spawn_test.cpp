// SPDX-License-Identifier: BSD-3-Clause
// ddp::spawn in a real program, spawn_worker.cpp: the environment of its processes, the effects of a failure, and that
// no process is left.
#include <algorithm>
#include <catch2/catch.hpp>
#include <chrono>
#include <csignal>
#include <sstream>
#include <string>
#include <vector>

#include "tests/support/ports.hpp"
#include "tests/support/process.hpp"

using namespace ddp::testing;
using Catch::Matchers::Contains;
using Catch::Matchers::StartsWith;

namespace {

Result spawn(const std::string& scenario, int count = 2, const Process::Options& options = {}) {
  Process program({"env", "-u", "RANK", "-u", "WORLD_SIZE", SPAWN_WORKER, scenario, std::to_string(count)}, options);
  Result result = program.wait();
  INFO(result.out << result.err);
  CHECK(program.left_over().empty());
  return result;
}

std::string sorted(const std::string& text) {
  std::istringstream in(text);
  std::vector<std::string> lines;
  for (std::string line; std::getline(in, line);) lines.push_back(line + "\n");
  std::sort(lines.begin(), lines.end());
  std::string all;
  for (const std::string& line : lines) all += line;
  return all;
}

}  // namespace

TEST_CASE("spawn: the processes are the ranks of a job, and their collectives work", "[runtime][integration]") {
  CHECK(sorted(spawn("all_reduce", 1).out) == "all ended\nrank 0 of 1: 1\n");
  CHECK(sorted(spawn("all_reduce", 3).out) == "all ended\nrank 0 of 3: 6\nrank 1 of 3: 6\nrank 2 of 3: 6\n");
}

TEST_CASE("spawn: a process gets its rank, stays in its parent's process group and has no input",
          "[runtime][integration]") {
  CHECK(sorted(spawn("environment").out) ==
        "0: 0 0 2 2 127.0.0.1 same group reads 0\n1: 1 1 2 2 127.0.0.1 same group reads 0\n");
}

TEST_CASE("spawn: an exception reaches the parent with its rank and text", "[runtime][integration]") {
  const Result standard = spawn("exception", 3);
  CHECK(standard.out == "SpawnError 1 1 0 6 spawn: rank 1 of 3 failed: the data is gone\n");
  CHECK(standard.code == 1);
  CHECK(spawn("ddp error", 3).out == "SpawnError 1 1 0 7 spawn: rank 1 of 3 failed: the file is torn\n");
  CHECK(spawn("no exception class").out ==
        "SpawnError 1 1 0 6 spawn: rank 1 of 2 failed: it threw something that is no std::exception\n");
  CHECK_THAT(spawn("long text").out,
             StartsWith("SpawnError 1 1 0 6 spawn: rank 1 of 2 failed: xxxxxxxxxxxxxxxxxxxxxx"));
}

TEST_CASE("spawn: a signal reaches the parent with its meaning, an exit code as it is", "[runtime][integration]") {
  CHECK(spawn("segmentation fault", 3).out ==
        "SpawnError 1 -1 11 6 spawn: rank 1 of 3 was killed by SIGSEGV (Segmentation fault)\n");
  CHECK(spawn("killed", 3).out == "SpawnError 1 -1 9 6 spawn: rank 1 of 3 was killed by SIGKILL (Killed)\n");
  CHECK(spawn("exit 3", 3).out == "SpawnError 1 3 0 6 spawn: rank 1 of 3 exited with code 3\n");
  CHECK(spawn("exit 0", 3).out.empty());
  CHECK(spawn("exit 0", 3).code == 0);
}

TEST_CASE("spawn: a rank that waits for a living one learns of another that died", "[runtime][integration]") {
  const Result result = spawn("hears why");
  CHECK_THAT(result.out,
             StartsWith("world: recv from rank 1 (1 B, tag 0): rank 2 of 3 was killed by SIGKILL (Killed)\n"));
  CHECK_THAT(result.out, Contains("SpawnError 2 -1 9 6 spawn: rank 2 of 3 was killed by SIGKILL (Killed)\n"));
}

TEST_CASE("spawn: a process that does not end when it is stopped is killed after the grace", "[runtime][integration]") {
  CHECK(spawn("hangs").out == "SpawnError 1 1 0 6 spawn: rank 1 of 3 failed: gives up\n");
}

TEST_CASE("spawn: without join it returns at once, and join waits", "[runtime][integration]") {
  CHECK(spawn("join later").out.substr(0, 20) == "running\nalive\nalive\n");
  CHECK(sorted(spawn("join later").out) == "alive\nalive\nanother\nended\nrank 0 goes on\nrank 1 goes on\nrunning\n");
}

TEST_CASE("spawn: no process outlives its parent", "[runtime][integration]") {
  for (const int number : {SIGKILL, SIGTERM}) {
    Process program({SPAWN_WORKER, "parent waits", "3"});
    program.wait_for(" runs\n", 3);
    program.signal(number);
    CHECK(program.wait().code == 128 + number);
    CHECK(program.all_gone());
  }
}

TEST_CASE("spawn: Ctrl-C reaches parent and processes alike", "[runtime][integration]") {
  Process::Options options;
  options.on_terminal = true;
  Process program({SPAWN_WORKER, "parent waits", "2"}, options);
  program.wait_for(" runs", 2);
  program.type("\x03");
  CHECK(program.wait().code == 128 + SIGINT);
  CHECK(program.all_gone());
}

TEST_CASE("spawn: daemons end with their context", "[runtime][integration]") {
  CHECK(spawn("daemons", 3).out == "all ended\n");
}

TEST_CASE("spawn: a failure that the program never takes is logged on stderr", "[runtime][integration]") {
  const Result result = spawn("unheard", 1);
  CHECK(result.code == 0);
  CHECK(result.err ==
        "libddp: spawn: rank 0 of 1 failed: in the wood (join() was not called; it would have thrown this)\n");
}

TEST_CASE("spawn: a process that cannot be forked safely gets an error with the reason", "[runtime][integration]") {
  const Result thread = spawn("from a thread");
  CHECK_THAT(thread.out, StartsWith("spawn: this process has "));
  CHECK_THAT(thread.out, Contains(" threads (spawn_worker, spawn_worker"));  // a sanitizer has one more
  CHECK_THAT(thread.out, Contains("rank 0\n"));                              // once the thread has ended
  CHECK(spawn("in a job").out ==
        "spawn: this process is a rank of a job, which no copy of it can be: end its session first\nrank 0\n");
  Process::Options fake;
  fake.environment = {{"DDP_CUDA_LIBRARY", FAKE_CUDA}};
  CHECK_THAT(spawn("with cuda", 1, fake).out,
             StartsWith("rank 0\nerror: spawn: this process has used CUDA, which does not work in a fork of it"));
}

TEST_CASE("spawn: a spawned process may spawn", "[runtime][integration]") {
  CHECK(sorted(spawn("nested").out) ==
        "rank 0 of 2: 3\nrank 0 of 3: 6\nrank 1 of 2: 3\nrank 1 of 3: 6\nrank 2 of 3: 6\n");
  CHECK(spawn("nested failure").out ==
        "SpawnError 0 1 0 6 spawn: rank 0 of 1 failed: spawn: rank 0 of 1 failed: deep down\n");
}

TEST_CASE("spawn: one spawn may follow another in a program", "[runtime][integration]") {
  CHECK(count(spawn("twice", 2).out, " of 2: 3\n") == 6);
}

TEST_CASE("spawn: hundreds of processes end as well as two", "[runtime][integration]") {
  CHECK(spawn("many", 300).out == "all ended\n");
  CHECK(count(spawn("all_reduce", 12).out, " of 12: 78\n") == 12);
}

TEST_CASE("spawn: a spawn that fails leaves nothing behind", "[runtime][integration]") {
  Process::Options few;
  few.max_open_files = 20;
  const Result result = spawn("many", 300, few);
  CHECK(result.code == 0);
  CHECK(result.out == "all ended\n");  // processes without a pidfd are polled
  few.max_open_files = 5;
  CHECK_THAT(spawn("many", 3, few).out, StartsWith("error: spawn: "));
}

TEST_CASE("spawn: what the parent has printed appears once", "[runtime][integration]") {
  CHECK(sorted(spawn("buffered").out) == "of C\nof C++\nrank 0\nrank 1\n");
}

TEST_CASE("spawn: a worker of ddprun spawns ranks of their own", "[runtime][integration]") {
  Process job({DDPRUN_BINARY, "--nproc-per-node", "2", SPAWN_WORKER, "all_reduce", "2"});
  const Result result = job.wait();
  CHECK(result.code == 0);
  CHECK(count(result.out, "rank 0 of 2: 3\n") == 2);
  CHECK(count(result.out, "rank 1 of 2: 3\n") == 2);
  CHECK(job.left_over().empty());
}

// ---- A master of the program's own ----

TEST_CASE("spawn: ranks that set MASTER_ADDR and MASTER_PORT themselves meet there", "[runtime][integration]") {
  const std::string port = std::to_string(free_port());
  const std::string there = " at localhost:" + port + "\n";
  Process::Options options;
  options.environment = {{"TEST_PORT", port}};
  CHECK(sorted(spawn("master inside", 2, options).out) == "rank 0 of 2: 3" + there + "rank 1 of 2: 3" + there);
  Process job({DDPRUN_BINARY, SPAWN_WORKER, "master inside", "2"}, options);
  CHECK(sorted(job.wait().out) == "rank 0 of 2: 3" + there + "rank 1 of 2: 3" + there);
  CHECK(job.left_over().empty());
}

TEST_CASE("spawn: a master that was set before stays, so that processes of several nodes meet there",
          "[runtime][integration]") {
  const std::string port = std::to_string(free_port());
  Process::Options first_node, second_node;
  first_node.environment = {{"TEST_PORT", port}, {"TEST_NODE", "0"}};
  second_node.environment = {{"TEST_PORT", port}, {"TEST_NODE", "1"}};
  Process first({SPAWN_WORKER, "one of two nodes", "2"}, first_node);
  Process second({SPAWN_WORKER, "one of two nodes", "2"}, second_node);
  const std::string there = " of 4: 10 at localhost:" + port + "\n";
  CHECK(sorted(first.wait().out) == "rank 0" + there + "rank 1" + there);
  CHECK(sorted(second.wait().out) == "rank 2" + there + "rank 3" + there);
  CHECK(first.left_over().empty());
  CHECK(second.left_over().empty());
}

TEST_CASE("spawn: it works from C", "[runtime][integration]") {
  CHECK_THAT(spawn("from C", 1).out, StartsWith("0 1 0 0 spawn: rank 0 of 1 failed: the group is null\n"));
  const std::string out = spawn("from C").out;
  CHECK_THAT(out, StartsWith("0 1 0 0 spawn: rank "));
  CHECK_THAT(out,
             Contains("rank 0 of 2 failed: the group is null\n") || Contains("rank 1 of 2 failed: the file is torn\n"));
  CHECK_THAT(out, Contains("\npids\nthe function to spawn is null\nspawn: 0 processes make no sense\n"));
}
