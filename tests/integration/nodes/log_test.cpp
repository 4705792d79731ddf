// SPDX-License-Identifier: BSD-3-Clause
// Logs of jobs whose nodes join and leave.
#include <catch2/catch.hpp>
#include <csignal>

#include "tests/integration/nodes/nodes.hpp"
#include "tests/integration/output/log_files.hpp"

using namespace ddp::testing;

TEST_CASE("nodes: a round that began because a node left has log files of its own", "[launcher][integration]") {
  const Hosts hosts(2);
  const TemporaryFolder folder;
  NodesJob job(hosts, c10d_job("1:2") + Words{"-t1", "--log-dir", folder.path() + "/0"},
               {"place", "catch=TERM", "wait"});
  job.start(0);
  job.start(1, {"--log-dir", folder.path() + "/1"});
  job.on(0).wait_for(" of 2, local");
  job.on(1).signal(SIGTERM);
  job.on(1).wait();
  job.on(0).wait_for(" of 1, local 0 of 1, node 0 of 1, restart 0");
  job.on(0).signal(SIGTERM);
  job.on(0).wait();
  const LogFiles files(folder.path() + "/0");
  CHECK(count(files.at("attempt_0/0/stdout.log"), "rank 0 of 2, ") == 1);
  CHECK(count(files.at("attempt_1/0/stdout.log"), "rank 0 of 1, ") == 1);
}
