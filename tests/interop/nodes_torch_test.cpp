// SPDX-License-Identifier: BSD-3-Clause
// Real PyTorch on several hosts. Needs DDPRUN_TEST_PYTHON at run time, else it is skipped.
#include <catch2/catch.hpp>
#include <csignal>

#include "tests/integration/kept/worker_ends.hpp"
#include "tests/integration/nodes/nodes.hpp"
#include "tests/interop/with_torch.hpp"

using namespace ddp::testing;

namespace {

std::unique_ptr<Process> start(const Hosts& hosts, int host, const Words& options, const Words& arguments) {
  const Words words = Words{DDPRUN_BINARY} + options + Words{NODES_WORKER} + arguments;
  return std::make_unique<Process>(hosts.on(host, words), with_torch());
}

// Checks that rank 0, whose output this is, has come to the loss to which the same training comes in one process.
void check_final_loss(const std::string& out) {
  const auto loss = [&](const std::string& words) {
    const auto at = out.find(words);
    return at == std::string::npos ? words + "is not there" : out.substr(at + words.size(), 7);
  };
  CAPTURE(out);
  CHECK(loss("final loss ") == loss("in one process "));
}

}  // namespace

TEST_CASE("interop nodes: PyTorch's DDP trains over gloo on three hosts as in one process", "[interop]") {
  const TemporaryFolder folder;
  const Hosts hosts(3);
  std::vector<std::unique_ptr<Process>> nodes;
  for (const int host : {2, 1, 0}) {
    const Words rank = {"--node_rank=" + std::to_string(host), "--nproc_per_node=" + std::to_string(host == 1 ? 2 : 1)};
    nodes.push_back(start(hosts, host, static_job(3) + rank, {folder / "three.pt"}));
  }
  for (const auto& node : nodes) {
    const Result result = node->wait();
    CAPTURE(result.out, result.err);
    CHECK(result.code == 0);
    CHECK(count(result.out, "of 4 done, from step 0, after 0 restarts") >= 1);
  }
  check_final_loss(nodes[2]->out());
  CHECK(hosts.all_gone());
}

TEST_CASE("interop nodes: a killed coordinator touches no PyTorch worker, a killed store costs them one restart",
          "[interop]") {
  const TemporaryFolder folder;
  const Hosts hosts(2);
  std::vector<std::unique_ptr<Process>> nodes;
  for (const int host : {0, 1}) {
    const Words rank = {"--node_rank=" + std::to_string(host), "--max-restarts=1"};
    nodes.push_back(start(hosts, host, static_job(2) + rank, {folder / "parts.pt", "node1"}));
  }
  nodes[1]->wait_for("stands still");
  const std::vector<pid_t> workers = {only_child_of(agent_of(*nodes[0])), only_child_of(agent_of(*nodes[1]))};
  kill_sidecar(*nodes[0], "ddp-coordinator");
  for (const auto& node : nodes) node->wait_for("the link to the coordinator is back");
  CHECK(workers == std::vector{only_child_of(agent_of(*nodes[0])), only_child_of(agent_of(*nodes[1]))});
  kill_sidecar(*nodes[0], "ddp-store");
  for (const auto& node : nodes) {
    const Result result = node->wait();
    CAPTURE(result.out, result.err);
    CHECK(result.code == 0);
    CHECK(count(result.out, "of 2 done, from step 40, after 1 restarts") == 1);
    CHECK(count(result.err, "restart 1 of 1: the store is gone: ddp-store (pid ") == 1);
  }
  check_final_loss(nodes[0]->out());
  CHECK(hosts.all_gone());
}

TEST_CASE("interop nodes: an elastic PyTorch job goes on from its checkpoint when a host dies and another one comes",
          "[interop]") {
  const TemporaryFolder folder;
  const Hosts hosts(4);
  const Words options = c10d_job("2:3", "keep_alive_interval=1,keep_alive_max_attempt=5") +
                        Words{"--preload=auto"};  // spares the restart the imports
  const Words arguments = {folder / "elastic.pt", "node2"};
  std::vector<std::unique_ptr<Process>> nodes;
  for (const int host : {0, 1, 2}) nodes.push_back(start(hosts, host, options, arguments));
  nodes[2]->wait_for("stands still");
  hosts.power_off(2);  // its peers are in the middle of a collective, and get no notification
  nodes.push_back(start(hosts, 3, options, arguments));
  for (const int host : {0, 1, 3}) {
    const Result result = nodes[static_cast<std::size_t>(host)]->wait();
    CAPTURE(host, result.out, result.err);
    CHECK(result.code == 0);
    CHECK(count(result.out, "of 3 done, from step 40, after 0 restarts") == 1);
  }
  check_final_loss(nodes[0]->out());
  CHECK(hosts.all_gone());
}

TEST_CASE("interop nodes: a PyTorch job with kept memory on two hosts comes to the bits of one host, though ranks die",
          "[interop]") {
  const Words trains = {KEPT_TRAINER, "transformer", "24"};
  const Words calm = Words{DDPRUN_BINARY, "--preload=auto", "--nproc_per_node=4"} + trains + Words{"0", "7"};
  const Result undisturbed = run(calm, with_package());
  CAPTURE(undisturbed.err);
  REQUIRE(undisturbed.code == 0);
  const Words expected = ends_of(undisturbed.out);
  REQUIRE(expected.size() == 4);

  const Hosts hosts(2);
  const Words dies = trains + Words{"2", "7"};  // in each of the first two lives some ranks die, drawn from the seed
  std::vector<std::unique_ptr<Process>> nodes;
  for (const int host : {0, 1}) {
    const Words options = static_job(2) + Words{"--node_rank=" + std::to_string(host), "--nproc_per_node=2",
                                                "--preload=auto", "--keep-memory=shadow", "--max-restarts=9"};
    nodes.push_back(std::make_unique<Process>(hosts.on(host, Words{DDPRUN_BINARY} + options + dies), with_package()));
  }
  std::string out, err;
  for (const auto& node : nodes) {
    const Result result = node->wait();
    CAPTURE(result.out, result.err);
    CHECK(result.code == 0);
    out += result.out;
    err += result.err;
  }
  CAPTURE(out, err);
  CHECK(ends_of(out) == expected);
  CHECK(count(err, "restart 2 of 9: rank ") == 2);
  CHECK(count(out, "rank 0 begins life 2 at step ") == 1);
  CHECK(count(out, "rank 0 begins life 2 at step 0: \n") == 0);  // it went on
  CHECK(hosts.all_gone());
}

TEST_CASE("interop nodes: a host that replaces a lost one trains on with the other's model and optimizer",
          "[interop]") {
  const Hosts hosts(3);
  const auto start = [&](int host, int rank) {
    const Words options = static_job(2) + Words{"--node_rank=" + std::to_string(rank), "--nproc_per_node=1",
                                                "--preload=auto", "--keep-memory", "--max-restarts=3"};
    const Words trains = {KEPT_TRAINER, "adam", "300", "0", "7"};
    return std::make_unique<Process>(hosts.on(host, Words{DDPRUN_BINARY} + options + trains), with_package());
  };
  const auto node0 = start(0, 0), lost = start(1, 1);
  node0->wait_for("rank 0 has done 5 steps");
  ::kill(lost->pid(), SIGKILL);
  CHECK(lost->all_gone());
  const auto replacement = start(2, 1);
  const Result here = node0->wait(), there = replacement->wait();
  CAPTURE(here.out, here.err, there.out, there.err);
  CHECK(here.code == 0);
  CHECK(there.code == 0);
  CHECK(count(there.out, "with the tensors and the record of rank 0 on another node") == 1);
  CHECK(count(there.out, "rank 1 begins life 1 at step 0") == 0);
  // "rank 1 ends with STATE CHANCE OWN": after an update the state is equal on all ranks.
  REQUIRE(ends_of(here.out).size() == 1);
  REQUIRE(ends_of(there.out).size() == 1);
  CHECK(ends_of(here.out)[0].substr(17, 16) == ends_of(there.out)[0].substr(17, 16));
  CHECK(hosts.all_gone());
}
