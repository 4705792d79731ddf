// SPDX-License-Identifier: BSD-3-Clause
// One job for a long time, in which something is hit every second or so, at random. DDPRUN_SOAK_SECONDS says for how
// long, DDPRUN_SOAK_SEED repeats the draws; scripts/stress/soak runs it for an hour.
#include <catch2/catch.hpp>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <filesystem>
#include <iterator>
#include <map>
#include <memory>
#include <random>
#include <string>
#include <thread>

#include "tests/integration/nodes/nodes.hpp"
#include "tests/integration/nodes/steady_job.hpp"
#include "tests/support/environment.hpp"

using namespace ddp::testing;
using namespace std::chrono_literals;

namespace {

using Clock = std::chrono::steady_clock;

constexpr int kNodes = SteadyJob::kNodes;
constexpr char kTemporary[] = "temporary";

enum class Hit { Worker, Agent, Node, Coordinator, Cable };
constexpr int kKinds = 5;
constexpr const char* kNames[kKinds] = {"a worker", "an agent", "all of a node", "the coordinator", "a cable"};

class Job : public SteadyJob {
 public:
  explicit Job(const Hosts& hosts)
      : SteadyJob(
            hosts,
            [&hosts](int host, const TemporaryFolder& folder) {
              std::filesystem::create_directory(folder / kTemporary);
              const Words conf = c10d_job("3", "last_call_timeout=1,keep_alive_interval=3,keep_alive_max_attempt=3");
              return std::make_unique<Process>(hosts.on(host, Words{DDPRUN_BINARY, "--max-restarts=1000000"} + conf +
                                                                  Words{STEADY_WORKER, folder / ""}),
                                               Process::Options{.environment = {{"TMPDIR", folder / kTemporary}}});
            }),
        hosts_(hosts) {}

  // Hits the job, and waits until it has counted on.
  void hit(Hit what, int host, int seed) {
    const Ledger::Line before = ledger().newest();
    switch (what) {
      case Hit::Worker:
        chaos("worker", host, seed);
        return restarts(before);
      case Hit::Agent:
        chaos("agent", host, seed);
        agent_began_[host] = Clock::now();
        return restarts(before);
      case Hit::Node:
        kill_at_once(hosts_.processes(host));
        ++killed_nodes_;
        replace(host);
        agent_began_.erase(host);
        return restarts(before);
      case Hit::Coordinator:
        kill_sidecar(on(0), "ddp-coordinator");
        return notices_nothing(before);
      case Hit::Cable:
        hosts_.unplug(host);
        std::this_thread::sleep_for(300ms);  // how long the cable is out, much less than what makes a node lost
        hosts_.plug(host);
        return notices_nothing(before);
    }
  }

  // A node ends after five agents in a row that live for less than 10 s.
  bool may_lose_agent(int host) const {
    const auto began = agent_began_.find(host);
    return began == agent_began_.end() || Clock::now() - began->second > 10s;
  }

  // The job can be looked at from each node, at once or as soon as the node's link to the coordinator is back.
  void look(int host) {
    wait_until([&] { return run(ddprun_raw({"ps", std::to_string(on(host).pid()), "--json"})).code == 0; });
  }

  void end() {
    SteadyJob::end();
    CHECK(hosts_.all_gone());
    // A node's folder is removed by processes that are killed with all of the node.
    CHECK(std::distance(std::filesystem::directory_iterator(folder() / kTemporary), {}) == killed_nodes_);
  }

  int restarts() const { return restarts_; }

 private:
  void chaos(const std::string& kind, int host, int seed) {
    const Result killed = run(ddprun_raw({"chaos", std::to_string(on(host).pid()), "--every=1ms", "--count=1",
                                          "--kind=" + kind, "--seed=" + std::to_string(seed)}));
    CAPTURE(killed.out, killed.err);
    CHECK(killed.code == 0);
  }
  // The workers begin again, once.
  void restarts(const Ledger::Line& before) {
    ledger().goes_on_anew(before);
    ++restarts_;
    on(0).wait_for("restart " + std::to_string(restarts_) + ": 3 workers");
    CHECK(count(on(0).out(), ": 3 workers") == restarts_ + 1);
  }
  void notices_nothing(const Ledger::Line& before) {
    ledger().goes_on(before);
    CHECK(ledger().newest().writer == before.writer);
  }

  const Hosts& hosts_;
  std::map<int, Clock::time_point> agent_began_;  // when the newest agent of a node began, if it is not the first
  int restarts_ = 0, killed_nodes_ = 0;
};

}  // namespace

TEST_CASE("soak: a job that is hit at random counts on exactly, restarts when it must, and holds no more than before",
          "[launcher][integration]") {
  const auto lasts = std::chrono::seconds(number_from("DDPRUN_SOAK_SECONDS", 0));
  const int seed = number_from("DDPRUN_SOAK_SEED", static_cast<int>(std::random_device{}() % 1000000));
  CAPTURE(seed);
  printf("DDPRUN_SOAK_SEED=%d\n", seed);
  std::mt19937 random(static_cast<unsigned>(seed));
  const auto below = [&random](unsigned end) { return static_cast<int>(random() % end); };
  const Hosts hosts(kNodes);
  Job job(hosts);
  Held early, now;
  const auto begin = Clock::now();
  for (int hits = 0; hits < kKinds || Clock::now() - begin < lasts; ++hits) {
    Hit what = static_cast<Hit>(hits < kKinds ? hits : below(kKinds));
    // Node 0's keeper and agent live as long as the job, so that what they hold can be compared.
    const int other = 1 + below(kNodes - 1);
    if (what == Hit::Agent && !job.may_lose_agent(other)) what = Hit::Worker;
    const int host = what == Hit::Worker ? below(kNodes) : what == Hit::Coordinator ? 0 : other;
    const char* const name = kNames[static_cast<std::size_t>(what)];
    const auto since = Clock::now();
    try {
      job.hit(what, host, below(1000));
      job.look(below(kNodes));
    } catch (const std::exception& error) {
      FAIL(error.what() << " after " << name << " of node " << host << " was hit" << job.last_words());
    }
    now = held(hosts, {0});
    if (hits < 10 * kKinds) early = now;
    const auto passed = [](Clock::time_point from) {
      return std::chrono::duration<double>(Clock::now() - from).count();
    };
    printf("%.0f s: %s of node %d is hit: %.2f s; step %lld, %d restarts, node 0: %d descriptors, %ld pages\n",
           passed(begin), name, host, passed(since), static_cast<long long>(job.ledger().newest().step), job.restarts(),
           now.descriptors, now.pages);
    fflush(stdout);
    if (lasts > 0s) std::this_thread::sleep_for(std::chrono::milliseconds(below(1000)));  // the time between two hits
  }
  CHECK(now.descriptors <= early.descriptors + 6);  // a connection that is being made here or there
  CHECK(now.pages <= early.pages * 11 / 10);
  job.end();
}
