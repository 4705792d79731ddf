// SPDX-License-Identifier: BSD-3-Clause
// `ddprun stacks`, and how a job is named. What stacks contain is in tests/launcher/stacks, and with Python in
// tests/interop/test_stacks.py.
#include <signal.h>
#include <unistd.h>

#include <catch2/catch.hpp>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <string>

#include "tests/integration/ddprun.hpp"

using Catch::Matchers::Contains;
using nlohmann::json;
using namespace ddp::testing;

namespace {}  // namespace

TEST_CASE("stacks: the workers of a job that is named by its pid or the beginning of its id", "[apps][integration]") {
  const std::string id = "stacks-" + std::to_string(getpid());
  Process job(ddprun({"--nproc-per-node=2", "--rdzv-id=" + id + "-long"}, kUntilTold));
  job.wait_for("up", 2);
  for (const std::string& name : {std::to_string(job.pid()), id}) {
    const Result shown = run(ddprun_raw({"stacks", name}));
    CAPTURE(shown.out, shown.err);
    CHECK(shown.code == 0);
    CHECK_THAT(shown.out, Contains("rank") && Contains("the kernel says: "));
  }
  const json all = json::parse(run(ddprun_raw({"stacks", "--json", id})).out);
  REQUIRE(all.size() == 2);
  const std::vector<pid_t> workers = children_of(agent_of(job));
  for (const json& worker : all) CHECK(std::count(workers.begin(), workers.end(), worker.at("pid").get<pid_t>()) == 1);
  succeed(job);
}

TEST_CASE("stacks: where the system lets nobody trace, there are the states of threads, and a line that says so",
          "[apps][integration]") {
  skip_with_sanitizer("programs trace themselves when they end");
  Process job(Words{WITHOUT_CALL, "ptrace"} + ddprun({"--nproc-per-node=2"}, kUntilTold));
  job.wait_for("up", 2);
  const Result shown = run(ddprun_raw({"stacks", std::to_string(job.pid())}));
  CAPTURE(shown.out, shown.err);
  CHECK(shown.code == 0);
  CHECK_THAT(shown.out, Contains("ranks 0-1: asleep in "));
  if (shown.out.find("no eu-stack") == std::string::npos) CHECK_THAT(shown.out, Contains("Operation not permitted"));
  succeed(job);
}

TEST_CASE("stacks: a name that means no job, or two, is refused with the jobs there are", "[apps][integration]") {
  const std::string id = "twice-" + std::to_string(getpid());
  Process first(ddprun({"--nproc-per-node=1", "--rdzv-id=" + id + "a"}, kUntilTold));
  Process second(ddprun({"--nproc-per-node=1", "--rdzv-id=" + id + "b"}, kUntilTold));
  first.wait_for("up");
  second.wait_for("up");
  const Result two = run(ddprun_raw({"stacks", id}));
  CHECK(two.code == 2);
  CHECK_THAT(two.err, Contains("which job?") && Contains(id + "a (pid " + std::to_string(first.pid()) + ")"));
  const Result none = run(ddprun_raw({"stacks", "no-such-job"}));
  CHECK(none.code == 2);
  CHECK_THAT(none.err, Contains("no job is called no-such-job; there are ") && Contains(id + "b (pid "));
  succeed(first);
  succeed(second);
  CHECK(run(ddprun_raw({"stacks", "a", "b"})).code == 2);
}

TEST_CASE("commands: a file of the same name in the working directory is a program, and a folder of logs is none",
          "[apps][integration]") {
  const TemporaryFolder folder;
  std::filesystem::create_symlink(FAKE_WORKER_BINARY, folder / "stacks");
  const Result here = run({"env", "-C", folder.path(), DDPRUN_BINARY, "stacks", "say=a worker"});
  CHECK(here.code == 0);
  CHECK(here.out == "a worker\n");
  std::filesystem::create_directory(folder / "logs");  // as --log-dir logs makes it
  const Result logs = run({"env", "-C", folder.path(), DDPRUN_BINARY, "logs", "no-such-job"});
  CHECK(logs.err.starts_with("ddprun logs: "));  // the command's own words: no such job, or none at all
}
