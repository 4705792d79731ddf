// SPDX-License-Identifier: BSD-3-Clause
// Nothing of a job outlives ddprun, whichever of its processes is killed, at any moment; see
// launcher/guardian/guardian.hpp. With control groups where this machine allows them, and without
// (DDPRUN_CGROUP).
#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <catch2/catch.hpp>
#include <chrono>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <iostream>
#include <random>
#include <sstream>
#include <thread>

#include "tests/integration/nodes/nodes.hpp"

using namespace ddp::testing;

namespace {

using Clock = std::chrono::steady_clock;
using std::chrono::microseconds;

constexpr std::array<const char*, 3> kWays = {"", "freeze", "off"};

// Returns the path in the debug line that names the control group; empty: there is no such line.
std::string cgroup_of(const Process& job) {
  const std::string before = "workers are in the control group ";
  const auto at = job.err().find(before);
  if (at == std::string::npos) return "";
  std::istringstream rest(job.err().substr(at + before.size()));
  std::string path;
  rest >> path;
  return path;
}

// Returns how many control groups a ddprun with this pid has left in `folder`. Some are killed
// before they can log the path.
int cgroups_of(pid_t pid, const std::string& folder) {
  if (folder.empty()) return 0;
  const std::string name = "ddprun-" + std::to_string(pid) + "-";
  int found = 0;
  for (const auto& entry : std::filesystem::directory_iterator(folder)) {
    found += entry.path().filename().string().rfind(name, 0) == 0;
  }
  return found;
}

// ---- Kills at random moments ----

enum class Target { Guardian, Keeper, Agent, GuardianAndAgent, Group, All };
constexpr std::array<const char*, 6> kTargets = {"guardian",           "keeper",        "agent",
                                                 "guardian and agent", "process group", "all that is named ddprun"};

struct Kill {
  Target target = Target::Guardian;
  int signal = SIGKILL;
  bool once_ready = false;  // time counts from when all workers are ready
  microseconds after{0};
  std::string way;
  Words options, verbs;
};

Kill make_kill(unsigned seed) {
  std::mt19937 random(seed);
  const auto below = [&](unsigned n) { return static_cast<unsigned>(random() % n); };
  Kill kill;
  kill.target = static_cast<Target>(below(6));
  // Only the guardian, or its whole process group, gets other signals, which end the job in an
  // orderly way.
  if (kill.target == Target::Guardian || kill.target == Target::Group) {
    kill.signal = std::array{SIGKILL, SIGKILL, SIGTERM, SIGINT}[below(4)];
  }
  kill.once_ready = below(2) == 0;
  kill.after = microseconds(below(kill.once_ready ? 20'000 : 150'000));
  kill.way = kWays[below(3)];
  const unsigned workers = 1 + below(3);
  kill.options = {"--nproc_per_node=" + std::to_string(workers), "--log-level=debug"};
  if (below(2) == 0) kill.options.push_back("--max-restarts=1000");
  if (below(3) == 0) kill.options.push_back("--tee=3");
  if (below(3) == 0) kill.verbs.push_back("ignore=TERM");
  for (const char* verb : {"child", "escape", "forget", "hop"}) {
    if (below(2) == 0) kill.verbs.push_back(verb);
  }
  // Escaped processes ignore SIGTERM too.
  kill.options.push_back(kill.verbs.empty() || below(8) == 0 ? "--shutdown-timeout=1" : "--shutdown-timeout=0");
  kill.verbs.push_back("ready");
  // Some jobs end, or fail and are restarted, at about the moment of the kill.
  const std::array<const char*, 4> ends = {"wait", "wait", "0:exit=1", "0:exit=0"};
  kill.verbs.push_back(ends[below(4)]);
  kill.verbs.push_back("wait");
  return kill;
}

std::string describe(const Kill& kill) {
  std::string text = std::string("SIG") + sigabbrev_np(kill.signal) + " to " +
                     kTargets[static_cast<std::size_t>(kill.target)] + " " + std::to_string(kill.after.count()) +
                     " us after " + (kill.once_ready ? "ready" : "start") + ", DDPRUN_CGROUP=" + kill.way + ":";
  for (const Words* words : {&kill.options, &kill.verbs}) {
    for (const std::string& word : *words) text += " " + word;
  }
  return text;
}

// Kills the target; returns false if it did not exist.
bool strike(const Process& job, const Kill& kill) {
  const pid_t guardian = job.pid();
  const auto child = [](pid_t parent) {  // 0: it is gone, or does not exist yet
    try {
      return only_child_of(parent);
    } catch (const std::exception&) {
      return 0;
    }
  };
  const pid_t keeper = child(guardian);
  const pid_t agent = keeper == 0 ? 0 : child(keeper);
  std::vector<pid_t> victims;
  switch (kill.target) {
    case Target::Guardian:
      victims = {guardian};
      break;
    case Target::Keeper:
      victims = {keeper};
      break;
    case Target::Agent:
      victims = {agent};
      break;
    case Target::GuardianAndAgent:
      victims = {guardian, agent};
      break;
    case Target::Group:
      victims = {-guardian};
      break;
    case Target::All:  // as pkill ddprun
      for (const pid_t pid : job.left_over()) {
        if (read_file("/proc/" + std::to_string(pid) + "/comm") == "ddprun\n") victims.push_back(pid);
      }
      break;
  }
  bool hit = false;
  for (const pid_t pid : victims) hit |= pid != 0 && ::kill(pid, kill.signal) == 0;
  return hit;
}

int number_in(const char* variable, int otherwise) {
  const char* text = getenv(variable);
  return text && *text ? std::stoi(text) : otherwise;
}

}  // namespace

TEST_CASE("orphans: whichever process of ddprun is killed, at any moment, nothing of the job is left",
          "[launcher][integration][P10][A2]") {
  const int kills = number_in("DDPRUN_KILLS", 100);
  const auto first =
      static_cast<unsigned>(number_in("DDPRUN_KILL_SEED", static_cast<int>(std::random_device()() >> 4)));
  const char* only_way = getenv("DDPRUN_CGROUP");
  std::cout << "replay with DDPRUN_KILL_SEED=" << first << " DDPRUN_KILLS=" << kills << "\n";
  Clock::duration longest{0};
  int with_cgroup = 0;
  std::string cgroups;  // the folder in which they are made, once a job has logged one
  for (int i = 0; i < kills; ++i) {
    const unsigned seed = first + static_cast<unsigned>(i);
    Kill kill = make_kill(seed);
    if (only_way) kill.way = only_way;
    CAPTURE(seed, describe(kill));
    const TemporaryFolder temporary;
    Process::Options options;
    options.environment = {{"DDPRUN_CGROUP", kill.way}, {"TMPDIR", temporary.path()}};
    const auto start = Clock::now();
    // setsid makes the process the leader of its own process group, then becomes ddprun.
    Process job(Words{"setsid"} + ddprun(kill.options, kill.verbs), options);
    const pid_t pid = job.pid();
    auto moment = start + kill.after;
    if (kill.once_ready) {
      job.wait_for("ready");
      moment = Clock::now() + kill.after;
    }
    std::this_thread::sleep_until(moment);  // the random moment is what is tested
    const auto struck = Clock::now();
    // If there was no target, or another child was taken for the keeper, the job goes on.
    const bool hit = strike(job, kill);
    if (!hit || (kill.target != Target::Guardian && kill.target != Target::Group)) job.signal(SIGTERM);
    job.wait();
    REQUIRE(job.all_gone());
    // Logs that the user asked for are kept; ddprun's own files are not.
    const bool keeps_logs = describe(kill).find("--tee") != std::string::npos;
    std::string left;
    for (const auto& entry : std::filesystem::recursive_directory_iterator(temporary.path()))
      left += entry.path().string() + "\n";
    INFO("left behind:\n" << left);
    REQUIRE((keeps_logs || left.empty()));
    longest = std::max(longest, Clock::now() - struck);
    const std::string cgroup = cgroup_of(job);
    with_cgroup += !cgroup.empty();
    if (!cgroup.empty()) cgroups = std::filesystem::path(cgroup).parent_path();
    REQUIRE(cgroups_of(pid, cgroups) == 0);
  }
  std::cout << "measured: " << kills << " kills, " << with_cgroup << " with a control group, 0 left; the longest from "
            << "kill to nothing left: " << std::chrono::duration_cast<std::chrono::milliseconds>(longest).count()
            << " ms\n";
}

TEST_CASE("orphans: kill -9 of agent, keeper or guardian leaves no process, escapees included",
          "[launcher][integration][P10][A2]") {
  const std::vector<pid_t (*)(const Process&)> victims = {agent_of, keeper_of,
                                                          [](const Process& job) { return job.pid(); }};
  for (const char* way : kWays) {
    for (const auto victim : victims) {
      Process::Options options;
      options.environment = {{"DDPRUN_CGROUP", way}};
      Process job(ddprun({"--nproc_per_node=3"}, {"ignore=TERM", "child", "escape", "forget", "ready", "wait"}),
                  options);
      job.wait_for("ready", 3);
      job.wait_for("escaped", 6);
      ::kill(victim(job), SIGKILL);
      CHECK(job.wait().code == 128 + SIGKILL);
      CHECK(job.all_gone());
    }
  }
}

TEST_CASE("orphans: pkill -9 ddprun, which hits guardian and agent at once, leaves nothing",
          "[launcher][integration][A2]") {
  for (const char* way : kWays) {
    Process::Options options;
    options.environment = {{"DDPRUN_CGROUP", way}};
    Process job(ddprun({"--nproc_per_node=2"}, {"ignore=TERM", "child", "escape", "forget", "ready", "wait"}), options);
    job.wait_for("ready", 2);
    job.wait_for("escaped", 4);
    const pid_t keeper = keeper_of(job), agent = agent_of(job);
    // What pkill examines, without and with -f.
    const std::string folder = "/proc/" + std::to_string(keeper);
    CHECK(count(read_file(folder + "/comm") + read_file(folder + "/cmdline"), "ddprun") == 0);
    ::kill(job.pid(), SIGSTOP);  // so that it dies before it sees the agent's death
    ::kill(agent, SIGKILL);
    ::kill(job.pid(), SIGKILL);
    job.wait();
    CHECK(job.all_gone());
  }
}

TEST_CASE("orphans: a process that forks and ends again and again does not escape ddprun",
          "[launcher][integration][P9]") {
  for (const char* way : kWays) {
    Process::Options options;
    options.environment = {{"DDPRUN_CGROUP", way}};
    Process job(ddprun({"--shutdown-timeout=1"}, {"hop", "hop", "hop", "hop", "ready", "exit=0"}), options);
    const auto start = Clock::now();
    CHECK(job.wait().code == 0);
    const auto took = Clock::now() - start;
    CHECK(job.all_gone());
    std::cout << "measured: four processes that fork without end, DDPRUN_CGROUP=" << way << ": gone after "
              << std::chrono::duration_cast<std::chrono::milliseconds>(took).count() << " ms\n";
  }
}

TEST_CASE("orphans: a child that ddprun did not start is not killed", "[launcher][integration]") {
  // As with `exec ddprun ... > >(tee log)` in a script: the shell's children become ddprun's.
  for (const bool keeper : {true, false}) {
    Process job({"sh", "-c", "sleep 1000 & echo stranger $!; exec \"$@\"", "sh", DDPRUN_BINARY, FAKE_WORKER_BINARY,
                 "escape", "ready", "wait"});
    job.wait_for("ready");
    const pid_t stranger = std::stoi(job.out().substr(job.out().find("stranger ") + 9));
    std::vector<pid_t> own = children_of(job.pid());
    std::erase(own, stranger);
    REQUIRE(own.size() == 1);
    ::kill(keeper ? own.front() : only_child_of(own.front()), SIGKILL);
    job.wait_for("all workers were killed");
    const auto deadline = Clock::now() + kDeadline;
    while (job.left_over().size() > 1 && Clock::now() < deadline) std::this_thread::yield();
    CHECK(job.left_over() == std::vector<pid_t>{stranger});
    ::kill(stranger, SIGKILL);
    CHECK(job.wait().code == 128 + SIGKILL);
    CHECK(job.all_gone());
  }
}

TEST_CASE("orphans: a control group catches a dead worker's leftovers, even with a cleared environment",
          "[launcher][integration][P10]") {
  Process job(ddprun({"--nproc_per_node=2", "--log-level=debug", "--shutdown-timeout=1"},
                     {"0:forget", "0:say=leaving", "0:exit=0", "1:ready", "1:wait"}));
  job.wait_for("escaped");
  job.wait_for("exited with code 0");
  job.wait_for("ready");
  const std::string cgroup = cgroup_of(job);
  if (cgroup.empty()) skip("this machine does not let the test have control groups");
  CHECK(std::filesystem::exists(cgroup + "/1.1"));
  const auto deadline = Clock::now() + kDeadline;
  while (job.left_over().size() > 4 && Clock::now() < deadline) std::this_thread::yield();
  CHECK(job.left_over().size() == 4);  // guardian, keeper, agent and rank 1
  job.signal(SIGTERM);
  job.wait();
  CHECK(job.left_over().empty());
  CHECK_FALSE(std::filesystem::exists(cgroup));
}

TEST_CASE("orphans: the control group of a ddprun that was killed completely is removed by the next one",
          "[launcher][integration]") {
  Process first(ddprun({"--log-level=debug"}, {"ready", "wait"}));
  first.wait_for("ready");
  const std::string cgroup = cgroup_of(first);
  if (cgroup.empty()) skip("this machine does not let the test have control groups");
  kill_at_once({first.pid(), keeper_of(first), agent_of(first)});
  first.wait();
  CHECK(first.all_gone());
  CHECK(run(ddprun({}, {"say=next"})).code == 0);
  CHECK_FALSE(std::filesystem::exists(cgroup));
}

TEST_CASE("orphans: without permission for a control group ddprun prints nothing of it, except for debugging",
          "[launcher][integration][A11]") {
  if (geteuid() != 0) skip("only root can take permissions away");
  const TemporaryFolder folder;
  std::filesystem::permissions(folder.path(), std::filesystem::perms::all);
  const Words as_nobody = {"setpriv", "--reuid=65534", "--clear-groups", "env", "TMPDIR=" + folder.path()};
  if (run(as_nobody + ddprun_raw({"--version"})).code != 0) skip("others may not reach this folder");
  const Result quiet = run(as_nobody + ddprun({}, {"child", "say=here"}));
  CHECK(quiet.code == 0);
  CHECK(count(quiet.err, "control group") == 0);
  const Result told = run(as_nobody + ddprun({"--log-level=debug"}, {"say=here"}));
  CHECK(count(told.err, "no control group (") == 1);
}

TEST_CASE("orphans: a job inside a worker ends with it, and so does its own control group", "[launcher][integration]") {
  for (const char* way : kWays) {
    Process::Options options;
    options.environment = {{"DDPRUN_CGROUP", way}};
    Process job(ddprun_raw({"--nproc_per_node=2", "--log-level=debug", "--shutdown-timeout=100000", DDPRUN_BINARY,
                            "--nproc_per_node=2", "--shutdown-timeout=100000", FAKE_WORKER_BINARY, "ignore=TERM",
                            "escape", "ready", "wait"}),
                options);
    job.wait_for("ready", 4);
    const std::string cgroup = cgroup_of(job);
    ::kill(agent_of(job), SIGKILL);
    CHECK(job.wait().code == 128 + SIGKILL);
    CHECK(job.all_gone());
    if (!cgroup.empty()) CHECK_FALSE(std::filesystem::exists(cgroup));
  }
}

TEST_CASE("orphans: as pid 1 of a container ddprun reaps strangers and hears signals", "[launcher][integration][A10]") {
  const Words in_container = {"unshare", "--pid", "--fork", "--mount-proc", "--kill-child"};
  if (run(in_container + Words{"true"}).code != 0) skip("this machine does not let the test have a pid namespace");
  Process container(in_container +
                    ddprun({"--nproc_per_node=2", "--shutdown-timeout=1"}, {"escape", "catch=TERM", "ready", "wait"}));
  container.wait_for("ready", 2);
  const pid_t init = only_child_of(container.pid());
  const pid_t keeper = only_child_of(init);

  // Like the processes that `docker exec` leaves behind.
  Process intruder({"nsenter", "--pid", "--target", std::to_string(init), "sh", "-c", "sleep 1000 >/dev/null 2>&1 &"});
  REQUIRE(intruder.wait().code == 0);
  const auto children = [&](std::size_t number) {
    const auto deadline = Clock::now() + kDeadline;
    while (children_of(init).size() != number && Clock::now() < deadline) std::this_thread::yield();
    return children_of(init);
  };
  std::vector<pid_t> strangers = children(2);
  std::erase(strangers, keeper);
  REQUIRE(strangers.size() == 1);
  ::kill(strangers.front(), SIGKILL);
  CHECK(children(1) == std::vector<pid_t>{keeper});

  ::kill(init, SIGTERM);
  const Result result = container.wait();
  CHECK(result.code == 128 + SIGTERM);
  CHECK(count(result.out, "got SIGTERM") == 2);
  CHECK(container.all_gone());
}
