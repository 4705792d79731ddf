// SPDX-License-Identifier: BSD-3-Clause
// Jobs of Kubernetes, from the manifests of docs/kubernetes, on pods of this machine: what dies is replaced, what fails
// is not, and nothing is left.
#include <catch2/catch.hpp>
#include <csignal>

#include "tests/integration/etcd/cluster.hpp"
#include "tests/integration/failures/measured.hpp"
#include "tests/integration/kubernetes/pods.hpp"

using namespace ddp::testing;

namespace {

// Workers that say that all have met, and run until SIGUSR1 tells them to succeed.
const Words kShowUntilTold = {"catch=USR1", "env=TORCHELASTIC_RUN_ID", "meet", "env=TORCHELASTIC_RESTART_COUNT",
                              "wait"};

std::string manifest(const std::string& kind) { return std::string(MANIFESTS) + "/" + kind + ".yaml"; }

// Waits until all ranks of the job have met `times` times in rounds of this number of restarts.
void wait_for_ranks(PodJob& job, int restarts, int times = 1) {
  const std::string line = "[TORCHELASTIC_RESTART_COUNT=" + std::to_string(restarts) + "]";
  job.until([&] { return count(job.logs(), line) == times * job.ranks(); });
}

// Starts the job. Its names lead to pods only after each ddprun has begun to look for them.
void start(PodJob& job) {
  job.create();
  job.until([&] {
    for (int index = 0; index < job.size(); ++index) {
      const std::string log = job.log(index);
      if (log.empty() || (index == 0 && count(log, " cannot be resolved here") == 0)) return false;
    }
    return true;
  });
  job.publish();
  wait_for_ranks(job, 0);
}

void finish(PodJob& job) {
  job.tell_all(SIGUSR1);
  job.until([&] { return job.complete(); });
}

void lose_pods(const std::string& kind) {
  const Hosts hosts(8);
  PodJob job(hosts, manifest(kind), kShowUntilTold);
  start(job);

  auto begin = Clock::now();
  job.kill(2);
  wait_for_ranks(job, 1);
  measured(kind + ": from the kill of a pod to all ranks in the next round", Clock::now() - begin);
  CHECK(job.pods() == job.size() + 1);

  begin = Clock::now();
  job.kill(0);
  wait_for_ranks(job, 0, 2);
  measured(kind + ": from the kill of the coordinator's pod to all ranks in a new job", Clock::now() - begin);
  CHECK(job.pods() == 2 * job.size() + 1);
  CHECK(job.last_code(0) == 128 + SIGKILL);
  for (int index = 1; index < job.size(); ++index) CHECK(job.last_code(index) == 75);

  CHECK(count(job.logs(), "[TORCHELASTIC_RUN_ID=" + PodJob::uid() + "]") == 3 * job.ranks());
  finish(job);
  CHECK(hosts.all_gone());
}

}  // namespace

TEST_CASE("kubernetes: a Job's pods are killed, the coordinator's too, and all ranks run again",
          "[launcher][integration]") {
  lose_pods("job");
}

TEST_CASE("kubernetes: a JobSet's pods are killed, the coordinator's too, and all ranks run again",
          "[launcher][integration]") {
  lose_pods("jobset");
}

TEST_CASE("kubernetes: a TrainJob's pods are killed, the coordinator's too, and all ranks run again",
          "[launcher][integration]") {
  lose_pods("trainjob");
}

TEST_CASE("kubernetes: a job that fails ends with the exit code of its worker, and no pod is started again",
          "[launcher][integration]") {
  const Hosts hosts(4);
  PodJob job(hosts, manifest("job"), {"meet", "13:exit=7", "wait"});
  job.create();
  job.publish();
  job.until([&] { return job.failed() && !job.is_any_running(); });
  CHECK(job.pods() == job.size());
  CHECK(job.code_of_failure() == 7);
  for (int index = 0; index < job.size(); ++index) {
    const int code = job.last_code(index);
    CHECK((code == 7 || code == 128 + SIGTERM));  // the controller stops those that have not ended yet
    CHECK(count(job.log(index), "ddprun: restart 3 of 3: rank 13") == 1);
  }
  CHECK(hosts.all_gone());
}

TEST_CASE("kubernetes: workers of a pod that is evicted can save, and all ranks run again once it has ended",
          "[launcher][integration]") {
  const Hosts hosts(8);
  PodJob job(
      hosts, manifest("job"),
      {"catch=USR1", "note=TERM", "meet", "env=TORCHELASTIC_RESTART_COUNT", "until=TERM", "say=saved", "exit=0"});
  start(job);
  job.evict(3);
  wait_for_ranks(job, 0, 2);
  CHECK(count(job.logs(), "saved") == job.ranks());
  CHECK(job.pods() == 2 * job.size());
  for (int index = 0; index < job.size(); ++index) CHECK(job.last_code(index) == 128 + SIGTERM);
  finish(job);
  CHECK(hosts.all_gone());
}

TEST_CASE(
    "kubernetes: with etcd the others run on without a pod that coordinated and was evicted, then with its replacement",
    "[launcher][integration]") {
  constexpr int kPodHosts = 6, kEtcdHost = 6;
  const Hosts hosts(kPodHosts + 1);
  const EtcdCluster etcd(hosts, kEtcdHost, {"--members", "1"});
  const std::string address = etcd.endpoints().substr(0, etcd.endpoints().find(':'));
  PodJob job(hosts, manifest("job_etcd"), {"catch=USR1", "meet", "env=WORLD_SIZE", "wait"},
             {{"etcd.etcd.svc", address, kEtcdHost}});
  const std::string everybody = "[WORLD_SIZE=" + std::to_string(job.ranks()) + "]";
  const auto has_met = [&](int index) { return count(job.log(index), everybody) == job.ranks() / job.size(); };
  job.create();
  for (int index = 0; index < job.size(); ++index) job.until([&] { return has_met(index); });

  const std::string note = etcd("ctl get", {"--print-value-only", "/ddprun/" + PodJob::uid() + "/holder"});
  const std::string line = "\nhost train-";
  REQUIRE(count(note, line) == 1);
  const int coordinator = std::stoi(note.substr(note.find(line) + line.size()));
  const auto begin = Clock::now();
  job.evict(coordinator);
  job.until([&] { return job.pods_of(coordinator) == 2 && has_met(coordinator); });
  measured("job_etcd: from the eviction of the coordinator's pod to a round with its replacement",
           Clock::now() - begin);
  CHECK(job.pods() == job.size() + 1);
  CHECK(job.last_code(coordinator) == 128 + SIGTERM);

  finish(job);
  job.until([&] { return !job.is_any_running(); });
  for (int host = 0; host < kPodHosts; ++host) CHECK(hosts.processes(host).empty());
}
