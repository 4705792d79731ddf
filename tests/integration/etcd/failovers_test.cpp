// SPDX-License-Identifier: BSD-3-Clause
// One job that is hit again and again: it counts on as if nothing had happened. scripts/stress/failovers runs more.
#include <catch2/catch.hpp>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <memory>
#include <string>

#include "tests/integration/etcd/clock.hpp"
#include "tests/integration/etcd/cluster.hpp"
#include "tests/integration/nodes/nodes.hpp"
#include "tests/integration/nodes/steady_job.hpp"
#include "tests/support/environment.hpp"

using namespace ddp::testing;

namespace {

using Clock = std::chrono::steady_clock;

constexpr int kNodes = SteadyJob::kNodes, kEtcdHost = kNodes;

Words workers(const std::string& folder) {
  const std::string python = variable("DDPRUN_FAILOVERS_PYTHON");
  return python.empty() ? Words{STEADY_WORKER, folder} : Words{python, STEADY_WORKER_SCRIPT, folder};
}

class Job : public SteadyJob {
 public:
  Job(const Hosts& hosts, const EtcdCluster& etcd)
      : SteadyJob(hosts,
                  [&hosts, &etcd](int host, const TemporaryFolder& folder) {
                    const Words options = {DDPRUN_BINARY,
                                           "--nnodes=3",
                                           "--max-restarts=100000",
                                           "--rdzv-backend=etcd",
                                           "--rdzv-endpoint=" + etcd.endpoints(),
                                           "--rdzv-id=failovers",
                                           "--rdzv-conf=keep_alive_interval=3,keep_alive_max_attempt=3"};
                    return std::make_unique<Process>(hosts.on(host, options + workers(folder / "")),
                                                     host == 1 ? an_hour_ahead(folder) : Process::Options());
                  }),
        etcd_(etcd) {}

  int leader() const {
    const std::string note = etcd_("ctl get", {"--print-value-only", "/ddprun/failovers/holder"});
    const auto at = note.find("host node");
    return at == std::string::npos ? -1 : std::stoi(note.substr(at + 9));
  }
  // Waits until somebody holds the job, and not this one.
  int leader_but(int other) const {
    int found = -1;
    wait_until([&] {
      found = leader();
      return found >= 0 && found != other;
    });
    return found;
  }
  // Waits until rank 0, which is on the node that coordinates, says how often workers were restarted.
  void has_restarted(int times) { on(leader_but(-1)).wait_for("restart " + std::to_string(times) + ": 3 workers"); }

 private:
  const EtcdCluster& etcd_;
};

enum class Hit { Coordinator, CoordinatorAndEtcdLeader, Sleep, Keeper, All, Power, Cable, EtcdFull };
constexpr std::size_t kKinds = 8;
constexpr int kSlackDescriptors = 6;  // a connection that is being made here or there
constexpr Hit kHits[kKinds] = {Hit::Sleep,  Hit::Coordinator, Hit::Power, Hit::CoordinatorAndEtcdLeader,
                               Hit::Keeper, Hit::Cable,       Hit::All,   Hit::EtcdFull};
const char* name_of(Hit hit) {
  switch (hit) {
    case Hit::Coordinator:
      return "the coordinator is killed";
    case Hit::CoordinatorAndEtcdLeader:
      return "the coordinator and etcd's leader are killed";
    case Hit::Sleep:
      return "the coordinator is stopped until another one has taken over";
    case Hit::Keeper:
      return "the keeper is killed";
    case Hit::All:
      return "all of ddprun is killed";
    case Hit::Power:
      return "the node loses its power";
    case Hit::Cable:
      return "the node loses its network";
    case Hit::EtcdFull:
      return "the coordinator is killed while etcd has no room";
  }
  return "";
}

// Returns whether workers had to begin again.
bool hit(Hit what, Job& job, const Hosts& hosts, const EtcdCluster& etcd) {
  const int host = job.leader_but(-1);
  const Ledger::Line before = job.ledger().newest();
  switch (what) {
    case Hit::Coordinator:
      kill_sidecar(job.on(host), "ddp-coordinator");
      job.ledger().goes_on(before);
      CHECK(job.ledger().newest().writer == before.writer);
      return false;
    case Hit::CoordinatorAndEtcdLeader: {
      const std::string leader = std::to_string(etcd.leader());
      etcd("kill " + leader);
      kill_sidecar(job.on(host), "ddp-coordinator");
      wait_until([&] { return job.leader() >= 0; });
      etcd("start " + leader);
      job.ledger().goes_on(before);
      CHECK(job.ledger().newest().writer == before.writer);
      return false;
    }
    case Hit::EtcdFull:
      etcd("fill");
      etcd("make_room");  // which takes long, and workers wait 6 s for a coordinator
      kill_sidecar(job.on(host), "ddp-coordinator");
      etcd("ctl alarm", {"disarm"});
      job.ledger().goes_on(before);
      CHECK(job.ledger().newest().writer == before.writer);
      return false;
    case Hit::Sleep: {
      const pid_t coordinator = sidecar_of(job.on(host), "ddp-coordinator");
      ::kill(coordinator, SIGSTOP);
      job.leader_but(host);
      ::kill(coordinator, SIGCONT);
      break;
    }
    case Hit::Keeper:
      ::kill(keeper_of(job.on(host)), SIGKILL);
      job.replace(host);
      break;
    case Hit::All:
      kill_at_once(hosts.processes(host));
      job.replace(host);
      break;
    case Hit::Power:
      hosts.power_off(host);
      job.leader_but(host);
      hosts.plug(host);
      job.replace(host);
      break;
    case Hit::Cable:
      hosts.unplug(host);
      job.leader_but(host);
      job.on(host).wait();
      hosts.plug(host);
      job.replace(host);
      break;
  }
  job.ledger().goes_on_anew(before);
  return true;
}

}  // namespace

TEST_CASE("etcd job: whatever coordinates is hit again and again, and the job counts on as if nothing had happened",
          "[etcd][integration]") {
  const int hits = number_from("DDPRUN_FAILOVERS", 2), first = number_from("DDPRUN_FAILOVERS_FIRST", 0);
  const Hosts hosts(kNodes + 1);
  const EtcdCluster etcd(hosts, kEtcdHost, {"--members", "3", "--quota", "24000000"});
  Job job(hosts, etcd);
  int restarts = 0;
  Held early, now;
  for (int i = 0; i < hits; ++i) {
    const Hit what = kHits[static_cast<std::size_t>(first + i) % kKinds];
    const auto begin = Clock::now();
    CAPTURE(i, name_of(what));
    restarts += hit(what, job, hosts, etcd);
    const auto ms = std::chrono::duration_cast<std::chrono::milliseconds>(Clock::now() - begin).count();
    if (restarts > 0) job.has_restarted(restarts);
    now = held(hosts, {0, 1, 2});
    if (i + 1 == static_cast<int>(kKinds)) early = now;
    printf("fail-over %d: %s: %lld ms; step %lld, %d restarts, %d descriptors, %ld pages\n", i + 1, name_of(what),
           static_cast<long long>(ms), static_cast<long long>(job.ledger().newest().step), restarts, now.descriptors,
           now.pages);
    fflush(stdout);
  }
  if (hits % static_cast<int>(kKinds) == 0) {  // each process is as old as it was then
    CHECK(now.descriptors <= early.descriptors + kSlackDescriptors);
    CHECK(now.pages <= early.pages * 5 / 4);
  }
  job.end();
  CHECK(etcd("ctl get", {"--prefix", "/ddprun/"}).empty());
  for (int host = 0; host < kNodes; ++host) CHECK(hosts.processes(host).empty());
}
