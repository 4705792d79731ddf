// SPDX-License-Identifier: BSD-3-Clause
// `ddprun ps JOB`, `logs` and `stop` on one machine. Several nodes are in nodes/look_test.cpp.
#include <signal.h>
#include <unistd.h>

#include <catch2/catch.hpp>
#include <chrono>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <string>

#include "tests/integration/ddprun.hpp"

using Catch::Matchers::Contains;
using nlohmann::json;
using namespace ddp::testing;

namespace {

std::string pid_of(const Process& job) { return std::to_string(job.pid()); }

}  // namespace

TEST_CASE("look: ps JOB shows a job with what its workers use", "[apps][integration]") {
  Process job(ddprun({"--nproc-per-node=2", "--rdzv-id=seen", "--max-restarts=3"}, kUntilTold));
  job.wait_for("up", 2);
  json state;
  wait_until([&] {  // it has said so, and sleeps in a moment
    state = json::parse(run(ddprun_raw({"ps", pid_of(job), "--json"})).out);
    return state.at("nodes").at(0).at("workers").at(1).at("state") == "sleeps";
  });
  CHECK(state.at("job") == "seen");
  CHECK(state.at("phase") == "running");
  CHECK(state.at("max_restarts") == 3);
  CHECK(state.at("world_size") == 2);
  CHECK(state.at("error").is_null());
  const json& node = state.at("nodes").at(0);
  CHECK(node.at("coordinator") == true);
  CHECK(node.at("pid") == job.pid());
  CHECK(node.at("error").is_null());
  REQUIRE(node.at("workers").size() == 2);
  CHECK(node.at("workers")[1].at("rank") == 1);
  CHECK(node.at("workers")[1].at("rss_bytes") > 0);
  const Result page = run(ddprun_raw({"ps", pid_of(job)}));
  CHECK(page.code == 0);
  CHECK_THAT(page.out, Contains("job seen") && Contains("2 workers on 1 node") && Contains("coordinator"));
  succeed(job);
}

TEST_CASE("look: the GPUs of a node are shown with the ranks that use them, from the second look on",
          "[apps][integration]") {
  Process::Options options;
  options.environment = {{"LD_LIBRARY_PATH", FAKE_NVML_FOLDER}, {"FAKE_NVML_GPUS", "2"}};
  Process job(ddprun({"--nproc-per-node=1"}, kUntilTold), options);
  job.wait_for("up");
  json gpus;
  const auto deadline = std::chrono::steady_clock::now() + kDeadline;
  while (gpus.empty() && std::chrono::steady_clock::now() < deadline) {
    const json state = json::parse(run(ddprun_raw({"ps", pid_of(job), "--json"})).out);
    gpus = state.at("nodes").at(0).at("gpus");
  }
  REQUIRE(gpus.size() == 2);
  CHECK(gpus[1] == json::parse(R"({"index":1,"use_percent":11,"memory_bytes":2000000000,)"
                               R"("memory_total_bytes":8000000000,"ranks":[0]})"));
  const std::string page = run(ddprun_raw({"ps", pid_of(job)})).out;
  CHECK_THAT(page, Contains("11 %") && Contains("2.0 GB") && Contains("8.0 GB"));
  succeed(job);
}

TEST_CASE("look: report has versions, stacks, rounds and the environment, and no secret", "[apps][integration]") {
  Process::Options options;
  options.environment = {{"MY_TOKEN", "hunter2"}, {"MY_FLAG", "blue"}};
  Process job(ddprun({"--nproc-per-node=2", "--rdzv-id=told", "--max-restarts=1"}, kUntilTold), options);
  job.wait_for("up", 2);
  kill(children_of(agent_of(job)).front(), SIGKILL);
  job.wait_for("up", 4);
  const Result text = run(ddprun_raw({"report", pid_of(job)}));
  CAPTURE(text.out, text.err);
  CHECK(text.code == 0);
  CHECK_THAT(text.out, Contains("# Job told") && Contains("## What each rank does") && Contains("kernel: Linux"));
  CHECK_THAT(text.out, Contains("round 2 began, after 1 restart") && Contains("was killed by SIGKILL"));
  CHECK_THAT(text.out, Contains("MY_FLAG=blue") && Contains("MY_TOKEN=(not shown)") && !Contains("hunter2"));
  const json all = json::parse(run(ddprun_raw({"report", pid_of(job), "--json"})).out);
  CHECK(all.at("stacks").size() == 2);
  CHECK(all.at("details").at("round") == 2);
  CHECK(all.at("nodes").at(0).at("facts").at("max_restarts") == 1);
  succeed(job);
}

TEST_CASE("look: a job that fails leaves its report in the log folder", "[apps][integration]") {
  const TemporaryFolder folder;
  const Result failed =
      run(ddprun({"--nproc-per-node=2", "--log-dir=" + folder.path()}, {"1:shout=last words", "1:exit=7", "wait"}));
  CHECK(failed.code == 7);
  std::string root;
  for (const auto& entry : std::filesystem::directory_iterator(folder.path())) root = entry.path();
  const std::string text = read_file(root + "/report.txt");
  CHECK_THAT(text, Contains("rank 1 on node") && Contains("exited with code 7") && Contains("last words"));
  CHECK_THAT(text, Contains("## What each rank does") && Contains("round 1 began"));
  const json all = json::parse(read_file(root + "/report.json"));
  CHECK(all.at("details").at("rank") == 1);
  CHECK(run(ddprun({"--nproc-per-node=1", "--log-dir=" + folder.path()}, {"exit=0"})).code == 0);
  int reports = 0;
  for (const auto& entry : std::filesystem::recursive_directory_iterator(folder.path())) {
    reports += entry.path().filename() == "report.txt" ? 1 : 0;
  }
  CHECK(reports == 1);  // a job that succeeds leaves none
}

TEST_CASE("look: ps JOB --watch prints the page again, until the job has ended", "[apps][integration]") {
  Process job(ddprun({"--nproc-per-node=1"}, kUntilTold));
  job.wait_for("up");
  Process watch(ddprun_raw({"ps", pid_of(job), "--watch=10ms"}));
  watch.wait_for("1 worker on 1 node", 3);
  succeed(job);
  const Result result = watch.wait();
  CHECK(result.code == 0);
  CHECK_THAT(result.out, Contains(" %") && !Contains("\x1b"));  // the share of a CPU, from the second page on
  CHECK_THAT(result.err, Contains("the job has ended"));
}

TEST_CASE("look: ps --watch clears a terminal before each page", "[apps][integration]") {
  Process job(ddprun({"--nproc-per-node=1"}, kUntilTold));
  job.wait_for("up");
  Process::Options options;
  options.on_terminal = true;
  options.environment = {{"TERM", "xterm"}};
  const Words what = GENERATE(Words{}, Words{"JOB"});
  Process watch(ddprun_raw(Words{"ps", "--watch=10ms"} + (what.empty() ? what : Words{pid_of(job)})), options);
  watch.wait_for("\x1b[H\x1b[2J", 3);
  watch.type("\x03");
  CHECK(watch.wait().code == 128 + SIGINT);
  succeed(job);
}

TEST_CASE("look: top is refused, and what to use instead is named", "[apps][integration]") {
  const Result gone = run(ddprun_raw({"top", "--interval=1s"}));
  CHECK(gone.code == 2);
  CHECK_THAT(gone.err, Contains("use `ddprun ps JOB --watch 1s`"));
}

TEST_CASE("look: logs prints what the workers' files have, of all or of one", "[apps][integration]") {
  const TemporaryFolder folder;
  Process job(ddprun({"--nproc-per-node=2", "--tee=3", "--log-dir=" + folder.path()},
                     Words{"0:say=from zero", "1:shout=from one"} + kUntilTold));
  job.wait_for("up", 2);
  const Result all = run(ddprun_raw({"logs", pid_of(job)}));
  CHECK(all.code == 0);
  CHECK_THAT(all.out, Contains("[rank 0] from zero\n") && Contains("[rank 1] from one\n") && Contains("[rank 1] up\n"));
  const Result one = run(ddprun_raw({"logs", pid_of(job), "--rank", "1"}));
  CHECK(one.out == "up\nfrom one\n");
  const Result none = run(ddprun_raw({"logs", pid_of(job), "--rank=2"}));
  CHECK(none.code == 1);
  CHECK_THAT(none.err, Contains("rank 2 does not run on this machine"));
  succeed(job);
}

TEST_CASE("look: logs -f follows into the next round, and ends with the job", "[apps][integration]") {
  const TemporaryFolder folder;
  Process job(ddprun({"--nproc-per-node=1", "--tee=3", "--max-restarts=1", "--log-dir=" + folder.path()}, kUntilTold));
  job.wait_for("up");
  Process follower(ddprun_raw({"logs", pid_of(job), "-f"}));
  follower.wait_for("up");
  kill(only_child_of(agent_of(job)), SIGKILL);
  follower.wait_for("up", 2);
  succeed(job);
  CHECK(follower.wait().code == 0);
}

TEST_CASE("look: logs of a job without files says how to have some", "[apps][integration]") {
  Process job(ddprun({"--nproc-per-node=1"}, kUntilTold));
  job.wait_for("up");
  const Result none = run(ddprun_raw({"logs", pid_of(job)}));
  CHECK(none.code == 1);
  CHECK(none.out.empty());
  CHECK_THAT(none.err, Contains("not written into files") && Contains("--tee 3"));
  succeed(job);
}

TEST_CASE("look: stop ends a job in order, and waits for it", "[apps][integration]") {
  Process job(ddprun({"--nproc-per-node=2"}, {"catch=TERM", "say=up", "wait"}));
  job.wait_for("up", 2);
  const Result stop = run(ddprun_raw({"stop", pid_of(job)}));
  CHECK(stop.code == 0);
  CHECK_THAT(stop.out, Contains("has ended"));
  const Result result = job.wait();
  CHECK(result.code == 128 + SIGTERM);
  CHECK(count(result.out, "TERM") >= 2);
  CHECK(job.all_gone());
}

TEST_CASE("look: stop --save sends the signal first, and a job that ends by it is done", "[apps][integration]") {
  Process job(ddprun({"--nproc-per-node=2"}, {"note=USR1", "say=up", "until=USR1", "say=saved", "exit=0"}));
  job.wait_for("up", 2);
  const Result stop = run(ddprun_raw({"stop", pid_of(job), "--save", "SIGUSR1"}));
  CHECK(stop.code == 0);
  CHECK_THAT(stop.out, Contains("its workers got SIGUSR1") && Contains("has ended"));
  const Result result = job.wait();
  CHECK(result.code == 0);
  CHECK(count(result.out, "saved") == 2);
}

TEST_CASE("look: stop --save of a job that does not show that it has saved stops it when the time is over",
          "[apps][integration]") {
  Process job(ddprun({"--nproc-per-node=1"}, {"note=USR2", "say=up", "wait"}));
  job.wait_for("up");
  const Result stop = run(ddprun_raw({"stop", pid_of(job), "--save=USR2", "--within=300ms"}));
  CHECK(stop.code == 0);
  CHECK_THAT(stop.out, Contains("rank 0 did not show that the signal was handled within 300 ms"));
  CHECK(job.wait().code == 128 + SIGTERM);
}

TEST_CASE("look: stop --save sends nothing to workers that the signal would kill", "[apps][integration]") {
  Process job(ddprun({"--nproc-per-node=2"}, Words{"1:note=USR2"} + kUntilTold));
  job.wait_for("up", 2);
  const Result stop = run(ddprun_raw({"stop", pid_of(job), "--save", "SIGUSR2"}));
  CHECK(stop.code == 1);
  CHECK_THAT(stop.err, Contains("rank 0 does not handle SIGUSR2, which would end it: it was not sent"));
  CHECK_THAT(stop.err, Contains("it is not stopped, since not all of its workers got the signal"));
  const Result wrong = run(ddprun_raw({"stop", pid_of(job), "--save", "SIGKILL"}));
  CHECK(wrong.code == 2);
  CHECK_THAT(wrong.err, Contains("--save SIGKILL: give a signal that a program can handle"));
  CHECK_THAT(run(ddprun_raw({"stop", pid_of(job), "--within=5s"})).err, Contains("--within is the time for --save"));
  CHECK(children_of(agent_of(job)).size() == 2);
  succeed(job);
}

TEST_CASE("look: command words are words of ddprun only at the very first place", "[apps][integration]") {
  for (const std::string word : {"ps", "stacks", "logs", "stop", "chaos"}) {
    CAPTURE(word);
    const Result wrong = run(ddprun_raw({word, "--no-such-option"}));
    CHECK(wrong.code == 2);
    CHECK(wrong.err.starts_with("ddprun " + word + ": there is no option --no-such-option (ddprun " + word + " [JOB]"));
    CHECK_THAT(wrong.err, !Contains("usage: ddprun [options]"));
    CHECK_THAT(run(ddprun_raw({word, ""})).err, Contains("JOB is an empty word"));
    const Result help = run(ddprun_raw({word, "--help"}));
    CHECK(help.code == 0);
    CHECK(help.out.starts_with("usage: ddprun " + word + " [JOB]"));
    const TemporaryFolder folder;
    REQUIRE(symlink(FAKE_WORKER_BINARY, (folder / word).c_str()) == 0);
    const Result as_file = run({"env", "-C", folder.path(), DDPRUN_BINARY, word, "say=a worker"});
    CHECK(as_file.out == "a worker\n");
    const Result behind = run({"env", "-C", folder.path(), DDPRUN_BINARY, "--", "./" + word, "say=a worker"});
    CHECK(behind.out == "a worker\n");
  }
}
