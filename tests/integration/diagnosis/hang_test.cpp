// SPDX-License-Identifier: BSD-3-Clause
// --hang-timeout and --on-hang with workers of libddp, and the stacks that are taken before a job is stopped. What a
// hang is, is tested in tests/launcher/diagnosis; hangs of PyTorch are in tests/interop/hangs.
#include <signal.h>

#include <catch2/catch.hpp>
#include <map>
#include <nlohmann/json.hpp>
#include <sstream>
#include <string>
#include <vector>

#include "tests/integration/ddprun.hpp"
#include "tests/support/ports.hpp"

using Catch::Matchers::Contains;
using nlohmann::json;
using namespace ddp::testing;

namespace {

constexpr char kSanitizedLoop[] = "a loop that counts is in one of the sanitizer's functions, and then in another";

const Words kForEver = {"say=up", "wait"};
constexpr std::size_t kWays = 10;  // in hanging_worker.cpp, without those that need steps

// Returns the lines of ddprun's JSON log that are about this kind of event.
std::vector<json> events(const std::string& err, const std::string& kind) {
  std::vector<json> found;
  std::istringstream lines(err);
  for (std::string line; std::getline(lines, line);) {
    const json event = json::parse(line, nullptr, false);
    if (event.is_object() && event.value("event", "") == kind) found.push_back(event);
  }
  return found;
}

void skip_without_stacks(const json& details) {
  for (const json& worker : details.at("stacks")) {
    for (const std::string missing : worker.at("missing")) {
      if (missing.find("eu-stack") != std::string::npos) skip("no stacks of native code here: " + missing);
    }
  }
}

// Runs the worker until it has hung in all ways, and checks who is named for each.
void check_all_ways(const Words& arguments, std::size_t ways) {
  const Words options = {"--nproc-per-node=3", "--hang-timeout=0.3", "--on-hang=restart", "--max-restarts=20",
                         "--log-format=json"};
  const Result job = run(ddprun_raw(options + Words{HANGING_WORKER_BINARY} + arguments));
  CAPTURE(job.out, job.err);
  CHECK(job.code == 0);
  std::istringstream announced(job.out);
  const std::vector<json> hangs = events(job.err, "hang");
  REQUIRE(hangs.size() == ways);
  for (const json& hang : hangs) {
    std::string word, name, line;
    announced >> word >> name >> line;
    INFO(name << ": " << hang.at("reason").get<std::string>());
    const json& details = hang.at("details");
    skip_without_stacks(details);
    CHECK(details.at("ranks") == json({1}));
    CHECK(details.at("verdict") == (name == "is_stopped" ? "stopped" : "awaited"));
    CHECK(details.at("place") == "hanging_worker.cpp:" + line);
    const json& waiting = details.at("stacks").at(0).at("calls").at(0);
    CHECK(waiting.at("group") == "world");
    CHECK(waiting.at("under_way").at(0).at("operation") == "all_reduce");
  }
}

}  // namespace

TEST_CASE("hang: each of a table of hangs has its rank and line named, and the job goes on",
          "[launcher][integration]") {
  skip_with_thread_sanitizer(kSanitizedLoop);
  check_all_ways({}, kWays);
}

TEST_CASE("hang: workers that show steps hang when the step stands still, whatever they seem to do",
          "[launcher][integration]") {
  check_all_ways({"steps"}, 1);
}

TEST_CASE("hang: a rank that is only slow is no hang, and the page of the job names it", "[launcher][integration]") {
  Process job(ddprun_raw({"--nproc-per-node=3", "--hang-timeout=0.2", HANGING_WORKER_BINARY, "slow"}));
  json slow;
  while (slow.is_null()) {
    const Result shown = run(ddprun_raw({"ps", std::to_string(job.pid()), "--json"}));
    const json state = json::parse(shown.out, nullptr, false);
    if (state.is_object()) slow = state.at("slow_rank");
  }
  CHECK(slow == 1);
  const Result page = run(ddprun_raw({"ps", std::to_string(job.pid())}));
  CHECK_THAT(page.out, Contains("rank 1 is slow: the others wait for it ") && Contains("COLLECTIVES  NOW IN"));
  const Result all = run(ddprun_raw({"report", std::to_string(job.pid())}));
  CHECK_THAT(all.out, Contains("rank 2, group world, the last of ") && Contains(" all_reduce of 7 float32: "));
  job.signal(SIGTERM);
  const Result end = job.wait();
  CAPTURE(end.err);
  CHECK_THAT(end.err, !Contains("no progress"));
}

TEST_CASE("hang: with --on-hang tell the job goes on, and says so when it does", "[launcher][integration]") {
  Process job(ddprun({"--nproc-per-node=2", "--hang-timeout=0.2"},
                     {"note=USR1", "say=up", "until=USR1", "say=more", "exit=0"}));
  job.wait_for("no progress: no output and no step for ");
  job.wait_for("all ranks are at one place");
  tell_workers(job);
  const Result end = job.wait();
  CAPTURE(end.err);
  CHECK(end.code == 0);
}

TEST_CASE("hang: with --on-hang stop the job ends with code 1, though restarts are left", "[launcher][integration]") {
  const Result job = run(
      ddprun({"--nproc-per-node=2", "--hang-timeout=0.2", "--on-hang=stop", "--max-restarts=3"}, {"say=up", "wait"}));
  CAPTURE(job.err);
  CHECK(job.code == 1);
  CHECK_THAT(job.err, Contains("stopped: no output and no step for ") && !Contains("restart 1"));
}

TEST_CASE("hang: the first line of a verdict says that py-spy is missing, and how to get it",
          "[launcher][integration]") {
  if (run({"python3", "-c", "pass"}).code != 0) skip("there is no python3");
  const TemporaryFolder folder;
  const auto first_line = [](const std::string& path) {
    const Result job = run(ddprun_raw({"--hang-timeout=0.1", "--on-hang=stop", "--log-format=json", "python3", "-c",
                                       "import time; time.sleep(1000)"}),
                           {.environment = {{"PATH", path}}});
    const std::vector<json> hangs = events(job.err, "hang");
    CAPTURE(job.err);
    REQUIRE(hangs.size() == 1);
    const std::string reason = hangs[0].at("reason");
    return reason.substr(0, reason.find('\n'));
  };
  const std::string system = "/usr/bin:/bin";  // Debian has no py-spy
  CHECK_THAT(first_line(system), Catch::EndsWith(" (no py-spy: `pip install py-spy` shows Python's lines)"));
  write_file(folder / "py-spy", "#!/bin/sh\n", true);
  CHECK_THAT(first_line(folder.path() + ":" + system), !Contains("py-spy"));
}

TEST_CASE("hang: --on-hang is refused where it could do nothing, or harm", "[launcher][integration]") {
  const Result alone = run(ddprun({"--on-hang=stop"}, {"exit=0"}));
  CHECK(alone.code == 2);
  CHECK_THAT(alone.err, Contains("--on-hang stop does nothing without --hang-timeout TIME"));
}

TEST_CASE("hang: on two nodes both name the rank and its line, though it is on one of them",
          "[launcher][integration]") {
  skip_with_thread_sanitizer(kSanitizedLoop);
  const Words options = {"--nnodes=2",        "--nproc-per-node=1", "--hang-timeout=0.3",
                         "--on-hang=restart", "--max-restarts=20",  "--log-format=json"};
  const std::string port = std::to_string(free_port());
  const auto node = [&](int rank) {
    return ddprun_raw(options + Words{"--node-rank=" + std::to_string(rank), "--master-port=" + port} +
                      Words{HANGING_WORKER_BINARY});
  };
  Process first(node(0)), second(node(1));
  const Result judge = first.wait(), other = second.wait();
  CAPTURE(judge.err, other.err, other.out);
  CHECK(judge.code == 0);
  CHECK(other.code == 0);
  const std::vector<json> verdicts = events(judge.err, "hang"), told = events(other.err, "hang");
  REQUIRE(verdicts.size() == kWays);
  REQUIRE(told.size() == kWays);
  std::istringstream announced(other.out);  // rank 1 is there
  for (std::size_t i = 0; i < verdicts.size(); ++i) {
    std::string word, name, line;
    announced >> word >> name >> line;
    INFO(name << ": " << verdicts[i].at("reason").get<std::string>());
    skip_without_stacks(verdicts[i].at("details"));
    CHECK(verdicts[i].at("details").at("stacks").size() == 2);
    for (const json& verdict : {verdicts[i], told[i]}) {
      CHECK(verdict.at("details").at("ranks") == json({1}));
      CHECK(verdict.at("details").at("verdict") == (name == "is_stopped" ? "stopped" : "awaited"));
      CHECK(verdict.at("details").at("place") == "hanging_worker.cpp:" + line);
      CHECK_THAT(verdict.at("reason").get<std::string>(), Contains("; rank 1 is on node "));
    }
  }
}

TEST_CASE("hang: with --on-hang stop a job of two nodes ends with code 1 on both", "[launcher][integration]") {
  const Words options = {"--nnodes=2", "--nproc-per-node=1", "--hang-timeout=0.2", "--on-hang=stop",
                         "--max-restarts=3"};
  const std::string port = std::to_string(free_port());
  const auto node = [&](int rank) {
    return ddprun(options + Words{"--node-rank=" + std::to_string(rank), "--master-port=" + port}, kForEver);
  };
  Process first(node(0)), second(node(1));
  for (Process* job : {&first, &second}) {
    const Result end = job->wait();
    CAPTURE(end.err);
    CHECK(end.code == 1);
    CHECK_THAT(end.err, Contains("no progress") && Contains("all ranks are at one place") && !Contains("restart 1"));
  }
}

TEST_CASE("stacks before the stop: a worker that died with a restart left stops nobody for stacks",
          "[launcher][integration]") {
  const Result job = run(ddprun({"--nproc-per-node=2", "--stacks-timeout=10", "--max-restarts=1", "--log-format=json"},
                                {"0/0:exit=3", "1/0:wait", "0/1:exit=4", "wait"}));
  CAPTURE(job.err);
  CHECK(job.code == 4);
  CHECK(events(job.err, "stacks").empty());
  const std::vector<json> ends = events(job.err, "job_failed");
  REQUIRE(ends.size() == 1);
  REQUIRE(ends[0].at("details").contains("stacks"));
  CHECK(ends[0].at("details").at("stacks").at(0).at("rank") == 1);
}

TEST_CASE("stacks before the stop: a timeout has them in the log though a restart is left", "[launcher][integration]") {
  const Words workers = {"0/0:error=Timed out waiting for rank 1", "0/0:exit=3", "1/0:wait", "exit=0"};
  const Result job =
      run(ddprun({"--nproc-per-node=2", "--stacks-timeout=10", "--max-restarts=1", "--log-format=json"}, workers));
  CAPTURE(job.err);
  CHECK(job.code == 0);
  const std::vector<json> told = events(job.err, "stacks");
  REQUIRE(told.size() == 1);
  CHECK(told[0].at("details").at("stacks").at(0).at("rank") == 1);
}

TEST_CASE("stacks before the stop: tools that never end delay it no longer than --stacks-timeout, which may be 0",
          "[launcher][integration]") {
  const TemporaryFolder folder;
  write_file(folder / "eu-stack", "#!/bin/sh\nexec sleep 1000\n", true);
  const Words workers = {"meet", "0:exit=3", "wait"};
  Process::Options options;
  options.environment = {{"PATH", folder.path() + ":" + getenv("PATH")}};
  const Result late = run(ddprun({"--nproc-per-node=2", "--stacks-timeout=2"}, workers), options);
  CAPTURE(late.err);
  CHECK(late.code == 3);
  CHECK_THAT(late.err, Contains("eu-stack: it took too long") && Contains("rank 1: "));
  const Result none = run(ddprun({"--nproc-per-node=2", "--stacks-timeout=0"}, workers));
  CHECK(none.code == 3);
  CHECK_THAT(none.err, !Contains("what the others did"));
}

TEST_CASE("stacks: a worker lets what the agent starts look into it (Yama)", "[launcher][integration]") {
  skip_with_sanitizer("no program ends well that is traced");
  const Words strace = {"strace", "-f", "-e", "trace=prctl"};
  if (run(strace + Words{"true"}).code != 0) skip("no strace here, or it may trace nothing");
  const Result job = run(strace + ddprun_raw({"--nproc-per-node=1", FAKE_WORKER_BINARY, "exit=0"}));
  CHECK(job.code == 0);
  CHECK_THAT(job.err, Contains("prctl(PR_SET_PTRACER, "));
}

TEST_CASE("stacks before the stop: the report of a failure ends with what the others did", "[launcher][integration]") {
  const Words workers = {"note=USR1", "say=up", "0:until=USR1", "0:exit=3", "wait"};
  Process job(ddprun({"--nproc-per-node=3", "--stacks-timeout=10"}, workers));
  job.wait_for("up", 3);
  tell_workers(job);
  const Result end = job.wait();
  CAPTURE(end.err);
  CHECK(end.code == 3);
  CHECK_THAT(end.err, Contains("what the others did, before they were stopped:\n") && Contains("the kernel says: "));
  // One of them may still be in the handler of its signal.
  CHECK_THAT(end.err, Contains("ranks 1-2: ") || (Contains("rank 1: ") && Contains("rank 2: ")));
}
