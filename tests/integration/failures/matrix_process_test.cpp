// SPDX-License-Identifier: BSD-3-Clause
// Workers at their worst: the rows P of tests/failure_matrix that no other test covers.
#include <sys/sysinfo.h>
#include <sys/utsname.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <catch2/catch.hpp>
#include <csignal>
#include <cstring>
#include <filesystem>
#include <thread>

#include "tests/integration/failures/matrix.hpp"
#include "tests/support/hosts.hpp"
#include "tests/support/sanitizer.hpp"

using namespace ddp::testing;
using namespace std::chrono_literals;

// ---- Workers that end ----

TEST_CASE("failure: a worker that succeeds early is no failure, the others go on to their own end",
          "[launcher][integration][P2]") {
  for (const int n : {2, 8}) {
    Process job(ddprun({workers(n)}, {"0:exit=0", "catch=USR1", "ready", "wait"}));
    job.wait_for("ready", n - 1);
    wait_until([&] { return children_of(agent_of(job)).size() == static_cast<std::size_t>(n - 1); });
    job.signal(SIGUSR1);
    const Result result = job.wait();
    CHECK(result.code == 0);
    CHECK(result.err.empty());
    CHECK(count(result.out, "got SIGUSR1") == n - 1);
  }
}

TEST_CASE("failure: a worker that crashes leaves its core where the kernel puts it, and the report names the signal",
          "[launcher][integration][P3]") {
  for (const int n : worker_counts()) {
    for (const int number : {SIGSEGV, SIGABRT}) {
      const std::string name = sigabbrev_np(number);
      CAPTURE(n, name);
      const TemporaryFolder folder;
      const Result result = run(Words{"env", "-C", folder.path(), "prlimit", "--core=unlimited"} +
                                ddprun({workers(n)}, {"0:die=" + name, "wait"}));
      CHECK(result.code == 128 + number);
      CHECK(count(result.err, "rank 0 ") >= 1);
      CHECK(count(result.err, "SIG" + name) >= 1);
      // A sanitizer forbids core files, which would be terabytes.
      if (!kIsSanitized && read_file("/proc/sys/kernel/core_pattern") == "core\n") {
        CHECK(std::distance(std::filesystem::directory_iterator(folder.path()), {}) == 1);
      }
    }
  }
}

namespace {

// As ddprun logs it.
constexpr char kEarly[] = "; its memory is not freed yet";
constexpr char kLookedAt[] = "uses much memory and shows no liveness word: polled every ";

}  // namespace

TEST_CASE("failure: ddprun acts on a worker's death however much memory the kernel must first take back",
          "[launcher][integration][P4]") {
  const std::vector<int> sizes = full_matrix() ? std::vector<int>{0, 1024, 4096, 32768} : std::vector<int>{0, 256};
  for (const int megabytes : sizes) {
    struct sysinfo machine = {};
    sysinfo(&machine);
    if ((machine.freeram + machine.bufferram) / (1 << 20) * machine.mem_unit < static_cast<unsigned>(megabytes) + 500) {
      WARN("skipped: " << megabytes << " MB: this machine has not that much");
      continue;
    }
    CAPTURE(megabytes);
    std::vector<Clock::duration> times;
    for (int i = 0; i < (full_matrix() ? 9 : 3); ++i) {
      Process job(ddprun({workers(2), "--log-level=debug"},
                         {"0:resident=" + std::to_string(megabytes), "1:catch=TERM", "meet", "0:ready", "wait"}));
      job.wait_for("met", 2);
      job.wait_for("ready");
      job.wait_for("\n", 3);
      if (megabytes > 64) job.wait_for(kLookedAt);
      const auto start = Clock::now();
      ::kill(pids(job.out()).front(), SIGKILL);
      job.wait_for("got SIGTERM");
      times.push_back(Clock::now() - start);
      const Result result = job.wait();
      CHECK(result.code == 128 + SIGKILL);
      CHECK(count(result.err, "SIGKILL") >= 1);
      CHECK(job.left_over().empty());
    }
    std::sort(times.begin(), times.end());
    measured("SIGKILL of a worker of " + std::to_string(megabytes) + " MB to SIGTERM at the other, median",
             times[times.size() / 2]);
  }
}

namespace {

// Returns a job of two libddp workers. Rank 0 has that much memory, and ends in the given way.
Words dying(int megabytes, const std::string& how, const Words& options = {}) {
  return Words{DDPRUN_BINARY, "--log-level=debug", workers(2)} + options +
         Words{DYING_WORKER_BINARY, how, std::to_string(megabytes)};
}

double milliseconds_after(const std::string& out, const std::string& before) {
  const std::vector<std::string> times = all_after(out, before);
  return times.empty() ? -1 : std::stod(times.front());
}

void measured(const std::string& what, std::vector<double> times) {
  std::sort(times.begin(), times.end());
  std::cout << "measured: " << what << ": median " << times[times.size() / 2] << " ms, " << times.front() << " to "
            << times.back() << " ms\n";
}

}  // namespace

TEST_CASE("failure: ddprun acts on the death of a large libddp worker before the kernel has its memory back",
          "[launcher][integration][P4]") {
  const std::vector<int> sizes = full_matrix() ? std::vector<int>{10, 1024, 4096} : std::vector<int>{10, 512};
  for (const int megabytes : sizes) {
    for (const std::string how : {"wait", "exit=7"}) {
      CAPTURE(megabytes, how);
      const bool is_kill = how == "wait";
      std::vector<double> stopped, failed;
      int early = 0;
      for (int i = 0; i < (full_matrix() ? 9 : 2); ++i) {
        Process job(dying(megabytes, how));
        job.wait_for("ready ", 2);
        job.wait_for("\n", 2);
        const pid_t victim = worker_of_rank(agent_of(job), 0);
        const double start =
            std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now().time_since_epoch()).count();
        ::kill(victim, is_kill ? SIGKILL : SIGUSR1);
        const Result result = job.wait();
        CAPTURE(result.out, result.err);
        CHECK(result.code == (is_kill ? 128 + SIGKILL : 7));
        const std::string words = is_kill ? "was killed by SIGKILL" : "exited with code 7";
        early += count(result.err, words + kEarly);
        CHECK(count(result.err, "failed: rank 0 ") == 1);
        CHECK(count(result.err, words) >= 2);
        REQUIRE(count(result.out, "stopped at ") == 1);
        REQUIRE(count(result.out, "failed at ") == 1);
        CHECK(count(result.out, "rank 0 on ") == 1);  // the failure that the other rank's collective reports
        stopped.push_back(milliseconds_after(result.out, "stopped at ") - start);
        failed.push_back(milliseconds_after(result.out, "failed at ") - start);
        CHECK(job.left_over().empty());
      }
      if (megabytes > 100) CHECK(early > 0);  // always, unless the machine holds the agent up
      const std::string who =
          std::string(is_kill ? "SIGKILL" : "exit") + " of a libddp worker of " + std::to_string(megabytes) + " MB to ";
      measured(who + "SIGTERM at the other", stopped);
      measured(who + "the error of the other's collective", failed);
    }
  }
}

namespace {

// Runs two workers that know nothing of ddprun. Rank 0 has that much memory, and is killed once
// ddprun's log contains `seen`.
Result kill_plain_worker(int megabytes, const std::string& seen, const Words& options = {}) {
  Process job(Words{DDPRUN_BINARY, "--log-level=debug", workers(2)} + options +
              Words{FAKE_WORKER_BINARY, "0:resident=" + std::to_string(megabytes), "meet", "wait"});
  job.wait_for("met", 2);
  job.wait_for(seen);
  ::kill(worker_of_rank(agent_of(job), 0), SIGKILL);
  Result result = job.wait();
  CHECK(job.left_over().empty());
  CHECK(result.code == 128 + SIGKILL);
  CHECK(count(result.err, "failed: rank 0 ") == 1);
  return result;
}

}  // namespace

TEST_CASE("failure: ddprun acts on the death of any large worker before the kernel has its memory back",
          "[launcher][integration][P4]") {
  int early = 0;
  for (int i = 0; i < 3; ++i) early += count(kill_plain_worker(512, kLookedAt).err, kEarly);
  CHECK(early > 0);  // always, unless the machine holds the agent up
}

TEST_CASE("failure: --monitor-interval sets how often large workers are polled", "[launcher][integration][P4]") {
  const Result slow = kill_plain_worker(128, kLookedAt + std::string("3600000 ms"), {"--monitor-interval=3600"});
  CHECK(count(slow.err, kEarly) == 0);
  kill_plain_worker(128, kLookedAt + std::string("1 ms"), {"--monitor-interval=1e-9"});
}

TEST_CASE("failure: small workers are not polled", "[launcher][integration][P4]") {
  Process job(ddprun({workers(2), "--log-level=debug"}, {"meet", "0:wait", "1:nap=700", "1:exit=3"}));
  const Result result = job.wait();
  CHECK(result.code == 3);
  CHECK(count(result.err, kLookedAt) == 0);
  CHECK(count(result.err, kEarly) == 0);
}

TEST_CASE("failure: a libddp worker that loses its liveness word without failing is not a failure",
          "[launcher][integration][P2][P4]") {
  for (const std::string how : {"exit=0", "become=0", "leave=0"}) {
    CAPTURE(how);
    Process job(dying(64, how));
    job.wait_for("ready ", 2);
    job.wait_for("\n", 2);
    const pid_t agent = agent_of(job);
    ::kill(worker_of_rank(agent, 0), SIGUSR1);
    wait_until([&] { return children_of(agent).size() == 1; });
    ::kill(worker_of_rank(agent, 1), SIGUSR1);
    const Result result = job.wait();
    CAPTURE(result.out, result.err);
    CHECK(result.code == 0);
    CHECK(count(result.err, kEarly) == 0);
    CHECK(count(result.out, "stopped at ") == 0);
  }
}

TEST_CASE("failure: a libddp worker's exit code is its own, however it left its liveness word",
          "[launcher][integration][P4]") {
  for (const std::string how : {"become=9", "leave=9", "leave_well"}) {
    CAPTURE(how);
    Process job(dying(64, how));
    job.wait_for("ready ", 2);
    job.wait_for("\n", 2);
    ::kill(worker_of_rank(agent_of(job), 0), how == "leave_well" ? SIGKILL : SIGUSR1);
    const Result result = job.wait();
    CAPTURE(result.out, result.err);
    CHECK(result.code == (how == "leave_well" ? 128 + SIGKILL : 9));
    CHECK(count(result.err, "failed: rank 0 ") == 1);
    if (how == "become=9") CHECK(count(result.err, kEarly) == 0);  // it became another program, which is small
    CHECK(job.left_over().empty());
  }
}

TEST_CASE("failure: the death of a libddp worker is known early in every round", "[launcher][integration][P4]") {
  Process job(dying(512, "wait", {"--max-restarts=2"}));
  for (int round = 1; round <= 3; ++round) {
    job.wait_for("ready ", 2 * round);
    ::kill(worker_of_rank(agent_of(job), 0), SIGKILL);
  }
  const Result result = job.wait();
  CAPTURE(result.err);
  CHECK(result.code == 128 + SIGKILL);
  CHECK(count(result.err, kEarly) >= 2);  // out of three, see above
  CHECK(count(result.err, "restart ") == 2);
  CHECK(job.left_over().empty());
}

TEST_CASE("failure: a worker that is stopped for a while and goes on is no failure", "[launcher][integration][P6]") {
  for (const int n : worker_counts()) {
    const Result result = run(ddprun({workers(n), "--max-restarts=1"},
                                     {full_matrix() ? "0:nap=5000" : "0:nap=500", "env=TORCHELASTIC_RESTART_COUNT"}));
    CHECK(result.code == 0);
    CHECK(result.err.empty());
    CHECK(count(result.out, "[TORCHELASTIC_RESTART_COUNT=0]") == n);
  }
}

TEST_CASE("failure: if two, half, all but one or all workers are killed at once, one of them is the cause",
          "[launcher][integration][P24]") {
  constexpr int kWorkers = 8;
  for (const int killed : {2, kWorkers / 2, kWorkers - 1, kWorkers}) {
    CAPTURE(killed);
    Process job(ddprun({workers(kWorkers), "--max-restarts=1"}, {"ready", "1/1:exit=5", "wait"}));
    job.wait_for("ready", kWorkers);
    const pid_t agent = agent_of(job);
    std::vector<pid_t> to_kill;
    for (int rank = 0; rank < killed; ++rank) to_kill.push_back(worker_of_rank(agent, rank));
    for (const pid_t pid : to_kill) ::kill(pid, SIGKILL);
    const Result result = job.wait();
    CAPTURE(result.err);
    // A restart is one restart, however many workers died. Then rank 1 fails alone.
    CHECK(result.code == 5);
    REQUIRE(count(result.err, "restart 1 of 1: rank ") == 1);
    CHECK(std::stoi(all_after(result.err, "restart 1 of 1: rank ").front()) < killed);
    CHECK(count(result.err, "failed: rank 1 ") == 1);
    CHECK(job.left_over().empty());
  }
}

TEST_CASE("failure: an uncaught exception ends a worker that has other threads, and is quoted",
          "[launcher][integration][P25]") {
  for (const int n : worker_counts()) {
    const Result result = run(ddprun({workers(n)}, {"0:throw=the loss is no number", "wait"}));
    CHECK(result.code == 128 + SIGABRT);
    CHECK(count(result.err, "rank 0 ") >= 1);
    CHECK(count(result.err, "|   what():  the loss is no number") == 1);
  }
}

TEST_CASE("failure: a Python worker whose thread outlives its exception is stopped with the job",
          "[launcher][integration][P25]") {
  if (run({"python3", "-c", "pass"}).code != 0) skip("there is no python3");
  const TemporaryFolder folder;
  // Python itself waits for the thread: for ddprun, as for torchrun, this worker is running.
  const std::string script = folder.write("worker.py",
                                          "import threading\n"
                                          "threading.Thread(target=threading.Event().wait).start()\n"
                                          "raise RuntimeError('the loss is no number')\n");
  Process job(ddprun_raw({"--nproc_per_node=2", script}));
  job.wait_for("RuntimeError: the loss is no number", 2);
  CHECK(children_of(agent_of(job)).size() == 2);
  job.signal(SIGTERM);
  CHECK(job.wait().code == 128 + SIGTERM);
  CHECK(job.left_over().empty());
}

TEST_CASE("failure: a crash loop spends its budget, no more, and ends with the worker's own code",
          "[launcher][integration][P20]") {
  const int budget = full_matrix() ? 500 : 30;
  for (const int n : worker_counts()) {
    const auto start = Clock::now();
    Process job(ddprun({workers(n), "--max-restarts=" + std::to_string(budget)}, {"0:say=up", "0:exit=3", "wait"}));
    const Result result = job.wait();
    measured("a restart of " + std::to_string(n) + " workers in a crash loop", (Clock::now() - start) / (budget + 1));
    CHECK(result.code == 3);
    CHECK(count(result.out, "up") == budget + 1);
    CHECK(count(result.err, "restart ") == budget);
    CHECK(job.left_over().empty());
  }
}

// ---- Workers that multiply ----

TEST_CASE("failure: when the job has ended, a daemon that held a port is gone and the port is free",
          "[launcher][integration][P8]") {
  for (const int n : worker_counts()) {
    Process job(ddprun({workers(n), "--shutdown-timeout=1"}, {"0:daemon", "ready", "wait"}));
    job.wait_for("ready", n);
    job.wait_for("escaped ");
    const int port = std::stoi(all_after(job.out(), "port ").front());
    CHECK_FALSE(is_free(port));
    const auto start = Clock::now();
    job.signal(SIGTERM);
    CHECK(job.wait().code == 128 + SIGTERM);
    measured("SIGTERM to the end of a job with a daemon", Clock::now() - start);
    CHECK(is_free(port));
    CHECK(job.left_over().empty());
  }
}

TEST_CASE("failure: a fork bomb of a thousand processes, some new every moment, is killed to the last",
          "[launcher][integration][P9]") {
  for (const int n : worker_counts()) {
    Process job(ddprun({workers(n), "--shutdown-timeout=1"}, {"0:bomb=1000", "wait"}));
    job.wait_for("bombed");
    const auto start = Clock::now();
    job.signal(SIGTERM);
    CHECK(job.wait().code == 128 + SIGTERM);
    measured("SIGTERM to the end of a fork bomb", Clock::now() - start);
    CHECK(job.left_over().empty());
  }
}

TEST_CASE("failure: ten thousand dead grandchildren are reaped, and the job goes on", "[launcher][integration][P22]") {
  const int zombies = full_matrix() ? 10'000 : 2000;
  for (const int n : worker_counts()) {
    Process job(ddprun({workers(n)}, {"0:zombies=" + std::to_string(zombies), "catch=USR1", "ready", "wait"}));
    job.wait_for("ready", n);
    job.wait_for("zombies made");
    const pid_t agent = agent_of(job);
    const auto start = Clock::now();
    wait_until([&] { return children_of(agent).size() == static_cast<std::size_t>(n); });
    measured("to reap " + std::to_string(zombies) + " grandchildren", Clock::now() - start);
    job.signal(SIGUSR1);
    CHECK(job.wait().code == 0);
  }
}

TEST_CASE("failure: where pids are reused at every moment, only the job's processes are killed",
          "[launcher][integration][P21]") {
  utsname kernel = {};
  int major = 0, minor = 0;
  if (uname(&kernel) != 0 || sscanf(kernel.release, "%d.%d", &major, &minor) != 2 ||
      std::make_pair(major, minor) < std::make_pair(6, 14)) {
    skip("before Linux 6.14 pid_max is the whole machine's");
  }
  // Some 30 pids remain for all, so each soon belongs to another process, which leads a process
  // group as a worker does.
  const TemporaryFolder folder;
  write_file(folder / "world",
             "echo 400 > /proc/sys/kernel/pid_max || exit 77\n"
             "cd \"$1\"; shift\n"
             "for idle in $(seq 60); do sleep 1000 & done\n"
             "strangers() { until [ -e stop ]; do setsid sleep 0.002 || echo \"a stranger ended with $?\"; done; }\n"
             "for crowd in 1 2 3 4; do strangers & crowds=\"$crowds $!\"; done\n"
             "\"$@\"; code=$?; touch stop; wait $crowds; exit $code\n");
  const int restarts = full_matrix() ? 400 : 60;
  const Result result = run(Words{"unshare", "-rpf", "--mount-proc", "sh", folder / "world", folder.path()} +
                            ddprun({workers(2), "--shutdown-timeout=0", "--max-restarts=" + std::to_string(restarts)},
                                   {"0:child", "1:escape", "0:exit=3", "wait"}));
  if (result.code == 77 || result.code == 1) skip("no pid namespace with few pids here: " + result.err);
  CHECK(result.code == 3);
  CHECK(count(result.err, "restart ") == restarts);
  CHECK(count(result.out, "stranger") == 0);
}

TEST_CASE("failure: in a container with pids of its own and another /proc, no process of the others is ended",
          "[launcher][integration]") {
  // Outside of the container each small pid is a shell's that has a child. Inside, the agent has one of these pids.
  const TemporaryFolder folder;
  write_file(folder / "world",
             "for i in $(seq 30); do sh -c 'sleep 1000; echo a child was killed' & shells=\"$shells $!\"; done\n"
             "until [ $(pgrep -c -x sleep) = 30 ]; do :; done\n"
             "unshare -pf \"$@\"; code=$?\n"
             "echo \"$(pgrep -c -x sleep) are left\"; exit $code\n");
  const Result result = run(
      Words{"unshare", "-rpf", "--kill-child", "--mount-proc", "sh", folder / "world"} +
      ddprun({workers(2), "--shutdown-timeout=0", "--max-restarts=2"}, {"0:child", "1:escape", "0:exit=3", "wait"}));
  if (count(result.err, "unshare:") > 0) skip("no pid namespaces here: " + result.err);
  CAPTURE(result.err, result.out);
  CHECK(result.code == 3);
  CHECK(count(result.out, "30 are left") == 1);
}

TEST_CASE("failure: a worker that dies before the agent has its pid is an ordinary failure",
          "[launcher][integration][P19]") {
  for (const char* which : {"3:die", "4:die", "5:die"}) {  // the first two forks are the keeper and the agent
    CAPTURE(which);
    Process job(ddprun({workers(3), "--max-restarts=1"}, {"say=ran", "env=TORCHELASTIC_RESTART_COUNT"}),
                with_fake_libc("FAKE_LIBC_FORK", which));
    const Result result = job.wait();
    CHECK(result.code == 0);
    CHECK(count(result.err, "restart 1 of 1: rank " + std::to_string(which[0] - '3') + " ") == 1);
    CHECK(count(result.out, "[TORCHELASTIC_RESTART_COUNT=1]") == 3);
    CHECK(job.left_over().empty());
  }
}

// ---- Workers and their descriptors ----

TEST_CASE("failure: a worker that closes its stdout and stderr costs the agent no time",
          "[launcher][integration][P11]") {
  const TemporaryFolder folder;
  for (const Words& logs : {Words{}, Words{"-t3", "--log-dir", folder.path()}}) {
    for (const int n : worker_counts()) {
      CAPTURE(logs, n);
      Process job(ddprun(Words{workers(n)} + logs, {"catch=USR1", "ready", "close=1", "close=2", "wait"}));
      job.wait_for("ready", n);
      const pid_t agent = agent_of(job);
      const auto before = cpu_time(agent);
      std::this_thread::sleep_for(1s);  // how long its processor time is measured
      CHECK(cpu_time(agent) - before < 200ms);
      job.signal(SIGUSR1);
      CHECK(job.wait().code == 0);
    }
  }
}

TEST_CASE("failure: a worker that closes every descriptor but three works as before, and dies with the agent",
          "[launcher][integration][P12]") {
  for (const int n : worker_counts()) {
    Process job(ddprun({workers(n)}, {"blind", "meet", "ready", "wait"}));
    job.wait_for("met", n);
    job.wait_for("ready", n);
    ::kill(agent_of(job), SIGKILL);
    CHECK(job.wait().code == 128 + SIGKILL);
    CHECK(job.all_gone());
  }
}

TEST_CASE("failure: a worker that floods an unread console blocks itself, not the others",
          "[launcher][integration][P13]") {
  const TemporaryFolder folder;
  const int n = full_matrix() ? 8 : 2;
  std::string files = "--redirects=";  // for all ranks except 0
  for (int rank = 1; rank < n; ++rank) files += (rank > 1 ? "," : "") + std::to_string(rank) + ":3";
  Process job(ddprun({workers(n), "--shutdown-timeout=1", "--log-dir", folder.path(), files},
                     {"0:pour=1000", "beat=" + (folder / "beat")}));
  const auto beats = [&](int rank) { return count(read_file(folder / ("beat." + std::to_string(rank))), "\n"); };
  for (int rank = 1; rank < n; ++rank) wait_until([&] { return beats(rank) > 0; });
  const pid_t agent = agent_of(job);
  std::this_thread::sleep_for(1s);  // how long it may write
  const int then = beats(1);
  wait_until([&] { return beats(1) > then + 20; });
  CHECK_FALSE(std::filesystem::exists(folder / "beat.0"));  // rank 0 is blocked in its write
  if (!kIsSanitized) CHECK(kilobytes(agent, "VmHWM") < 64'000);
  const auto start = Clock::now();
  job.signal(SIGTERM);
  wait_until([&] { return children_of(agent).empty(); });
  measured("SIGTERM to the last worker's end under a console that is stuck", Clock::now() - start);
  CHECK(job.wait().code == 128 + SIGTERM);
  CHECK(job.left_over().empty());
}

// ---- Workers that cannot be started ----

TEST_CASE("failure: a program that is spoilt between two rounds ends the job with the kernel's reason",
          "[launcher][integration][P16]") {
  struct Case {
    const char* what;
    const char* spoil;
    int code;
    const char* says;
  };
  const std::vector<Case> cases = {
      {"gone", "rm \"$0\"", 127, "No such file or directory"},
      {"not executable", "chmod a-x \"$0\"", 126, "Permission denied"},
      {"no program", "rm \"$0\"; echo x > \"$0\"; chmod +x \"$0\"", 126, "Exec format error"},
      {"interpreter gone", "rm \"$0\"; echo '#!/no/such' > \"$0\"; chmod +x \"$0\"", 127, "No such file or directory"},
  };
  for (const int n : worker_counts()) {
    for (const Case& c : cases) {
      CAPTURE(n, c.what);
      const TemporaryFolder folder;
      // Spoil the program once all workers have started.
      write_file(folder / "program",
                 "#!/bin/sh\ntouch \"$0.$RANK\"\n[ $RANK = 0 ] || exec sleep 1000\n"
                 "until [ $(ls \"$0\".* | wc -l) = $WORLD_SIZE ]; do :; done\n" +
                     std::string(c.spoil) + "\nexit 1",
                 true);
      Process job(ddprun_raw({workers(n), "--max-restarts=1", "--no-python", folder / "program"}));
      const Result result = job.wait();
      CHECK(result.code == c.code);
      CHECK(count(result.err, std::string("cannot execute ") + (folder / "program") + ": " + c.says) == 1);
      CHECK(job.left_over().empty());
    }
  }
}

TEST_CASE("failure: workers whose environment is too large for the kernel end the job with its reason",
          "[launcher][integration][P16]") {
  // ddprun adds more to a worker's environment than its own command line takes; so some size suits
  // ddprun, but not its workers.
  const auto with_environment = [](int bytes) {
    Process::Options options;
    for (int i = 0; bytes > 0; ++i, bytes -= 100'000) {
      options.environment["FILLER" + std::to_string(i)] =
          std::string(static_cast<std::size_t>(std::min(bytes, 100'000)), 'x');
    }
    return options;
  };
  const Words command = ddprun({workers(2)}, {"say=ran"});
  int fits = 0, too_large = 16'000'000;
  if (run(command, with_environment(too_large)).code != 99) skip("no limit on the environment here");
  Result last;
  while (too_large - fits > 100) {
    const int middle = fits + (too_large - fits) / 2;
    const Result result = run(command, with_environment(middle));
    if (result.code == 99) {  // ddprun itself could not be started
      too_large = middle;
    } else {
      fits = middle;
      last = result;
    }
  }
  CHECK(last.code == 126);
  CHECK(last.out.empty());
  CHECK(count(last.err, "Argument list too long") >= 1);
}

TEST_CASE("failure: workers that cannot be forked end the job with the reason, and none ran",
          "[launcher][integration][P16]") {
  for (const int n : {1, 8}) {
    Process job(ddprun({workers(n)}, {"say=ran", "wait"}),
                with_fake_libc("FAKE_LIBC_FORK", std::to_string(n + 2) + ":fail"));
    const Result result = job.wait();
    CAPTURE(result.err);
    CHECK(result.code == 1);
    CHECK(result.out.empty());
    CHECK(count(result.err, "fork: Cannot allocate memory") >= 1);
    CHECK(job.left_over().empty());
  }
}
