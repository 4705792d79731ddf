// SPDX-License-Identifier: BSD-3-Clause
// `ddprun chaos`: whom it kills, when it ends, and what it refuses.
#include <signal.h>
#include <unistd.h>

#include <catch2/catch.hpp>
#include <string>

#include "tests/integration/ddprun.hpp"

using Catch::Matchers::Contains;
using namespace ddp::testing;

namespace {

Words chaos(const Process& job, const Words& options) {
  return ddprun_raw(Words{"chaos", std::to_string(job.pid())} + options);
}

// Returns the first rank that `ddprun chaos` says it has killed.
std::string killed_rank(const std::string& out) {
  const std::string before = ": worker: rank ";
  const std::size_t at = out.find(before);
  return at == std::string::npos ? "" : out.substr(at + before.size(), 1);
}

}  // namespace

TEST_CASE("chaos: workers are killed as often as asked for", "[apps][integration]") {
  Process job(ddprun({"--nproc-per-node=4", "--max-restarts=3"}, kUntilTold));
  job.wait_for("up", 4);
  const Result killed = run(chaos(job, {"--every=1ms", "--count=3"}));
  CAPTURE(killed.out, killed.err);
  CHECK(killed.code == 0);
  CHECK_THAT(killed.out, Contains("kills a worker every 1 ms, with --seed ") && Contains("kill 3: worker: rank "));
  CHECK(count(killed.out, ": worker: rank ") == 3);
  job.wait_for("restart 1 of 3");  // one restart may answer two kills
  kill(job.pid(), SIGTERM);
  job.wait();
  CHECK(job.all_gone());
}

TEST_CASE("chaos: a seed repeats which worker is killed", "[apps][integration]") {
  std::vector<std::string> ranks;
  for (int time = 0; time < 2; ++time) {
    Process job(ddprun({"--nproc-per-node=4"}, kUntilTold));
    job.wait_for("up", 4);
    ranks.push_back(killed_rank(run(chaos(job, {"--every=1ms", "--count=1", "--seed=7"})).out));
    CHECK(job.wait().code == 128 + SIGKILL);
    CHECK(job.all_gone());
  }
  CHECK_FALSE(ranks[0].empty());
  CHECK(ranks[0] == ranks[1]);
}

TEST_CASE("chaos: an agent, or all of a node, is killed, and nothing of it is left", "[apps][integration]") {
  const std::string kind = GENERATE("agent", "node");
  Process other(ddprun({"--nproc-per-node=1"}, kUntilTold));
  other.wait_for("up");
  Process job(ddprun({"--nproc-per-node=2", "--max-restarts=3"}, kUntilTold));
  job.wait_for("up", 2);
  const pid_t agent = agent_of(job);
  const Result killed = run(chaos(job, {"--every=1ms", "--kind=" + kind}));
  CAPTURE(killed.out, killed.err);
  CHECK(killed.code == 0);
  CHECK_THAT(killed.out, Contains("kill 1: " + kind + ": agent (pid " + std::to_string(agent) + ")"));
  CHECK(count(killed.out, "rank ") == (kind == "node" ? 2 : 0));
  CHECK_THAT(killed.out, Contains("the job has ended, after 1 kill\n"));
  CHECK(job.wait().code != 0);
  CHECK(job.all_gone());
  succeed(other);
}

TEST_CASE("chaos: it ends with the job, however long it would wait", "[apps][integration]") {
  Process job(ddprun({"--nproc-per-node=1"}, kUntilTold));
  job.wait_for("up");
  Process killer(chaos(job, {"--every=1h"}));
  killer.wait_for("kills a worker every 3600 s");
  succeed(job);
  const Result ended = killer.wait();
  CHECK(ended.code == 0);
  CHECK_THAT(ended.out, Contains("the job has ended, after 0 kills"));
}

TEST_CASE("chaos: a job that is not there is refused", "[apps][integration]") {
  Process job(ddprun({"--nproc-per-node=1"}, kUntilTold));
  job.wait_for("up");
  const Result none = run(ddprun_raw({"chaos", "no-such-job"}));
  CHECK(none.code == 2);
  CHECK_THAT(none.err, Contains("chaos: no job is called no-such-job; there are "));
  const Result wrong = run(ddprun_raw({"chaos", "--kind=all"}));
  CHECK(wrong.code == 2);
  CHECK_THAT(wrong.err, Contains("--kind all: give worker, agent or node"));
  succeed(job);
}

TEST_CASE("chaos and stop: the pids of a job in a container are others' outside, and nobody is killed or waited for",
          "[apps][integration]") {
  const std::string command = GENERATE("chaos", "stop");
  const Words in_container = {"unshare", "--pid", "--fork", "--mount-proc", "--kill-child"};
  if (run(in_container + Words{"true"}).code != 0) skip("this machine does not let the test have a pid namespace");
  const std::string id = "container-" + std::to_string(getpid());
  Process job(in_container + ddprun({"--nproc-per-node=2", "--rdzv-id=" + id}, kUntilTold));
  job.wait_for("up", 2);
  // The command has a pid namespace, too, where bystanders have the numbers of the job's processes.
  const Words bystanders = {"sh", "-c",
                            "for i in 1 2 3 4 5 6 7 8 9; do sleep 1000 & pids=\"$pids $!\"; done; \"$@\"; code=$?\n"
                            "for pid in $pids; do case $(cat /proc/$pid/stat) in *' S '*) echo lives;; esac; done\n"
                            "exit $code",
                            "sh"};
  Words words = {command, id};
  if (command == "chaos") words = words + Words{"--every=1ms", "--count=1"};
  const Result refused = run(in_container + bystanders + ddprun_raw(words));
  CAPTURE(refused.out, refused.err);
  CHECK(refused.code == 2);
  CHECK_THAT(refused.err, Contains(command + ": the job " + id + " runs in another pid namespace"));
  CHECK(count(refused.out, "lives") == 9);
  for (const pid_t worker : children_of(only_child_of(only_child_of(only_child_of(job.pid()))))) {
    kill(worker, SIGUSR1);
  }
  CHECK(job.wait().code == 0);
  CHECK(job.all_gone());
}
