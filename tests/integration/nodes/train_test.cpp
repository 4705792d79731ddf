// SPDX-License-Identifier: BSD-3-Clause
// The example job on several hosts: libddp's groups, checkpoints and stores on real networks.
#include <algorithm>
#include <catch2/catch.hpp>
#include <cmath>
#include <csignal>
#include <map>
#include <sstream>

#include "tests/integration/nodes/nodes.hpp"

using namespace ddp::testing;

namespace {

Words train(const TemporaryFolder& folder, const std::string& name, const Words& options) {
  return Words{TRAIN_BINARY,
               "--width=32",
               "--context=32",
               "--sample-bytes=20",
               "--checkpoint=" + (folder / (name + ".safetensors")),
               "--log=" + (folder / (name + ".log"))} +
         options;
}

// Returns the loss of each step. A resumed run writes some steps again; the last line counts.
std::map<int, double> losses(const std::string& path) {
  std::map<int, double> found;
  std::istringstream lines(read_file(path));
  for (int step; lines >> step;) lines >> found[step];
  return found;
}

Words nodes(int host, int workers, const Words& more = {}) {
  return Words{DDPRUN_BINARY} + static_job(3) +
         Words{"--node_rank=" + std::to_string(host), "--nproc_per_node=" + std::to_string(workers)} + more;
}

}  // namespace

TEST_CASE("nodes train: three hosts with one, two and one workers do what one host with four does",
          "[apps][integration]") {
  const TemporaryFolder folder;
  const Words options = {"--steps=50", "--validate-every=50"};
  const Result one = run(Words{DDPRUN_BINARY, "--rdzv-id=none", "--nproc_per_node=4"} + train(folder, "one", options));
  CAPTURE(one.err);
  REQUIRE(one.code == 0);

  const Hosts hosts(3);
  Process node0(hosts.on(0, nodes(0, 1) + train(folder, "three", options)));
  Process node1(hosts.on(1, nodes(1, 2) + train(folder, "three", options)));
  Process node2(hosts.on(2, nodes(2, 1) + train(folder, "three", options)));
  for (Process* node : {&node0, &node1, &node2}) {
    const Result result = node->wait();
    CAPTURE(result.out, result.err);
    CHECK(result.code == 0);
  }
  CHECK(hosts.all_gone());

  const auto here = losses(folder / "one.log");
  CHECK(here.size() == 50);
  CHECK(losses(folder / "three.log") == here);  // to the last digit, since sums are added in the order of ranks
  CHECK((read_file(folder / "one.safetensors") == read_file(folder / "three.safetensors")));
  const auto validation = [](const std::string& out) { return out.substr(out.find("validation after 50 steps")); };
  CHECK(count(node0.out(), validation(one.out).substr(0, 33)) == 1);  // "validation after 50 steps: 3.1416"
}

TEST_CASE("nodes train: the backend ddp computes what is right on three hosts, in collectives, messages and groups",
          "[apps][integration]") {
  const Hosts hosts(3);
  const Words worker = {COLLECTIVE_WORKER, GENERATE("collectives", "messages", "split"), "60000", "ddp"};
  CAPTURE(worker[1]);
  Process node0(hosts.on(0, nodes(0, 1) + worker));
  Process node1(hosts.on(1, nodes(1, 2) + worker));
  Process node2(hosts.on(2, nodes(2, 1) + worker));
  for (Process* node : {&node0, &node1, &node2}) {
    const Result result = node->wait();
    CAPTURE(result.out, result.err);
    CHECK(result.code == 0);
    CHECK(result.out.find("wrong") == std::string::npos);
  }
  CHECK(hosts.all_gone());
}

TEST_CASE("nodes train: without a launcher, a host that vanishes silently is named by the backend ddp of all others",
          "[apps][integration]") {
  const Hosts hosts(3);
  const auto rank = [&](int host) {
    return hosts.on(host, {"env", "RANK=" + std::to_string(host), "WORLD_SIZE=3", "MASTER_ADDR=node0",
                           "MASTER_PORT=29500", COLLECTIVE_WORKER, "lose rank 1"});
  };
  Process rank0(rank(0)), rank1(rank(1)), rank2(rank(2));
  for (Process* process : {&rank0, &rank1, &rank2}) process->wait_for("ready");
  hosts.unplug(1);
  for (Process* survivor : {&rank0, &rank2}) {
    const Result result = survivor->wait();  // the kernel's probes take 30 s
    CAPTURE(result.out, result.err);
    CHECK(result.code == 0);
    CHECK(count(result.out, "its connection to rank 1 broke: ") >= 1);
  }
}

TEST_CASE("nodes train: a host that dies and is replaced costs time, not a bit of the result",
          "[apps][integration][N1]") {
  const TemporaryFolder folder;
  const Hosts hosts(4);
  const Words options = {"--steps=120", "--validate-every=0", "--global-batch=12", "--checkpoint-every=10"};
  const auto start = [&](int host, int rank, const std::string& name) {
    const Words words = nodes(rank, 1, {"--max-restarts=1"}) + train(folder, name, options);
    return std::make_unique<Process>(hosts.on(host, words));
  };
  std::vector<std::unique_ptr<Process>> undisturbed;
  for (const int host : {0, 1, 2}) undisturbed.push_back(start(host, host, "undisturbed"));
  for (const auto& node : undisturbed) REQUIRE(node->wait().code == 0);

  const auto node0 = start(0, 0, "disturbed"), node1 = start(1, 1, "disturbed"), lost = start(2, 2, "disturbed");
  node0->wait_for("checkpoint after 20 steps");
  ::kill(lost->pid(), SIGKILL);  // kills the guardian; the agent does the rest
  CHECK(lost->all_gone());
  const auto replacement = start(3, 2, "disturbed");
  for (Process* node : {node0.get(), node1.get(), replacement.get()}) {
    const Result result = node->wait();
    CAPTURE(result.out, result.err);
    CHECK(result.code == 0);
  }
  CHECK(count(node0->err(), "restart 1 of 1: node node2 (10.7.0.3)") == 1);
  CHECK((read_file(folder / "undisturbed.safetensors") == read_file(folder / "disturbed.safetensors")));
  CHECK(losses(folder / "undisturbed.log") == losses(folder / "disturbed.log"));
  CHECK(hosts.all_gone());
}

TEST_CASE(
    "nodes train: with --on-failure shrink hosts are lost and come, and each step learns what it would have learned",
    "[apps][integration]") {
  const TemporaryFolder folder;
  const Words options = {"--steps=4000", "--validate-every=0", "--checkpoint-every=0", "--layers=1"};
  const auto await_lines = [&](const std::string& name, std::size_t lines) {
    wait_until([&] { return losses(folder / (name + ".log")).size() >= lines; });
  };
  const Hosts hosts(3);
  std::vector<std::unique_ptr<Process>> nodes;
  const auto start = [&](int host) {
    const Words words = Words{DDPRUN_BINARY} + c10d_job("2:3") + Words{"--on-failure=shrink", "--log-level=info"};
    nodes.push_back(std::make_unique<Process>(hosts.on(host, words + train(folder, "elastic", options))));
  };
  for (const int host : {0, 1, 2}) start(host);
  nodes[0]->wait_for("job: 3 workers, 16 sequences a step, 5 or one more for each");
  await_lines("elastic", 20);
  nodes[1]->signal(SIGKILL);
  nodes[0]->wait_for("job: 2 workers, 16 sequences a step, 8 for each");
  await_lines("elastic", losses(folder / "elastic.log").size() + 20);
  start(1);
  nodes[0]->wait_for("job: 3 workers", 2);
  const std::size_t steps = losses(folder / "elastic.log").size() + 20;
  await_lines("elastic", steps);
  nodes[0]->signal(SIGTERM);
  for (auto& node : nodes) node->wait();
  CHECK(hosts.all_gone());

  Process alone(Words{DDPRUN_BINARY, "--nproc_per_node=1"} + train(folder, "alone", options));
  await_lines("alone", steps);
  alone.signal(SIGTERM);
  alone.wait();
  const auto expected = losses(folder / "alone.log");
  CAPTURE(nodes[0]->out(), nodes[0]->err(), nodes[2]->err(), nodes[3]->err());
  CHECK(count(nodes[0]->err(), "1 of 1 workers of this node stay") == 2);
  const auto found = losses(folder / "elastic.log");
  CHECK(found.size() >= steps);
  CHECK(found.rbegin()->first == static_cast<int>(found.size()));  // no step is left out
  double largest = 0;
  for (const auto& [step, loss] : found) {
    if (expected.count(step) > 0) largest = std::max(largest, std::abs(loss / expected.at(step) - 1));
  }
  CHECK(largest < 1e-3);  // the order of sums differs
}
