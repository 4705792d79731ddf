// SPDX-License-Identifier: BSD-3-Clause
// Which host gets which node rank, and which makes room for another one.
#include <catch2/catch.hpp>
#include <fstream>

#include "tests/integration/nodes/nodes.hpp"

using namespace ddp::testing;

TEST_CASE(
    "nodes: ranks follow the file of the network and the hosts' names, and a host at fault makes room for a spare",
    "[launcher][integration]") {
  const Hosts hosts(4);
  const TemporaryFolder folder;
  const std::string topology = folder / "topology", begin = folder / "begin";
  std::ofstream(topology) << "SwitchName=near Nodes=node[0,2]\nSwitchName=far Nodes=node[1]\n";
  const std::string worker = "echo \"$(hostname) has node rank $GROUP_RANK\"; while [ ! -e " + begin +
                             " ]; do sleep 0.05; done; [ $(hostname) != node1 ] || exit 7";
  const Words command =
      Words{DDPRUN_BINARY} + c10d_job("3") +
      Words{"--max-restarts=3", "--exclude-after=2", "--topology=" + topology, "--no-python", "sh", "-c", worker};
  Process third(hosts.on(2, command)), second(hosts.on(1, command)), first(hosts.on(0, command));
  second.wait_for("node1 has node rank 2\n");
  Process spare(hosts.on(3, command));
  spare.wait_for("this node waits as a spare");
  std::ofstream(begin).flush();
  const Result end = spare.wait();
  CAPTURE(end.out, end.err);
  CHECK(end.code == 0);
  CHECK(count(end.out, "node3 has node rank 2\n") == 1);
  CHECK(count(end.err, "node node1 (" + Hosts::address(1) + ") was the first cause of 2 failures (--exclude-after)") ==
        1);
  const Result excluded = second.wait();
  CAPTURE(excluded.out, excluded.err);
  CHECK(excluded.code == 0);
  CHECK(count(excluded.out, "node1 has node rank 2\n") >= 1);
  CHECK(count(excluded.err, "(--exclude-after): it waits until no other spare is there") == 1);
  // A worker of a round that is stopped at once may not get to say it.
  const std::string out = third.wait().out + first.wait().out;
  CAPTURE(out);
  CHECK(count(out, " has node rank ") == count(out, "node2 has node rank 1\n") + count(out, "node0 has node rank 0\n"));
  CHECK(hosts.all_gone());
}

TEST_CASE("launch: with a window a restart counts until it is over", "[launcher][integration]") {
  // Each process lives longer than the window.
  const Words command = {DDPRUN_BINARY,
                         "--max-restarts=1",
                         "--restart-window=500ms",
                         "--no-python",
                         "sh",
                         "-c",
                         "sleep 0.6; [ $TORCHELASTIC_RESTART_COUNT = 3 ] || exit 7"};
  Process job(command);
  const Result end = job.wait();
  CAPTURE(end.out, end.err);
  CHECK(end.code == 0);
  CHECK(count(end.err, "restart 3, 1 of 1 within 500 ms: ") == 1);
}
