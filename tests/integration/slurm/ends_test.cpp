// SPDX-License-Identifier: BSD-3-Clause
// How jobs end under Slurm: by themselves, by scancel, at the time limit, by a signal to a process of Slurm; and that
// nothing is left.
#include <catch2/catch.hpp>
#include <csignal>
#include <memory>

#include "tests/integration/slurm/cluster.hpp"

using namespace ddp::testing;
using Catch::Matchers::Contains;

namespace {

std::string ddprun_by_srun(const std::string& arguments) { return "exec srun ddprun --nproc-per-node 2 " + arguments; }

void check_end(const BatchJob& job, const BatchJob::End& end, const std::string& state, const std::string& code) {
  CHECK(end.states == Words{state});
  CHECK(end.exit_codes == Words{code});
  CHECK(job.all_gone());
}

// Workers that take 2 s to save when they are to stop.
std::unique_ptr<BatchJob> start_savers(const Slurm& slurm) {
  slurm.add_program(
      "saver",
      "#!/bin/bash\ntrap 'sleep 2; echo \"rank $RANK saved\"; exit 0' TERM\necho \"rank $RANK is ready\"\n"
      "while :; do sleep 0.1; done\n");
  auto job = std::make_unique<BatchJob>(slurm, kTwoNodes, ddprun_by_srun("./saver"));
  job->wait_for("is ready", 4);
  return job;
}

}  // namespace

TEST_CASE("slurm: a job ends with the code of the worker that failed, and each node reports it",
          "[slurm][integration]") {
  const Slurm slurm;
  const BatchJob exits(slurm, kTwoNodes, ddprun_by_srun("fake_worker meet 3:exit=7 wait"));
  const BatchJob dies(slurm, kTwoNodes, ddprun_by_srun("fake_worker meet 2:die=KILL wait"));
  const BatchJob again(slurm, kTwoNodes, ddprun_by_srun("--max-restarts 1 fake_worker meet 3/0:exit=7 place"));
  const BatchJob missing(slurm, kTwoNodes, ddprun_by_srun("--max-restarts 3 sh -c 'echo tried; exit 127'"));
  const BatchJob::End of_exits = exits.wait(), of_dies = dies.wait(), of_again = again.wait(),
                      of_missing = missing.wait();
  CAPTURE(of_exits.out, of_dies.out, of_again.out, of_missing.out);
  check_end(exits, of_exits, "FAILED", "7:0");
  CHECK(count(of_exits.out, "ddprun: fake_worker failed: rank 3 on node node2 exited with code 7") == 2);
  check_end(dies, of_dies, "FAILED", "137:0");
  check_end(again, of_again, "COMPLETED", "0:0");
  CHECK(count(of_again.out, "restart 1, store") == 4);
  check_end(missing, of_missing, "FAILED", "127:0");
  CHECK(count(of_missing.out, "ddprun:   not restarted: ") == 2);
}

TEST_CASE("slurm: scancel gives workers their time, then nothing is left", "[slurm][integration]") {
  const Slurm slurm;
  const auto savers = start_savers(slurm);
  const BatchJob stubborn(slurm, kTwoNodes, ddprun_by_srun("fake_worker ignore=TERM ready wait"));
  const BatchJob daemons(slurm, kTwoNodes, ddprun_by_srun("fake_worker daemon ready wait"));
  for (const BatchJob* job : {&stubborn, &daemons}) job->wait_for("ready", 4);
  slurm.ask({"scancel", savers->id(), stubborn.id(), daemons.id()});
  const BatchJob::End saved = savers->wait(), killed = stubborn.wait(), alone = daemons.wait();
  CAPTURE(saved.out, killed.out, alone.out);
  CHECK(count(saved.out, "saved") == 4);
  for (const BatchJob::End* end : {&saved, &killed, &alone}) CHECK(end->states == Words{"CANCELLED"});
  for (const BatchJob* job : std::vector<const BatchJob*>{savers.get(), &stubborn, &daemons}) CHECK(job->all_gone());
}

TEST_CASE("slurm: a job of root leaves no control group, however it ends", "[slurm][integration]") {
  const Slurm slurm("root");
  const BatchJob job(slurm, kTwoNodes, ddprun_by_srun("fake_worker ignore=TERM ready wait"));
  job.wait_for("ready", 4);
  slurm.ask({"scancel", "--signal=KILL", job.id()});  // all processes of the step at once
  job.wait();
  CHECK(job.all_gone());
  for (const char* node : {"node1", "node2", "node3"}) {
    CHECK(run(slurm.on(std::string("root@") + node, {"find", "/sys/fs/cgroup", "-name", "ddprun-*"})).out.empty());
  }
}

TEST_CASE("slurm: at the time limit workers have the time to save", "[slurm][integration]") {
  const Slurm slurm;
  const auto savers = start_savers(slurm);
  // A limit is a minute at least, and Slurm looks every 30 s.
  slurm.ask(
      {"bash", "-c", "scontrol update JobId=" + savers->id() + " EndTime=$(date -d '+1 sec' +%Y-%m-%dT%H:%M:%S)"});
  const BatchJob::End end = savers->wait();
  CAPTURE(end.out);
  CHECK(end.states == Words{"TIMEOUT"});
  CHECK(count(end.out, "saved") == 4);
  CHECK(savers->all_gone());
}

TEST_CASE("slurm: a signal of scancel reaches each worker once, and the job goes on", "[slurm][integration]") {
  const Slurm slurm;
  const std::string workers = ddprun_by_srun("fake_worker note=USR1 ready until=USR1 meet");
  const BatchJob steps_only(slurm, kTwoNodes, workers), with_script(slurm, kTwoNodes, workers);
  for (const BatchJob* job : {&steps_only, &with_script}) job->wait_for("ready", 4);
  slurm.ask({"scancel", "--signal=USR1", steps_only.id()});
  slurm.ask({"scancel", "--signal=USR1", "--full", with_script.id()});
  for (const BatchJob* job : {&steps_only, &with_script}) {
    const BatchJob::End end = job->wait();
    CAPTURE(end.out);
    check_end(*job, end, "COMPLETED", "0:0");
    CHECK(count(end.out, "got SIGUSR1") == 4);
    CHECK(count(end.out, "met 4") == 4);
  }
}

TEST_CASE("slurm: the signal before the time limit reaches each worker once", "[slurm][integration]") {
  only_in_full_run();
  const Slurm slurm;
  const BatchJob job(slurm, kTwoNodes + Words{"--time=1", "--signal=USR1@50"},
                     ddprun_by_srun("fake_worker note=USR1 ready until=USR1 meet"));
  const BatchJob::End end = job.wait();
  CAPTURE(end.out);
  check_end(job, end, "COMPLETED", "0:0");
  CHECK(count(end.out, "got SIGUSR1") == 4);
}

TEST_CASE("slurm: a job that is queued again runs again", "[slurm][integration]") {
  const Slurm slurm;
  const BatchJob job(slurm, kTwoNodes + Words{"--requeue"},
                     ddprun_by_srun("sh -c 'echo life ${SLURM_RESTART_COUNT:-0}; "
                                    "[ -n \"$SLURM_RESTART_COUNT\" ] || exec sleep 1000'"));
  job.wait_for("life 0", 4);
  slurm.ask({"scontrol", "requeue", job.id()});
  job.hurry();
  job.wait_for("life 1", 4);
  const BatchJob::End end = job.wait();
  CAPTURE(end.out);
  check_end(job, end, "COMPLETED", "0:0");
  CHECK(count(end.out, "life 1") == 4);
}

TEST_CASE("slurm: ddprun ends with the slurmstepd that has started it", "[slurm][integration]") {
  const Slurm slurm;
  const BatchJob job(slurm, kTwoNodes, ddprun_by_srun("fake_worker catch=TERM ready wait"));
  job.wait_for("ready", 4);
  const std::vector<pid_t> launchers = job.launchers();
  REQUIRE(launchers.size() == 2);
  kill(parent_of(launchers.front()), SIGKILL);
  job.wait_for_launchers();        // srun waits for a word of its slurmstepd for ever
  job.wait_for("got SIGTERM", 2);  // The other node writes it, through srun, perhaps after its ddprun has ended.
}

TEST_CASE("slurm: when ddprun of one node is killed, no worker of any node is left", "[slurm][integration]") {
  const Slurm slurm;
  const BatchJob job(slurm, kTwoNodes, ddprun_by_srun("fake_worker ready wait"));
  job.wait_for("ready", 4);
  const std::vector<pid_t> launchers = job.launchers();
  REQUIRE(launchers.size() == 2);
  kill(launchers.front(), SIGKILL);
  const BatchJob::End end = job.wait();
  CAPTURE(end.out);
  CHECK(end.states == Words{"FAILED"});
  CHECK(job.all_gone());
}

TEST_CASE("slurm: two Ctrl-C at srun end everything", "[slurm][integration]") {
  only_in_full_run();
  const Slurm slurm;
  Process job(slurm.as_user({"srun", "--nodes=2", "--ntasks-per-node=1", "ddprun", "--nproc-per-node=2", "fake_worker",
                             "ready", "wait"}),
              {.on_terminal = true});
  job.wait_for("ready", 4);
  job.type("\x03\x03");
  CHECK(job.wait().code != 0);
  CHECK(job.all_gone());
}

TEST_CASE("slurm: slurmd may be started again while a job runs", "[slurm][integration]") {
  only_in_full_run();
  const Slurm slurm;
  const BatchJob job(slurm, kTwoNodes + Words{"--nodelist=node1,node2"},
                     ddprun_by_srun("fake_worker note=USR1 ready until=USR1 meet"));
  job.wait_for("ready", 4);
  const Words restart = {"sh", "-c",
                         "kill -9 $(cat /run/slurmd.pid); exec env -u DDPRUN_TEST_MARK setsid slurmd -N node2"};
  CHECK(run(slurm.on("root@node2", restart)).code == 0);
  wait_until([&] { return slurm.ask({"sinfo", "-h", "-n", "node2", "-o", "%T"}).find('*') == std::string::npos; });
  slurm.ask({"scancel", "--signal=USR1", job.id()});
  const BatchJob::End end = job.wait();
  CAPTURE(end.out);
  check_end(job, end, "COMPLETED", "0:0");
}
