// SPDX-License-Identifier: BSD-3-Clause
// All workers of a round have one MASTER_ADDR, on which rank 0 can open ports of its own for the others.
#include <catch2/catch.hpp>
#include <set>

#include "tests/integration/nodes/nodes.hpp"
#include "tests/support/ports.hpp"

using namespace ddp::testing;

namespace {

// Waits for the node, which must succeed, and returns the MASTER_ADDR of its worker.
std::string master_addr(Process& node, int nodes) {
  const Result result = node.wait();
  CAPTURE(result.out, result.err);
  CHECK(result.code == 0);
  CHECK(count(result.out, "met " + std::to_string(nodes) + " in the second store") == 1);
  const auto from = result.out.find("[MASTER_ADDR=");
  REQUIRE(from != std::string::npos);
  return result.out.substr(from + 13, result.out.find(']', from) - from - 13);
}

const Words kVerbs = {"env=MASTER_ADDR", "second_store"};

}  // namespace

TEST_CASE("MASTER_ADDR: nodes on one machine all get the endpoint's host as it is given", "[launcher][integration]") {
  for (const std::string host : {"localhost", "127.0.0.1", "127.0.0.2"}) {
    const Words options = {"--nnodes=2", "--rdzv-backend=c10d",
                           "--rdzv-endpoint=" + host + ":" + std::to_string(free_port())};
    Process one(ddprun(options, kVerbs)), two(ddprun(options, kVerbs));
    CHECK(master_addr(one, 2) == host);
    CHECK(master_addr(two, 2) == host);
    CHECK(one.left_over().empty());
    CHECK(two.left_over().empty());
  }
}

TEST_CASE("MASTER_ADDR: all nodes get the address at which all arrive, even if the machine's first one is another",
          "[launcher][integration]") {
  const Hosts hosts(3, {.networks = {{1, 0}, {0}, {0}}});
  for (const std::string host : {"10.7.0.1", "node0"}) {
    NodesJob job(hosts, {"--nnodes=3", "--rdzv-backend=c10d", "--rdzv-endpoint=" + host + ":29400"}, kVerbs);
    for (const int node : {0, 1, 2}) job.start(node);
    for (const int node : {0, 1, 2}) CHECK(master_addr(job.on(node), 3) == "10.7.0.1");  // node0 has 10.7.1.1 for node0
  }
  CHECK(hosts.all_gone());
}

TEST_CASE("MASTER_ADDR: nodes that spell the endpoint in different ways get the address at which all of them arrive",
          "[launcher][integration]") {
  const Hosts hosts(3, {.networks = {{1, 0}, {0}, {0}}, .debian_names = true});
  NodesJob job(hosts, {"--nnodes=3", "--rdzv-backend=c10d"}, kVerbs);
  job.start(0, {"--rdzv-endpoint=localhost:29400"});
  job.start(1, {"--rdzv-endpoint=10.7.0.1:29400"});
  job.start(2, {"--rdzv-endpoint=node0:29400"});
  for (const int node : {0, 1, 2}) CHECK(master_addr(job.on(node), 3) == "10.7.0.1");

  NodesJob by_name(hosts, {"--nnodes=2", "--rdzv-backend=c10d", "--rdzv-endpoint=node0:29400"}, kVerbs);
  for (const int node : {0, 1}) by_name.start(node);
  for (const int node : {0, 1}) CHECK(master_addr(by_name.on(node), 2) == "10.7.0.1");  // node0 itself has 127.0.1.1
  CHECK(hosts.all_gone());
}

TEST_CASE("MASTER_ADDR: if no address is common to all nodes, each gets its own and the user a warning",
          "[launcher][integration]") {
  const Hosts hosts(3, {.networks = {{0, 1}, {0}, {1}}});
  NodesJob job(hosts, {"--nnodes=3", "--rdzv-backend=c10d"}, {"env=MASTER_ADDR", "meet"});
  job.start(0, {"--rdzv-endpoint=localhost:29400"});
  job.start(1, {"--rdzv-endpoint=10.7.0.1:29400"});
  job.start(2, {"--rdzv-endpoint=10.7.1.1:29400"});
  const std::string warning = "MASTER_ADDR is not the same on all nodes";
  for (const int node : {0, 1, 2}) {
    const Result result = job.on(node).wait();
    CAPTURE(node, result.out, result.err);
    CHECK(result.code == 0);
    CHECK(count(result.out, "met 3") == 1);
    CHECK(count(result.out, node == 2 ? "[MASTER_ADDR=10.7.1.1]" : "[MASTER_ADDR=10.7.0.1]") == 1);
    CHECK(count(result.err, warning) == (node == 0 ? 1 : 0));
    if (node == 0) {
      CHECK(count(result.err, "node1 by 10.7.0.1") == 1);
      CHECK(count(result.err, "node2 by 10.7.1.1") == 1);
    }
  }
  CHECK(hosts.all_gone());
}
