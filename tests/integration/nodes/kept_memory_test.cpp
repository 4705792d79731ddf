// SPDX-License-Identifier: BSD-3-Clause
// ddprun --keep-memory on several hosts: a worker's death restarts all workers, which lose no step, and a host that
// replaces a lost one gets what the others have.
#include <catch2/catch.hpp>
#include <csignal>
#include <memory>

#include "tests/integration/kept/worker_ends.hpp"
#include "tests/integration/nodes/nodes.hpp"

using namespace ddp::testing;

namespace {

Words node_of(int rank, int workers, const Words& verbs, const std::string& option = "--keep-memory") {
  return Words{DDPRUN_BINARY} + static_job(2) +
         Words{"--node_rank=" + std::to_string(rank), "--nproc_per_node=" + std::to_string(workers), option,
               "--max-restarts=10", KEPT_WORKER_BINARY} +
         verbs;
}

// Returns what the ranks of a job on one host have.
Words of_one_host(int workers, const Words& verbs) {
  const Result result = run(
      Words{DDPRUN_BINARY, "--rdzv-id=one", "--nproc_per_node=" + std::to_string(workers), KEPT_WORKER_BINARY} + verbs);
  CAPTURE(result.err);
  REQUIRE(result.code == 0);
  return ends_of(result.out);
}

struct Ended {
  std::string out, err;
};

// Waits for both hosts.
Ended end_of(Process& node0, Process& node1) {
  Ended ended;
  for (Process* node : {&node0, &node1}) {
    const Result result = node->wait();
    CAPTURE(result.out, result.err);
    CHECK(result.code == 0);
    ended.out += result.out;
    ended.err += result.err;
  }
  return ended;
}

}  // namespace

TEST_CASE("nodes kept memory: a worker that dies at any place of a step costs no step and no bit on any host",
          "[apps][integration]") {
  const int workers = GENERATE(1, 2);  // alone on its host, its tensors are with the other host
  const Hosts hosts(2);
  const Words verbs = {"steps=6"};
  const Words expected = of_one_host(2 * workers, verbs);
  for (int place = 0; place < 7; ++place) {
    const Words dies = verbs + Words{"die=0:3:" + std::to_string(place)};
    Process node0(hosts.on(0, node_of(0, workers, dies))), node1(hosts.on(1, node_of(1, workers, dies)));
    const Ended job = end_of(node0, node1);
    CAPTURE(workers, place, job.err, job.out);
    CHECK(ends_of(job.out) == expected);
    CHECK(count(job.err, "restart 1 of 10: rank 0 on node node0 was killed by SIGKILL") == 2);
    const int went_on = count(job.out, ": goes on after step") + count(job.out, ": does step 3 again");
    CHECK(went_on == 2 * workers);
    const bool is_torn_alone = workers == 1 && place > 0 && place < 4;
    if (is_torn_alone) CHECK(count(job.out, "with the tensors of rank 1 on another node") == 1);
  }
  CHECK(hosts.all_gone());
}

TEST_CASE("nodes kept memory: a host that replaces a lost one is filled by the other, and no step is lost",
          "[apps][integration]") {
  const Hosts hosts(3);
  const Words verbs = {"steps=9", "alike=1"};
  const Words expected = of_one_host(4, verbs);
  const Words waits = verbs + Words{"wait=5"};
  Process node0(hosts.on(0, node_of(0, 2, waits)));
  auto lost = std::make_unique<Process>(hosts.on(1, node_of(1, 2, waits)));
  node0.wait_for("waits after step 5", 2);
  lost->wait_for("waits after step 5", 2);
  ::kill(lost->pid(), SIGKILL);
  CHECK(lost->all_gone());
  Process replacement(hosts.on(2, node_of(1, 2, waits)));
  const Ended job = end_of(node0, replacement);
  CAPTURE(job.err, job.out);
  CHECK(ends_of(job.out) == expected);
  CHECK(count(job.out, ": goes on after step 5") == 4);
  CHECK(count(job.out, "with the tensors and the record of rank 0 on another node") == 2);
  CHECK(hosts.all_gone());
}

TEST_CASE("nodes kept memory: a worker that dies with tensors of its own has all hosts go back by their shadows",
          "[apps][integration]") {
  const std::string by = GENERATE("shards", "zero");
  const Hosts hosts(2);
  const Words verbs = {"steps=6", "by=" + by};
  const Words expected = of_one_host(4, verbs);
  for (int place = 0; place < 7; ++place) {
    const Words dies = verbs + Words{"die=0:3:" + std::to_string(place)};
    Process node0(hosts.on(0, node_of(0, 2, dies, "--keep-memory=shadow")));
    Process node1(hosts.on(1, node_of(1, 2, dies, "--keep-memory=shadow")));
    const Ended job = end_of(node0, node1);
    CAPTURE(by, place, job.err, job.out);
    CHECK(ends_of(job.out) == expected);
    CHECK(count(job.out, ": goes on after step") + count(job.out, ": does step 3 again") == 4);
    if (place > 0 && place < 4)
      CHECK(count(job.out, "goes on after step 2, with its own tensors from the shadow") >= 1);
  }
  CHECK(hosts.all_gone());
}

TEST_CASE("nodes kept memory: a lost host takes the tensors of its own with it, and all start from the checkpoint",
          "[apps][integration]") {
  const Hosts hosts(3);
  const Words verbs = {"steps=7", "by=shards"};
  const Words expected = of_one_host(4, verbs);
  const Words waits = verbs + Words{"wait=5"};
  Process node0(hosts.on(0, node_of(0, 2, waits, "--keep-memory=shadow")));
  auto lost = std::make_unique<Process>(hosts.on(1, node_of(1, 2, waits, "--keep-memory=shadow")));
  node0.wait_for("waits after step 5", 2);
  lost->wait_for("waits after step 5", 2);
  ::kill(lost->pid(), SIGKILL);
  CHECK(lost->all_gone());
  Process replacement(hosts.on(2, node_of(1, 2, waits, "--keep-memory=shadow")));
  const Ended job = end_of(node0, replacement);
  CAPTURE(job.err, job.out);
  CHECK(ends_of(job.out) == expected);
  CHECK(count(job.out, "what was found is not used: rank 2, rank 3 has kept nothing, and no other rank has its own") ==
        2);
  CHECK(hosts.all_gone());
}
