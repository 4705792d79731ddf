// SPDX-License-Identifier: BSD-3-Clause
// Jobs of several nodes on networks that are slow or lossy, cut connections, drop large frames, or
// resolve names wrongly.
#include <catch2/catch.hpp>
#include <csignal>
#include <thread>

#include "tests/integration/failures/measured.hpp"
#include "tests/integration/nodes/nodes.hpp"

using namespace ddp::testing;
using namespace std::chrono_literals;

namespace {

void expect_success(NodesJob& job, int nodes) {
  for (int host = 0; host < nodes; ++host) {
    const Result result = job.on(host).wait();
    CAPTURE(host, result.out, result.err);
    CHECK(result.code == 0);
  }
}

// Returns a command that runs `command` with `text` in place of the file; no other process sees the
// change.
Words with_file(const TemporaryFolder& folder, const std::string& file, const std::string& text, const Words& command) {
  return Words{"unshare",
               "-m",
               "sh",
               "-c",
               "mount --bind \"$0\" \"$1\" && shift && exec \"$@\"",
               folder.write("instead", text),
               file} +
         command;
}

}  // namespace

TEST_CASE("nodes: a job starts, restarts and ends despite loss, jitter, reordered and duplicated frames",
          "[launcher][integration][N4]") {
  const Hosts hosts(3);
  Process weather(hosts.instead_of_cable(1, {FAKE_CABLE_BINARY, "loss=5", "dup=3", "delay=100", "jitter=100"}));
  weather.wait_for("carries");
  NodesJob job(hosts, static_job(3) + Words{"--nproc_per_node=2", "--max-restarts=1"},
               {"meet", "5/0:exit=3", "catch=USR1", "env=TORCHELASTIC_RESTART_COUNT", "wait"});
  for (int host = 0; host < 3; ++host) job.start_ranked(host);
  for (int host = 0; host < 3; ++host) job.on(host).wait_for("[TORCHELASTIC_RESTART_COUNT=1]", 2);
  for (const char* what : {"lost", "doubled", "overtaken"}) weather.wait_for(what);
  for (int host = 0; host < 3; ++host) job.on(host).signal(SIGUSR1);
  expect_success(job, 3);
  CHECK(count(job.on(0).err(), "restart 1 of 1: rank 5 on node node2") == 1);
  CHECK(count(job.on(0).err(), "was lost") == 0);
}

TEST_CASE("nodes: a job goes on while its connections are reset again and again", "[launcher][integration][N5]") {
  const Hosts hosts(3);
  NodesJob job(hosts, c10d_job("3"), {"meet", "catch=USR1", "ready", "wait"});
  for (int host = 0; host < 3; ++host) job.start(host);
  for (int host = 0; host < 3; ++host) job.on(host).wait_for("ready");
  for (int i = 0; i < 30; ++i) {
    for (const int host : {1, 2}) {
      const Result cut = run(hosts.on(host, {"ss", "-K", "--tcp", "dport", "=", "29400"}));
      if (i == 0 && count(cut.out, "ESTAB") == 0) skip("ss -K cannot end connections here");
    }
    std::this_thread::sleep_for(100ms);  // the time between two resets
  }
  for (const int host : {1, 2}) job.on(host).wait_for("the link to the coordinator is back");
  for (int host = 0; host < 3; ++host) job.on(host).signal(SIGUSR1);
  expect_success(job, 3);
  for (int host = 0; host < 3; ++host) CHECK(count(job.on(host).out(), "met 3") == 1);
  CHECK(hosts.all_gone());
}

TEST_CASE("nodes: a node whose large frames are dropped is lost, not waited for", "[launcher][integration][N6]") {
  const Hosts hosts(2);
  NodesJob job(hosts, static_job(2) + Words{"--rdzv-conf=keep_alive_interval=1,keep_alive_max_attempt=3"},
               {"meet", "note=USR1", "ready", "1:until=USR1", "1:shout=" + std::string(5000, 'x'), "1:exit=3", "wait"});
  for (const int host : {0, 1}) job.start_ranked(host);
  for (const int host : {0, 1}) job.on(host).wait_for("ready");
  hosts.lose_frames_above(1, 600);
  const auto start = Clock::now();
  job.on(1).signal(SIGUSR1);  // its report contains the end of its stderr
  for (const int host : {0, 1}) {
    const Result result = job.on(host).wait();
    const std::string own = result.err.substr(result.err.find("ddprun:"));
    CAPTURE(host, own);
    CHECK(result.code == 75);
    CHECK(count(own, host == 0 ? "node node1 (10.7.0.2) was lost: no word from it for 3 s"
                               : "before that, rank 1 on node node1 exited with code 3") >= 1);
  }
  measured("a report that is too large for the network to the end of all (lost after 3000 ms)", Clock::now() - start);
  CHECK(hosts.all_gone());
}

TEST_CASE("nodes: a megabit a second is enough for a job to come up, restart and end", "[launcher][integration][N7]") {
  const Hosts hosts(3);
  hosts.slow_down(1, "1mbit");
  NodesJob job(hosts, static_job(3) + Words{"--nproc_per_node=4", "--max-restarts=1"}, {"meet", "11/0:exit=3"});
  const auto start = Clock::now();
  for (int host = 0; host < 3; ++host) job.start_ranked(host);
  expect_success(job, 3);
  measured("a job with a restart, one host at 1 Mb/s", Clock::now() - start);
  CHECK(count(job.on(0).err(), "restart 1 of 1: ") == 1);
  CHECK(hosts.all_gone());
}

TEST_CASE("nodes: a name server that does not answer holds up neither a stop nor the join deadline",
          "[launcher][integration][N8]") {
  const Hosts hosts(2);
  const TemporaryFolder folder;
  Process name_server(hosts.on(0, {FAKE_PEER_BINARY, "deaf", "53"}));
  name_server.wait_for("deaf");
  const std::string silent = "nameserver 10.7.0.1\noptions timeout:30 attempts:5\n";
  const Words elsewhere = {"--nnodes=2", "--node_rank=1", "--master_addr=coordinator.example"};
  const auto start = Clock::now();
  Process stopped(hosts.on(1, with_file(folder, "/etc/resolv.conf", silent, ddprun(elsewhere, {"say=ran"}))));
  Process late(hosts.on(1, with_file(folder, "/etc/resolv.conf", silent,
                                     ddprun(elsewhere + Words{"--rdzv-conf=join_timeout=2"}, {"say=ran"}))));
  // Whether this node coordinates depends on what the name means.
  const Words here = {"--nnodes=2", "--node_rank=0", "--master_addr=coordinator.example"};
  const Words either = {"--nnodes=2", "--rdzv-backend=c10d", "--rdzv-endpoint=coordinator.example:29400"};
  for (const Words& options : {here, either}) {
    Process first(hosts.on(1, with_file(folder, "/etc/resolv.conf", silent, ddprun(options, {"say=ran"}))));
    first.wait_for("looking up the name coordinator.example takes long");
    first.signal(SIGTERM);
    CHECK(first.wait().code == 128 + SIGTERM);
  }
  stopped.wait_for("waiting for the coordinator");
  stopped.signal(SIGTERM);
  CHECK(stopped.wait().code == 128 + SIGTERM);
  const Result result = late.wait();
  CAPTURE(result.err);
  CHECK(result.code == 75);
  CHECK(count(result.err, "no coordinator at coordinator.example:29500 within 2 s") == 1);
  CHECK(Clock::now() - start < 30s);  // not the resolver's 150 s
  CHECK(hosts.processes(1).empty());
}

TEST_CASE("nodes: of the several addresses of a coordinator's name the one that answers is used, even if it changes",
          "[launcher][integration][N8][N9]") {
  const Hosts hosts(2);
  const TemporaryFolder folder;
  NodesJob job(hosts, c10d_job("2"), {"meet"});
  const auto other = [&](const std::string& names) {
    return hosts.on(1,
                    with_file(folder, "/etc/hosts", "127.0.0.1 localhost\n" + names, ddprun(c10d_job("2"), {"meet"})));
  };
  job.start(0);
  // No host has 10.7.0.3. It is nearer to 10.7.0.2 than 10.7.0.1 is, so it is tried first.
  Process wrong_first(other("10.7.0.3 node0\n10.7.0.1 node0\n"));
  CHECK(wrong_first.wait().code == 0);
  CHECK(job.on(0).wait().code == 0);

  job.start(0);
  Process moved(other("10.7.0.3 node0\n"));
  moved.wait_for("waiting for the coordinator");
  folder.write("instead", "10.7.0.1 node0\n");  // writes to the same inode, so that the new text is seen
  CHECK(moved.wait().code == 0);
  CHECK(job.on(0).wait().code == 0);
  CHECK(hosts.all_gone());
}

TEST_CASE("nodes: a restarted coordinator belongs to another job, and nodes of the old job leave",
          "[launcher][integration][N11]") {
  const Hosts hosts(2);
  NodesJob job(hosts, c10d_job("2", "last_call_timeout=1,keep_alive_interval=1,keep_alive_max_attempt=3"),
               {"meet", "catch=USR1", "ready", "wait"});
  for (const int host : {0, 1}) job.start(host);
  for (const int host : {0, 1}) job.on(host).wait_for("ready");
  kill_node(job.on(0));  // at once, so that the other agent receives nothing
  CHECK(job.on(0).all_gone());
  job.start(0);
  const Result served = job.on(1).wait();
  CAPTURE(served.err);
  CHECK(served.code == 75);
  CHECK(count(served.err, "another coordinator answers at node0:29400") == 1);
  job.start(1);
  for (const int host : {0, 1}) job.on(host).wait_for("ready");
  for (const int host : {0, 1}) job.on(host).signal(SIGUSR1);
  expect_success(job, 2);
  CHECK(hosts.all_gone());
}

TEST_CASE("nodes: hosts that have both IPv4 and IPv6 form a job by either", "[launcher][integration][N15]") {
  const Hosts hosts(2, {.v4 = true, .v6 = true});
  for (const std::string endpoint : {"node0:29400", "10.7.0.1:29400", "[fd07::1]:29400"}) {
    CAPTURE(endpoint);
    NodesJob job(hosts, {"--nnodes=2", "--rdzv-backend=c10d", "--rdzv-endpoint=" + endpoint}, {"meet"});
    for (const int host : {1, 0}) job.start(host);
    expect_success(job, 2);
  }
  CHECK(hosts.all_gone());
}
