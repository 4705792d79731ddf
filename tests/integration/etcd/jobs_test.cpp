// SPDX-License-Identifier: BSD-3-Clause
// Jobs whose record is in a real etcd: nothing of them that dies ends the job.
#include <algorithm>
#include <catch2/catch.hpp>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "tests/integration/etcd/clock.hpp"
#include "tests/integration/etcd/cluster.hpp"
#include "tests/integration/nodes/nodes.hpp"
#include "tests/support/ports.hpp"

using namespace ddp::testing;
using Catch::Matchers::Contains;
using Catch::Matchers::Equals;
using Clock = std::chrono::steady_clock;

namespace {

// A worker that leaves the store when it has met the others, also on a port of rank 0's own at MASTER_ADDR.
const Words kMeet = {"place", "env=MASTER_ADDR", "second_store", "catch=USR1", "ready", "wait"};

Words etcd_job(const EtcdCluster& etcd, const std::string& nnodes, const std::string& more_conf = "") {
  return {"--nnodes=" + nnodes, "--rdzv-backend=etcd", "--rdzv-endpoint=" + etcd.endpoints(), "--rdzv-id=job",
          "--rdzv-conf=last_call_timeout=1" + more_conf};
}

// Returns the number of the host whose coordinator holds the job.
int leader_of(const EtcdCluster& etcd) {
  const std::string note = etcd("ctl get", {"--print-value-only", "/ddprun/job/holder"});
  const auto at = note.find("host node");
  return at == std::string::npos ? -1 : std::stoi(note.substr(at + 9));
}

std::vector<pid_t> workers_of(NodesJob& job, const std::vector<int>& hosts) {
  std::vector<pid_t> workers;
  for (const int host : hosts) workers.push_back(only_child_of(agent_of(job.on(host))));
  return workers;
}

int milliseconds_since(Clock::time_point begin) {
  return static_cast<int>(std::chrono::duration_cast<std::chrono::milliseconds>(Clock::now() - begin).count());
}

std::vector<int> without(std::vector<int> hosts, int host) {
  std::erase(hosts, host);
  return hosts;
}

}  // namespace

TEST_CASE("etcd job: neither a coordinator, an etcd member nor the node that coordinates ends an elastic job",
          "[etcd][integration]") {
  const Hosts hosts(4);
  const EtcdCluster etcd(hosts, 3, {"--members", "3"});
  NodesJob job(hosts, etcd_job(etcd, "1:3"), kMeet);
  const std::vector<int> all = {0, 1, 2};
  const TemporaryFolder folder;
  for (const int host : all) job.start(host, {}, host == 1 ? an_hour_ahead(folder) : Process::Options());
  for (const int host : all) job.on(host).wait_for("ready");
  const std::vector<pid_t> workers = workers_of(job, all);

  // The coordinator's process, also while etcd has no leader: no worker notices.
  const int first = leader_of(etcd);
  REQUIRE(first >= 0);
  for (int kills = 1; kills <= 2; ++kills) {
    if (kills == 2) etcd("kill " + std::to_string(etcd.leader()));
    kill_sidecar(job.on(first), "ddp-coordinator");
    for (const int host : all) job.on(host).wait_for("the link to the coordinator is back", kills);
  }
  CHECK(workers_of(job, all) == workers);
  CHECK(leader_of(etcd) == first);

  // The node's cable: another one coordinates, and the rest goes on in another round.
  const auto begin = Clock::now();
  hosts.unplug(first);
  const std::vector<int> rest = without(all, first);
  job.on(rest[0]).wait_for("coordinates now");
  printf("another node coordinated %d ms after the cable was pulled\n", milliseconds_since(begin));
  for (const int host : rest) job.on(host).wait_for("ready", 2);
  const int second = leader_of(etcd);
  CHECK(second != first);
  printf("the next round ran %d ms after the cable was pulled\n", milliseconds_since(begin));
  for (const int host : rest) {
    CAPTURE(host, job.on(host).err());
    CHECK(count(job.on(host).err(), "node node" + std::to_string(first) + ", which coordinated, was lost") >= 1);
    CHECK(count(job.on(host).out(), "[MASTER_ADDR=10.7.0." + std::to_string(second + 1) + "]") == 1);
  }
  // The node that was cut off has ended its workers by itself, and gives up.
  const Result cut_off = job.on(first).wait();
  CAPTURE(cut_off.err);
  CHECK(cut_off.code == 75);
  hosts.plug(first);

  succeed(job, rest);
  // The job's id can be used at once. Its record may stay for its minute, where a slow machine's node missed the end.
  for (const int host : all) job.start(host);
  for (const int host : all) job.on(host).wait_for("ready");
  succeed(job, all);
  CHECK_THAT(etcd("ctl get", {"--prefix", "/ddprun/"}), Equals(""));
  for (const int host : all) CHECK(hosts.processes(host).empty());
}

TEST_CASE("etcd job: a job of a fixed size waits for a replacement of the node that coordinated",
          "[etcd][integration]") {
  const Hosts hosts(4);
  const EtcdCluster etcd(hosts, 3, {"--members", "1"});
  NodesJob job(hosts, etcd_job(etcd, "2") + Words{"--max-restarts=1"}, kMeet);
  for (const int host : {0, 1}) job.start(host);
  for (const int host : {0, 1}) job.on(host).wait_for("ready");
  const int first = leader_of(etcd), second = 1 - first;
  const auto begin = Clock::now();
  hosts.power_off(first);
  job.on(second).wait_for("coordinates now");
  printf("another node coordinated %d ms after the power was cut\n", milliseconds_since(begin));
  job.start(2);
  for (const int host : {second, 2}) job.on(host).wait_for("ready", host == 2 ? 1 : 2);
  CHECK(leader_of(etcd) == second);
  CHECK(count(job.on(second).out(), "restart 1, ") == 1);
  for (const int host : {second, 2}) {
    CHECK(count(job.on(host).out(), "[MASTER_ADDR=10.7.0." + std::to_string(second + 1) + "]") >= 1);
  }
  // A node that can still say so gives its right up at once: nobody waits for its lease.
  const auto again = Clock::now();
  const std::string change = "node node2 coordinates now";
  ::kill(keeper_of(job.on(second)), SIGKILL);
  job.on(2).wait_for(change);
  printf("another node coordinated %d ms after the keeper was killed\n", milliseconds_since(again));
  CHECK(job.on(second).wait().code == 128 + SIGKILL);
  job.on(2).signal(SIGTERM);
  CHECK(job.on(2).wait().code == 128 + SIGTERM);
  CHECK_THAT(etcd("ctl get", {"--prefix", "/ddprun/"}), Equals(""));
  for (const int host : {0, 1, 2}) CHECK(hosts.processes(host).empty());
}

TEST_CASE("etcd job: a stop signal lets the node that coordinates leave, and a job that was killed haunts no other",
          "[etcd][integration]") {
  const Hosts hosts(3);
  const EtcdCluster etcd(hosts, 2, {"--members", "1"});
  NodesJob job(hosts, etcd_job(etcd, "1:2", ",keep_alive_interval=3"), kMeet);
  for (const int host : {0, 1}) job.start(host);
  for (const int host : {0, 1}) job.on(host).wait_for("ready");
  const int first = leader_of(etcd), second = 1 - first;
  const auto begin = Clock::now();
  job.on(first).signal(SIGTERM);
  const Result left = job.on(first).wait();
  CAPTURE(left.err);
  CHECK(left.code == 128 + SIGTERM);
  CHECK(count(left.err, "SIGTERM received: this node leaves the job") == 1);
  CHECK(job.on(first).left_over().empty());
  job.on(second).wait_for("ready", 2);
  printf("the next round ran %d ms after the node that coordinates was told to stop\n", milliseconds_since(begin));
  CHECK(leader_of(etcd) == second);
  CHECK(count(job.on(second).err(), "node node" + std::to_string(first) + ", which coordinated, is gone") == 1);

  // All of it is killed at once. What is started next with its id is another job.
  kill_at_once(hosts.processes(second));
  job.on(second).wait();
  for (const int host : {0, 1}) job.start(host);
  for (const int host : {0, 1}) job.on(host).wait_for("ready");
  CHECK(count(job.on(leader_of(etcd)).err(), "a new job begins: the one before with this --rdzv-id") == 1);
  succeed(job, {0, 1});
  CHECK_THAT(etcd("ctl get", {"--prefix", "/ddprun/"}), Equals(""));
  for (const int host : {0, 1}) CHECK(hosts.processes(host).empty());
}

TEST_CASE("etcd job: a node that ends after all others leaves nothing in etcd", "[etcd][integration]") {
  const Hosts hosts(3);
  const EtcdCluster etcd(hosts, 2, {"--members", "1"});
  NodesJob job(hosts, etcd_job(etcd, "2"), kMeet);
  for (const int host : {0, 1}) job.start(host);
  for (const int host : {0, 1}) job.on(host).wait_for("ready");
  const int first = leader_of(etcd), last = 1 - first;
  // Its coordinator, which has waited for its turn, gets it before its keeper can end it.
  const pid_t keeper = keeper_of(job.on(last)), candidate = sidecar_of(job.on(last), "ddp-coordinator");
  ::kill(keeper, SIGSTOP);
  for (const pid_t worker : workers_of(job, {0, 1})) ::kill(worker, SIGUSR1);
  CHECK(job.on(first).wait().code == 0);
  wait_until([candidate] { return state_of(candidate) == 'Z'; });
  CHECK_THAT(etcd("ctl get", {"--prefix", "/ddprun/"}), Equals(""));
  ::kill(keeper, SIGCONT);
  CHECK(job.on(last).wait().code == 0);
  for (const int host : {0, 1}) CHECK(hosts.processes(host).empty());
}

TEST_CASE("etcd job: without room in etcd a job goes on as soon as there is some, and none begins",
          "[etcd][integration]") {
  const EtcdCluster etcd({"--quota", "16000000"});
  const Words options = etcd_job(etcd, "2", ",keep_alive_interval=20");
  Process one(ddprun(options, kMeet)), two(ddprun(options, kMeet));
  for (Process* const node : {&one, &two}) node->wait_for("ready");
  etcd("fill");
  const Result other = run(ddprun(
      {"--nnodes=2", "--rdzv-backend=etcd", "--rdzv-id=other", "--rdzv-endpoint=" + etcd.endpoints()}, {"say=never"}));
  CHECK(other.code == 1);
  CHECK_THAT(other.err, Contains("its quota is used up"));
  for (Process* const node : {&one, &two}) {
    kill_sidecar(*node, "ddp-coordinator");
    node->wait_for("its quota is used up");
  }
  etcd("empty");
  for (Process* const node : {&one, &two}) node->wait_for("the link to the coordinator is back");
  for (Process* const node : {&one, &two}) node->signal(SIGUSR1);
  for (Process* const node : {&one, &two}) {
    const Result result = node->wait();
    CAPTURE(result.out, result.err);
    CHECK(result.code == 0);
    CHECK(count(result.out, "ready") == 1);  // no worker was touched
    CHECK(node->left_over().empty());
  }
}

TEST_CASE("etcd job: what is wrong with etcd is said at once, or while it is waited for", "[etcd][integration]") {
  const EtcdCluster etcd = EtcdCluster::shared();
  const auto start = [](const std::string& endpoint, const std::string& conf) {
    return ddprun({"--nnodes=2", "--rdzv-backend=etcd-v2", "--rdzv-id=wrong", "--rdzv-endpoint=" + endpoint,
                   "--rdzv-conf=" + conf},
                  {"say=never"});
  };
  {
    const std::string nobody = "127.0.0.1:" + std::to_string(free_port());
    const Result result = run(start(nobody, "join_timeout=1"));
    CHECK(result.code == 75);
    CHECK_THAT(result.err, Contains("no coordinator at the node that etcd names within 1 s") && Contains(nobody) &&
                               Contains("onnection refused"));
  }
  {
    const EtcdCluster old({"--v2", "only"});
    const Result result = run(start(old.endpoints(), "join_timeout=60"));
    CHECK(result.code == 1);
    CHECK_THAT(result.err, Contains("the API of version 2 is not enough"));
  }
  {
    const EtcdCluster closed({"--tls", "--auth"});
    const std::string authority = "protocol=https,cacert=" + closed.file("ca.pem");
    const Result no_user = run(start(closed.endpoints(), authority));
    CHECK(no_user.code == 1);
    CHECK_THAT(no_user.err, Contains("user"));
    const Result stranger =
        run(start(closed.endpoints(), "join_timeout=1,protocol=https,cacert=" + closed.file("stranger.pem")));
    CHECK(stranger.code == 75);
    CHECK_THAT(stranger.err, Contains("certificate"));
    // All as it should be.
    const std::string all = authority + ",last_call_timeout=1,user=ddprun,password_file=" + closed.file("password");
    const Words options = {"--nnodes=2", "--rdzv-backend=etcd", "--rdzv-id=tls",
                           "--rdzv-endpoint=" + closed.endpoints(), "--rdzv-conf=" + all};
    Process one(ddprun(options, {"meet"})), two(ddprun(options, {"meet"}));
    for (Process* const node : {&one, &two}) {
      const Result result = node->wait();
      CAPTURE(result.err);
      CHECK(result.code == 0);
      CHECK(count(result.out, "met 2") == 1);
      CHECK(node->left_over().empty());
    }
    Process::Options no_libssl;
    no_libssl.environment = {{"DDPRUN_SSL_LIBRARY", "/nowhere/libssl.so"}};
    const Result no_tls = run(start(closed.endpoints(), authority), no_libssl);
    CHECK(no_tls.code == 1);
    CHECK_THAT(no_tls.err, Contains("/nowhere/libssl.so") && Contains("install OpenSSL 3 or 1.1"));
    const Result no_file = run(start(closed.endpoints(), "protocol=https,cacert=/nowhere"));
    CHECK(no_file.code == 1);
    CHECK_THAT(no_file.err, Contains("/nowhere"));
  }
}

// Prints figures: etcd_jobs_integration_tests "[figures]"
TEST_CASE("etcd job: how soon the next coordinator speaks after kill -9 of the one before", "[.][figures]") {
  constexpr int kKills = 20;
  const bool has_etcd = GENERATE(false, true);
  const Hosts hosts(3);
  std::optional<EtcdCluster> etcd;
  if (has_etcd) etcd.emplace(hosts, 2, Words{"--members", "1"});
  NodesJob job(hosts, has_etcd ? etcd_job(*etcd, "2") : c10d_job("2"), kMeet);
  for (const int host : {0, 1}) job.start(host);
  for (const int host : {0, 1}) job.on(host).wait_for("ready");
  const int leader = has_etcd ? leader_of(*etcd) : 0;
  std::vector<int> times;
  for (int kills = 1; kills <= kKills; ++kills) {
    const auto begin = Clock::now();
    kill_sidecar(job.on(leader), "ddp-coordinator");
    for (const int host : {0, 1}) job.on(host).wait_for("the link to the coordinator is back", kills);
    times.push_back(milliseconds_since(begin));
  }
  std::sort(times.begin(), times.end());
  WARN((has_etcd ? "etcd" : "a file") << ": after " << kKills
                                      << " kills both nodes had heard from the next coordinator in "
                                      << times[kKills / 2] << " ms (median), " << times.back() << " ms at most");
  CHECK(count(job.on(0).out() + job.on(1).out(), "ready") == 2);
  succeed(job, {0, 1});
}
