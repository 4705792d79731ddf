// SPDX-License-Identifier: BSD-3-Clause
// Signals that end a job, stop it or continue it, as a shell with job control sends them.
#include <catch2/catch.hpp>
#include <chrono>
#include <csignal>
#include <cstring>
#include <filesystem>
#include <thread>

#include "tests/integration/nodes/nodes.hpp"

using namespace ddp::testing;

namespace {

using Clock = std::chrono::steady_clock;

// A shell with job control, on a terminal. The test types commands and keys. The command is in
// $JOB, so that the shell's echo is not mistaken for the workers' output.
struct Shell : Process {
  explicit Shell(const Words& job) : Process({"bash", "--norc", "--noprofile", "--noediting", "-i"}, options(job)) {}

  static Options options(const Words& job) {
    std::string line;
    for (const std::string& word : job) line += (line.empty() ? "" : " ") + word;
    Options options;
    options.on_terminal = true;
    options.environment = {{"JOB", line}, {"PS1", "$ "}, {"HISTFILE", ""}};
    return options;
  }
  bool has_in_foreground(pid_t job) const {
    const auto deadline = Clock::now() + kDeadline;
    while (foreground() != job && Clock::now() < deadline) std::this_thread::yield();
    return foreground() == job;
  }
};

// Waits until all processes are in this state: 'T' stopped, 'S' asleep.
bool become(const std::vector<pid_t>& pids, char state) {
  const auto deadline = Clock::now() + kDeadline;
  for (const pid_t pid : pids) {
    while (state_of(pid) != state) {
      if (Clock::now() > deadline) return false;
      std::this_thread::yield();
    }
  }
  return true;
}

// Returns the pids that follow `before` on the console: "ready 123" -> 123.
std::vector<pid_t> pids_after(const std::string& before, const std::string& out) {
  std::vector<pid_t> pids;
  for (auto at = out.find(before); at != std::string::npos; at = out.find(before, at + 1)) {
    const std::string rest = out.substr(at + before.size());
    if (!rest.empty() && isdigit(static_cast<unsigned char>(rest[0]))) pids.push_back(std::stoi(rest));
  }
  return pids;
}

// Starts ddprun as a task of Slurm, with WRAPPER before its words, and kills the process that has started it.
void check_is_stopped_without_starter(const Words& wrapper) {
  // The shell stands for slurmstepd. The last exec keeps the pid that the variable has.
  const Words starter = {"sh", "-c", "sh -c 'exec env SLURM_TASK_PID=$$ \"$@\"' sh \"$@\" & wait", "sh"};
  Process job(starter + wrapper + ddprun({"--nproc_per_node=2"}, {"catch=TERM", "ready", "wait"}));
  job.wait_for("ready", 2);
  job.signal(SIGKILL);
  job.wait_for("which had started it, is gone: stopping the workers");
  job.wait_for("got SIGTERM", 2);
  CHECK(job.all_gone());
}

}  // namespace

TEST_CASE("signals: Ctrl-Z stops the workers and ddprun, bg and fg let all of them go on", "[launcher][integration]") {
  Shell shell(ddprun({"--nproc_per_node=2", "--shutdown-timeout=1"}, {"escape", "catch=INT", "ready", "wait"}));
  shell.type("$JOB\n");
  shell.wait_for("ready ", 2);
  shell.wait_for("escaped ", 2);
  std::vector<pid_t> pids = pids_after("ready ", shell.out());
  const std::vector<pid_t> escaped = pids_after("escaped ", shell.out());
  pids.insert(pids.end(), escaped.begin(), escaped.end());
  REQUIRE(pids.size() == 4);
  const pid_t guardian = only_child_of(shell.pid());

  shell.type("\x1a");
  shell.wait_for("Stopped");
  CHECK(become({guardian}, 'T'));
  CHECK(become(pids, 'T'));

  shell.type("bg\n");
  CHECK(become(pids, 'S'));
  CHECK(become({guardian}, 'S'));

  shell.type("fg\n");
  REQUIRE(shell.has_in_foreground(guardian));
  shell.type("\x1a");
  shell.wait_for("Stopped", 2);
  CHECK(become(pids, 'T'));
  shell.type("fg\n");
  REQUIRE(shell.has_in_foreground(guardian));
  CHECK(become(pids, 'S'));
  shell.type("\x03");
  shell.wait_for("got SIGINT", 2);
  shell.type("echo the code is $?; exit\n");
  shell.wait_for("the code is 130");
  shell.wait();
  CHECK(shell.all_gone());
}

TEST_CASE("signals: a stopped job that gets SIGTERM ends", "[launcher][integration]") {
  Shell shell(ddprun({"--nproc_per_node=2"}, {"catch=TERM", "ready", "wait"}));
  shell.type("$JOB\n");
  shell.wait_for("ready ", 2);
  shell.type("\x1a");
  shell.wait_for("Stopped");
  CHECK(become(pids_after("ready ", shell.out()), 'T'));
  // While bash believes the job stopped, its wait -f may return that as the job's status.
  shell.type("kill %1; while [[ $(jobs -s) ]]; do :; done; wait -f %1; echo the code is $?; exit\n");
  shell.wait_for("the code is 143");
  CHECK(count(shell.out(), "got SIGTERM") == 2);
  shell.wait();
  CHECK(shell.all_gone());
}

TEST_CASE("signals: a job inside a worker is stopped and goes on with it", "[launcher][integration]") {
  Shell shell(ddprun_raw({DDPRUN_BINARY, "--nproc_per_node=2", FAKE_WORKER_BINARY, "catch=INT", "ready", "wait"}));
  shell.type("$JOB\n");
  shell.wait_for("ready ", 2);
  const std::vector<pid_t> pids = pids_after("ready ", shell.out());
  const pid_t guardian = only_child_of(shell.pid());
  shell.type("\x1a");
  shell.wait_for("Stopped");
  CHECK(become(pids, 'T'));
  shell.type("fg\n");
  REQUIRE(shell.has_in_foreground(guardian));
  CHECK(become(pids, 'S'));
  shell.type("\x03");
  shell.wait_for("got SIGINT", 2);
  shell.type("exit\n");
  shell.wait();
  CHECK(shell.all_gone());
}

TEST_CASE("signals: Ctrl-Z stops nothing where no shell could continue the job", "[launcher][integration]") {
  // As in `ssh host ddprun ...` and `docker run -it`: ddprun leads the terminal's session.
  Process::Options terminal;
  terminal.on_terminal = true;
  Process job(ddprun({}, {"note=CONT", "catch=INT", "ready", "wait"}), terminal);
  job.wait_for("ready");
  job.type("\x1a");
  job.wait_for("got SIGCONT");
  CHECK(become({job.pid()}, 'S'));
  CHECK(become(pids_after("ready ", job.out()), 'S'));
  job.type("\x03");
  CHECK(job.wait().code == 128 + SIGINT);
  CHECK(job.all_gone());
}

TEST_CASE("signals: SIGCONT is passed on, also to a worker that has stopped itself", "[launcher][integration]") {
  Process job(ddprun({}, {"ready", "stop", "say=goes on"}));
  job.wait_for("ready");
  REQUIRE(become(pids_after("ready ", job.out()), 'T'));
  job.signal(SIGCONT);
  job.wait_for("goes on");
  CHECK(job.wait().code == 0);
}

TEST_CASE("signals: each of --signals-to-handle is forwarded unchanged and ends the job, even Ctrl-Z's",
          "[launcher][integration]") {
  for (const int number : {SIGUSR1, SIGUSR2, SIGTSTP, SIGWINCH, SIGALRM}) {
    const std::string name = sigabbrev_np(number);
    CAPTURE(name);
    Process job(ddprun({"--signals-to-handle=SIG" + name + ",SIGTERM", "--nproc_per_node=2"},
                       {"catch=" + name, "ready", "wait"}));
    job.wait_for("ready", 2);
    job.signal(number);
    const Result result = job.wait();
    CHECK(result.code == 128 + number);
    CHECK(count(result.out, "got SIG" + name) == 2);
    CHECK(job.all_gone());
  }
}

TEST_CASE("signals: a signal that is not in --signals-to-handle does not end the job", "[launcher][integration]") {
  // torchrun dies of this signal and leaves its workers behind.
  Process job(ddprun({"--signals-to-handle=SIGINT"}, {"catch=INT", "note=USR2", "ready", "wait"}));
  job.wait_for("ready");
  for (const int number : {SIGTERM, SIGHUP, SIGQUIT, SIGALRM, SIGPIPE}) job.signal(number);
  job.signal(SIGUSR2);
  job.wait_for("got SIGUSR2");
  job.signal(SIGINT);
  CHECK(job.wait().code == 128 + SIGINT);
}

TEST_CASE("signals: a terminal that hangs up ends the job", "[launcher][integration][A1]") {
  Process::Options terminal;
  terminal.on_terminal = true;
  const TemporaryFolder folder;
  Process job(ddprun({"--nproc_per_node=2", "--shutdown-timeout=1", "--log-dir", folder.path(), "-r3"},
                     {"escape", "catch=HUP", "ready", "wait"}),
              terminal);
  const auto all_ready = [&] {
    int ready = 0;
    for (const auto& entry : std::filesystem::recursive_directory_iterator(folder.path())) {
      if (entry.path().filename() == "stdout.log") ready += count(read_file(entry.path()), "ready");
    }
    return ready == 2;
  };
  const auto deadline = Clock::now() + kDeadline;
  while (!all_ready() && Clock::now() < deadline) std::this_thread::yield();
  job.hang_up();
  CHECK(job.wait().code == 128 + SIGHUP);
  CHECK(job.all_gone());
}

TEST_CASE("signals: a node that is stopped for longer than the wait for a lost node stays in the job",
          "[launcher][integration]") {
  const Hosts hosts(2);
  const Words conf = {"--rdzv-conf=keep_alive_interval=1,keep_alive_max_attempt=1", "--max-restarts=0"};
  // The job has a process group of its own, and a parent in another one: SIGTSTP stops no orphaned group. Without
  // job control bash then waits for the job's end alone; with it, wait returns at a stop, too.
  const std::string shell = "set -m; \"$@\" & set +m; echo job $!; wait $!";
  const auto words = [&](int node) {
    return hosts.on(node, Words{"bash", "-c", shell, "bash"} +
                              ddprun(static_job(2) + conf + Words{"--node_rank=" + std::to_string(node)},
                                     {"meet", "ready", "catch=USR1", "wait"}));
  };
  Process node0(words(0)), node1(words(1));
  node0.wait_for("ready ");
  node1.wait_for("ready ");
  node0.wait_for("job ");
  node1.wait_for("job ");
  const pid_t guardian = pids_after("job ", node1.out()).at(0);
  const std::vector<pid_t> workers = pids_after("ready ", node1.out());
  ::kill(guardian, SIGTSTP);
  CHECK(become({guardian}, 'T'));
  CHECK(become(workers, 'T'));
  const auto long_enough = Clock::now() + std::chrono::seconds(3);
  bool stays = true;
  while (stays && Clock::now() < long_enough) stays = state_of(workers.at(0)) == 'T';
  CHECK(stays);
  ::kill(guardian, SIGCONT);
  CHECK(become(workers, 'S'));
  ::kill(guardian, SIGUSR1);
  ::kill(pids_after("job ", node0.out()).at(0), SIGUSR1);
  CHECK(node0.wait().code == 0);
  CHECK(node1.wait().code == 0);
  CHECK(count(node0.err() + node1.err(), "lost") == 0);
  CHECK(hosts.all_gone());
}

TEST_CASE("signals: a task of Slurm is stopped when the process that has started it is gone",
          "[launcher][integration]") {
  check_is_stopped_without_starter({});
}

TEST_CASE("signals: a task of Slurm is stopped when the process that has started it is gone before it is watched",
          "[launcher][integration]") {
  if (run({"strace", "-o", "/dev/null", "true"}).code != 0) skip("no strace here, or it may trace nothing");
  // ddprun comes back from its first fork late, when the job has its workers. With -D it has the shell's pid.
  check_is_stopped_without_starter({"strace", "-D", "-o", "/dev/null", "-e", "inject=clone:delay_exit=2000000:when=1"});
}

TEST_CASE("signals: workers that slurmstepd itself signals are not signalled once more", "[launcher][integration]") {
  Process job(ddprun({"--nproc_per_node=2"}, {"note=USR1", "catch=TERM", "ready", "wait"}));
  job.wait_for("ready", 2);
  // As Slurm does where it finds the processes of a step as descendants, the youngest first.
  std::string pids;
  for (const pid_t worker : children_of(agent_of(job))) pids += std::to_string(worker) + " ";
  for (const pid_t pid : {agent_of(job), keeper_of(job), job.pid()}) pids += std::to_string(pid) + " ";
  const TemporaryFolder folder;
  std::filesystem::create_symlink("/bin/bash", folder / "slurmstepd");
  const Process slurmstepd({folder / "slurmstepd", "-c", "kill -USR1 " + pids + "; sleep 1000 & wait"});
  job.wait_for("got SIGUSR1", 2);
  job.signal(SIGTERM);
  const Result result = job.wait();
  CHECK(count(result.out, "got SIGUSR1") == 2);
  CHECK(count(result.out, "got SIGTERM") == 2);
  CHECK(job.all_gone());
}

TEST_CASE("signals: in the background of a shell no worker takes what is typed there", "[launcher][integration]") {
  Shell shell(ddprun({"--nproc_per_node=2", "--stdin=all"}, {"stdin"}));
  shell.type("$JOB &\n");
  shell.wait_for("rank 0 read ''");
  shell.wait_for("rank 1 read ''");
  shell.type("wait; exit\n");
  shell.wait();
  CHECK(shell.all_gone());
}

TEST_CASE("signals: a terminal that a killed worker has put into raw mode is restored", "[launcher][integration]") {
  const TemporaryFolder folder;
  Process::Options terminal;
  terminal.on_terminal = true;
  terminal.environment = {{"RAW", folder / "raw"}};
  const std::string worker =
      "if [ $RANK = 0 ]; then stty raw -echo; : > $RAW; sleep 1000; fi; until [ -e $RAW ]; do sleep 0.01; done; exit 3";
  const Words command = ddprun_raw({"--nproc_per_node=2", "--no-python", "sh", "-c", worker});
  const Result result = run(Words{"sh", "-c", "\"$@\"; echo the code is $?; stty -a", "sh"} + command, terminal);
  CHECK(count(result.out, "the code is 3") == 1);
  CHECK(count(result.out, " icanon") == 1);
  CHECK(count(result.out, " echo ") == 1);
}
