// SPDX-License-Identifier: BSD-3-Clause
// Nodes that meet in a file of a folder that all of them have (--rdzv-conf store_type=file).
#include <catch2/catch.hpp>
#include <csignal>
#include <filesystem>
#include <fstream>

#include "tests/integration/nodes/nodes.hpp"

using namespace ddp::testing;

namespace {

Words file_job(const std::string& nnodes, const std::string& path, const std::string& id = "job") {
  return {"--nnodes=" + nnodes, "--rdzv-backend=c10d", "--rdzv-endpoint=" + path, "--rdzv-id=" + id,
          "--rdzv-conf=store_type=file,join_timeout=60"};
}

}  // namespace

TEST_CASE("meeting file: nodes that start in any order are one job, and the file is gone at its end",
          "[launcher][integration]") {
  const Hosts hosts(3);
  const TemporaryFolder folder;
  const std::string path = folder / "meet";
  NodesJob job(hosts, file_job("3", path), {"env=MASTER_ADDR", "second_store"});
  for (const int host : {2, 0, 1}) job.start(host);
  std::string address;
  for (int host = 0; host < 3; ++host) {
    const Result result = job.on(host).wait();
    CAPTURE(host, result.out, result.err);
    CHECK(result.code == 0);
    CHECK(count(result.out, "met 3 in the second store") == 1);
    if (host == 0) address = result.out.substr(0, result.out.find('\n'));
    CHECK(count(result.out, address) == 1);
  }
  CHECK_FALSE(std::filesystem::exists(path));

  // Nodes on one machine need no network.
  std::vector<std::unique_ptr<Process>> nodes;
  for (int node = 0; node < 2; ++node) {
    nodes.push_back(std::make_unique<Process>(ddprun(file_job("2", path), {"env=MASTER_ADDR", "meet"})));
  }
  for (const auto& node : nodes) {
    const Result result = node->wait();
    CAPTURE(result.err);
    CHECK(count(result.out, "[MASTER_ADDR=127.0.0.1]") == 1);
    CHECK(count(result.out, "met 2") == 1);
    CHECK(node->left_over().empty());
  }
  CHECK(hosts.all_gone());
}

TEST_CASE("meeting file: one that a killed job has left behind is taken over at once", "[launcher][integration]") {
  const Hosts hosts(3);
  const TemporaryFolder folder;
  const std::string path = folder / "meet";
  NodesJob dead(hosts, file_job("2", path), {"say=started"});
  dead.start(0).wait_for("1 of 2 there");
  kill_node(dead.on(0));
  dead.on(0).wait();
  REQUIRE(std::filesystem::exists(path));

  NodesJob job(hosts, file_job("2", path), {"meet"});
  for (const int host : {1, 2}) job.start(host);
  for (const int host : {1, 2}) {
    const Result result = job.on(host).wait();
    CAPTURE(host, result.out, result.err);
    CHECK(result.code == 0);
    CHECK(count(result.out, "met 2") == 1);
  }
  CHECK_FALSE(std::filesystem::exists(path));
  CHECK(hosts.all_gone());
}

TEST_CASE("meeting file: a node of another job is refused, is not told the id, and the job goes on",
          "[launcher][integration]") {
  const Hosts hosts(2);
  const TemporaryFolder folder;
  const std::string path = folder / "meet";
  NodesJob job(hosts, file_job("2", path, "one"), {"meet"});
  job.start(0).wait_for("1 of 2 there");
  NodesJob other(hosts, file_job("2", path, "two"), {"meet"});
  const Result refused = other.start(1).wait();
  CHECK(refused.code == 1);
  CHECK(count(refused.err, "the coordinator's job has another --rdzv-id than 'two' of this host") == 1);
  CHECK(count(refused.err, "'one'") == 0);
  job.on(0).wait_for("its --rdzv-id is 'two', this job's 'one'");
  job.start(1);
  for (const int host : {0, 1}) CHECK(job.on(host).wait().code == 0);
  CHECK(hosts.all_gone());
}

TEST_CASE("meeting file: a path that cannot serve is an error that says why", "[launcher][integration]") {
  const TemporaryFolder folder;
  const Result nowhere = run(ddprun(file_job("2", "/nosuch/folder/meet"), {"say=started"}));
  CHECK(nowhere.code == 1);
  CHECK(count(nowhere.err, "/nosuch/folder/meet") >= 1);
  CHECK(count(nowhere.err, "its folder must exist, and be shared by all nodes") == 1);
  std::ofstream(folder / "model.pt") << "weights";
  const Result taken = run(ddprun(file_job("2", folder / "model.pt"), {"say=started"}));
  CHECK(taken.code == 1);
  CHECK(count(taken.err, "there is a file that ddprun did not write; remove it, or choose another path") == 1);
  CHECK(std::filesystem::file_size(folder / "model.pt") == 7);
}
