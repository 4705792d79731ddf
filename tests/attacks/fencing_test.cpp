// SPDX-License-Identifier: BSD-3-Clause
// Nodes that stop, sleep or lose all of their ddprun at once: their workers must not run on beside those that take
// their place.
#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <catch2/catch.hpp>
#include <chrono>
#include <csignal>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "launcher/process/job_cgroup.hpp"
#include "rendezvous/base/descriptor.hpp"
#include "tests/integration/ddprun.hpp"
#include "tests/support/hosts.hpp"
#include "tests/support/ports.hpp"

using namespace ddp::testing;
using ddp::launcher::JobCgroup;
using std::chrono::milliseconds;
using std::chrono::seconds;
using Clock = std::chrono::steady_clock;

namespace {

// A node counts as lost after three seconds of silence, so the lease of its workers is two seconds.
constexpr char kLostAfter3s[] = "last_call_timeout=1,keep_alive_interval=1,keep_alive_max_attempt=3";

// An elastic job of one or two nodes on this machine. The node that was started first coordinates.
class TwoNodes {
 public:
  explicit TwoNodes(const Process::Options& options = {}, const Words& verbs = kMeetUntilTold) {
    const int port = free_port();
    const std::string endpoint = "127.0.0.1:" + std::to_string(port);
    const Words words = {"--nnodes=1:2",  "--rdzv-backend=c10d", "--rdzv-endpoint=" + endpoint,
                         "--rdzv-id=job", "--max-restarts=3",    std::string("--rdzv-conf=") + kLostAfter3s};
    first = std::make_unique<Process>(ddprun(words, verbs), options);
    wait_until([&] { return is_listened_at(port); });  // it coordinates
    second = std::make_unique<Process>(ddprun(words, verbs), options);
    for (Process* node : {first.get(), second.get()}) node->wait_for("met 2");
    for (Process* node : {first.get(), second.get()}) node->wait_for("ready");
  }

  void succeed() const {
    for (Process* node : {first.get(), second.get()}) node->signal(SIGUSR1);
    for (Process* node : {first.get(), second.get()}) {
      const Result result = node->wait();
      CAPTURE(result.out, result.err);
      CHECK(result.code == 0);
      CHECK(node->left_over().empty());
    }
  }

  std::unique_ptr<Process> first, second;
};

bool is_dead(pid_t pid) { return state_of(pid) == 'Z' || state_of(pid) == 'X'; }

pid_t worker_of(const Process& node) { return only_child_of(agent_of(node)); }

// Guardian, keeper, agent and worker: a whole node.
std::vector<pid_t> all_of(const Process& node) {
  return {node.pid(), keeper_of(node), agent_of(node), worker_of(node)};
}

void signal_all(const std::vector<pid_t>& pids, int number) {
  for (const pid_t pid : pids) ::kill(pid, number);
}

void wait_for_time(milliseconds time) {
  const auto end = Clock::now() + time;
  wait_until([&] { return Clock::now() >= end; });
}

}  // namespace

TEST_CASE("fencing: an agent that is stopped has its workers killed before the other node goes on",
          "[attacks][integration]") {
  const TwoNodes job;
  const pid_t agent = agent_of(*job.second), worker = worker_of(*job.second);
  ::kill(agent, SIGSTOP);
  job.first->wait_for("met 1");
  CHECK(is_dead(worker));
  job.second->wait_for("its keeper has killed the workers of this node");
  ::kill(agent, SIGCONT);
  for (Process* node : {job.first.get(), job.second.get()}) node->wait_for("met 2", 2);  // it is back
  job.succeed();
  CHECK(count(job.second->err(), "the agent did not run for ") == 1);
  CHECK(count(job.first->out(), "restart 0, ") == 3);  // three rounds, and no restart was spent
}

TEST_CASE(
    "fencing: an agent that goes on before its node is lost says why its workers are dead, and no restart is "
    "spent",
    "[attacks][integration]") {
  const TwoNodes job;
  const pid_t agent = agent_of(*job.second), worker = worker_of(*job.second);
  ::kill(agent, SIGSTOP);
  wait_until([&] { return is_dead(worker); });
  ::kill(agent, SIGCONT);
  for (Process* node : {job.first.get(), job.second.get()}) node->wait_for("met 2", 2);
  job.succeed();
  CHECK(count(job.first->err(), "ddprun's keeper killed them, since the agent did not run for 2 s") >= 1);
  CHECK(count(job.first->err(), "was lost") == 0);
  CHECK(count(job.first->out(), "restart 0, ") == 2);
  CHECK(count(job.first->err(), "was killed by SIGKILL") == 0);  // no worker is blamed
}

TEST_CASE("fencing: the coordinator's own node is fenced too", "[attacks][integration]") {
  const TwoNodes job;
  const pid_t agent = agent_of(*job.first);
  const std::vector<pid_t> workers = {worker_of(*job.first), worker_of(*job.second)};
  ::kill(agent, SIGSTOP);
  job.second->wait_for("missing: the agent of the coordinator's node");
  for (const pid_t worker : workers) CHECK(is_dead(worker));
  ::kill(agent, SIGCONT);
  for (Process* node : {job.first.get(), job.second.get()}) node->wait_for("met 2", 2);
  job.succeed();
}

TEST_CASE("fencing: a node that slept for long kills its workers as soon as it wakes", "[attacks][integration]") {
  const TwoNodes job;
  const std::vector<pid_t> node = all_of(*job.second);
  const pid_t worker = node.back();
  signal_all(node, SIGSTOP);
  job.first->wait_for("met 1");
  CHECK(state_of(worker) == 'T');
  const auto woken = Clock::now();
  signal_all(node, SIGCONT);
  wait_until([&] { return is_dead(worker); });
  const auto took = std::chrono::duration_cast<milliseconds>(Clock::now() - woken);
  WARN("from waking to the worker's death: " << took.count() << " ms");
  CHECK(took < seconds(1));  // 100 ms, on a machine that has nothing else to do
  for (Process* one : {job.first.get(), job.second.get()}) one->wait_for("met 2", 2);
  job.succeed();
}

TEST_CASE("fencing: a node that slept for half of its lease goes on as if nothing had happened",
          "[attacks][integration]") {
  const TwoNodes job;
  const std::vector<pid_t> node = all_of(*job.second);
  signal_all(node, SIGSTOP);
  wait_for_time(milliseconds(900));
  signal_all(node, SIGCONT);
  job.succeed();
  CHECK(count(job.second->out(), "ready") == 1);
  CHECK(count(job.second->err(), "killed") == 0);
}

TEST_CASE("fencing: a job of one node loses nothing while its agent is stopped", "[attacks][integration]") {
  Process job(ddprun({std::string("--rdzv-conf=") + kLostAfter3s}, {"catch=USR1", "ready", "wait"}));
  job.wait_for("ready");
  const pid_t agent = agent_of(job), worker = worker_of(job);
  ::kill(agent, SIGSTOP);
  wait_for_time(milliseconds(2600));
  CHECK_FALSE(is_dead(worker));
  ::kill(agent, SIGCONT);
  job.signal(SIGUSR1);
  CHECK(job.wait().code == 0);
  CHECK(job.left_over().empty());
}

TEST_CASE("fencing: the keeper sends the leave notice of a killed agent in a job with a secret, too",
          "[attacks][integration]") {
  const TemporaryFolder folder;
  const std::string secret = folder.write("secret", std::string(64, '7') + "\n");
  ::chmod(secret.c_str(), 0600);
  const TwoNodes job({.environment = {{"DDPRUN_SECRET_FILE", secret}}});
  ::kill(agent_of(*job.second), SIGKILL);
  job.first->wait_for("left the job: its agent was killed by SIGKILL");
  for (Process* node : {job.first.get(), job.second.get()}) node->wait_for("met 2", 2);  // with another agent
  job.succeed();
}

// ---- Guardian, keeper and agent killed at once ----

namespace {

// A control group of this test's own, for everything that it starts. Every ddprun that finds an abandoned group ends
// it, also if another test has made it. Two levels, since ddprun looks into the groups beside its own.
class OwnGroup {
 public:
  OwnGroup() {
    JobCgroup group = JobCgroup::choose();
    const auto lock = group.make();
    const std::string words = group.describe();
    group.remove(seconds(1));
    if (words.rfind("no control group", 0) == 0) skip(words);
    before_ = words.substr(words.find('/'));
    before_.resize(before_.rfind('/'));
    outer_ = before_ + "/fencing_test_" + std::to_string(getpid());
    if (mkdir(outer_.c_str(), 0755) != 0 || mkdir(path().c_str(), 0755) != 0) skip("cannot make " + path());
    enter(path());
  }
  ~OwnGroup() {
    enter(before_);
    rmdir(path().c_str());
    rmdir(beside().c_str());
    rmdir(outer_.c_str());
  }
  OwnGroup(const OwnGroup&) = delete;
  OwnGroup& operator=(const OwnGroup&) = delete;

  std::string path() const { return outer_ + "/inner"; }
  // Lets what is started from now on be in another group, as in another login.
  void enter_beside() const {
    mkdir(beside().c_str(), 0755);
    enter(beside());
  }

 private:
  std::string beside() const { return outer_ + "/beside"; }
  static void enter(const std::string& group) { write_file(group + "/cgroup.procs", std::to_string(getpid())); }

  std::string before_, outer_;
};

// A job all of whose ddprun was killed at once. Its worker dies with the agent; what that had started lives on.
class AbandonedJob {
 public:
  AbandonedJob() : job_(ddprun({}, {"escape", "ready", "wait"})) {
    job_.wait_for("ready");
    kill_at_once({job_.pid(), keeper_of(job_), agent_of(job_)});
    wait_until([this] { return job_.left_over().size() == 1; });
    // "0::/…/ddprun-…/1.0"
    const std::string groups = read_file("/proc/" + std::to_string(job_.left_over()[0]) + "/cgroup");
    const auto begin = groups.rfind("/ddprun-") + 1;
    folder_ = group_.path() + "/" + groups.substr(begin, groups.find('/', begin) - begin);
    // A process that ends has no environment, by which left_over() finds it, some time before its locks are gone.
    wait_until([this] { return lock().has_value(); });
  }

  const OwnGroup& group() const { return group_; }
  const std::string& folder() const { return folder_; }
  // Takes the lock that each ddprun of the job held; empty while one of them has it.
  std::optional<ddp::rendezvous::Descriptor> lock() const {
    ddp::rendezvous::Descriptor held(open(folder_.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
    if (flock(held.get(), LOCK_EX | LOCK_NB) != 0) return std::nullopt;
    return held;
  }
  bool is_left_alone() const { return job_.left_over().size() == 1; }
  bool is_ended() const { return job_.all_gone() && !std::filesystem::exists(folder_); }

 private:
  OwnGroup group_;
  Process job_;
  std::string folder_;
};

const Words kInOtherNamespace = {"unshare", "--pid", "--fork", "--mount-proc"};

void need_other_namespace() {
  const Result result = run(kInOtherNamespace + Words{"true"});
  if (result.code != 0) skip("no pid namespace can be made here: " + result.err);
}

}  // namespace

TEST_CASE("abandoned: what is left of a job all of whose ddprun was killed at once is ended by the next ddprun",
          "[attacks][integration]") {
  const AbandonedJob abandoned;
  CHECK(abandoned.is_left_alone());
  const Result next = run(ddprun({}, {"exit=0"}));
  CAPTURE(next.err);
  CHECK(next.code == 0);
  CHECK(count(next.err, "ddprun: ended 1 process that an earlier job left when all of its ddprun was killed") == 1);
  CHECK(abandoned.is_ended());
  CHECK(run(ddprun({}, {"exit=0"})).err.empty());  // once
}

TEST_CASE("abandoned: a ddprun in a control group beside that one ends it, too", "[attacks][integration]") {
  const AbandonedJob abandoned;
  abandoned.group().enter_beside();
  CHECK(run(ddprun({}, {"exit=0"})).code == 0);
  CHECK(abandoned.is_ended());
}

TEST_CASE("abandoned: a group whose lock is held is left alone", "[attacks][integration]") {
  const AbandonedJob abandoned;
  {
    const auto held = abandoned.lock();
    REQUIRE(held);
    CHECK(run(ddprun({}, {"exit=0"})).err.empty());
    CHECK(abandoned.is_left_alone());
  }
  CHECK(run(ddprun({}, {"exit=0"})).code == 0);
  CHECK(abandoned.is_ended());
}

TEST_CASE("abandoned: a group of another pid namespace is left alone", "[attacks][integration]") {
  need_other_namespace();
  const AbandonedJob abandoned;
  const Result stranger = run(kInOtherNamespace + ddprun({}, {"exit=0"}));
  CAPTURE(stranger.err);
  CHECK(stranger.code == 0);
  CHECK(stranger.err.empty());
  CHECK(abandoned.is_left_alone());
  CHECK(run(ddprun({}, {"exit=0"})).code == 0);
  CHECK(abandoned.is_ended());
}

TEST_CASE("abandoned: a live job of another pid namespace loses nothing", "[attacks][integration]") {
  need_other_namespace();
  Process job(kInOtherNamespace + ddprun({}, {"ready", "wait"}));
  job.wait_for("ready");
  const auto processes = job.left_over().size();
  CHECK(run(ddprun({}, {"exit=0"})).err.empty());
  CHECK(job.left_over().size() == processes);
  ::kill(only_child_of(job.pid()), SIGTERM);
  job.wait();
  CHECK(job.all_gone());
}

TEST_CASE("abandoned: nobody but the user may open a job's group", "[attacks][integration]") {
  const AbandonedJob abandoned;
  CHECK((std::filesystem::status(abandoned.folder()).permissions() & std::filesystem::perms(077)) ==
        std::filesystem::perms::none);
  run(ddprun({}, {"exit=0"}));
  CHECK(abandoned.is_ended());
}
