// SPDX-License-Identifier: BSD-3-Clause
// Jobs of several nodes whose coordinator, store or agents are killed while their nodes live.
#include <catch2/catch.hpp>
#include <csignal>
#include <filesystem>
#include <sstream>
#include <string>
#include <vector>

#include "tests/integration/nodes/nodes.hpp"
#include "tests/support/ports.hpp"

using namespace ddp::testing;

namespace {

// Returns the file in which a coordinator keeps its journal.
std::string journal_of(pid_t coordinator) {
  std::string path;
  wait_until([&] {
    std::error_code gone;
    for (const auto& fd : std::filesystem::directory_iterator("/proc/" + std::to_string(coordinator) + "/fd", gone)) {
      const std::string target = std::filesystem::read_symlink(fd.path(), gone).string();
      if (target.find("/journal-") != std::string::npos) path = target;
    }
    return !path.empty();
  });
  return path;
}

// Kills a sidecar of node 0's ddprun and waits until another process is in its place.
void replace_sidecar(const Process& node, const std::string& name) {
  const pid_t before = kill_sidecar(node, name);
  wait_until([&] {
    const pid_t next = sidecar_of(node, name);
    return next > 0 && next != before;
  });
}

// Returns how many connections a process's host has at its own port 29500 that this host has not closed.
int connections_at_port(pid_t on_host) {
  int found = 0;
  for (const std::string table : {"tcp", "tcp6"}) {
    std::istringstream lines(read_file("/proc/" + std::to_string(on_host) + "/net/" + table));
    for (std::string line; std::getline(lines, line);) {
      std::istringstream words(line);
      std::string number, local, remote, state;
      words >> number >> local >> remote >> state;
      const bool is_open = state == "01" || state == "08";  // established, or closed by the other side only
      found += is_open && local.find(":733C") != std::string::npos;
    }
  }
  return found;
}

void start_all(NodesJob& job, int nodes, const char* line = "ready") {
  for (int host = 0; host < nodes; ++host) job.start_ranked(host);
  for (int host = 0; host < nodes; ++host) job.on(host).wait_for(line);
}

}  // namespace

TEST_CASE("sidecars: a coordinator that is killed ten times in a row touches no worker, and spends no restart",
          "[launcher][integration]") {
  const Hosts hosts(2);
  NodesJob job(hosts, static_job(2) + Words{"--max-restarts=1"}, kMeetUntilTold);
  start_all(job, 2);
  const std::string journal = journal_of(sidecar_of(job.on(0), "ddp-coordinator"));
  const std::vector<pid_t> workers = {only_child_of(agent_of(job.on(0))), only_child_of(agent_of(job.on(1)))};
  for (int kills = 1; kills <= 10; ++kills) {
    replace_sidecar(job.on(0), "ddp-coordinator");
    for (const int host : {0, 1}) job.on(host).wait_for("the link to the coordinator is back", kills);
  }
  CHECK(workers == std::vector{only_child_of(agent_of(job.on(0))), only_child_of(agent_of(job.on(1)))});
  CHECK(count(job.on(0).err(), "the coordinator was started again: ddp-coordinator") == 10);
  // Rounds and the budget go on as they were.
  ::kill(workers[1], SIGKILL);
  for (const int host : {0, 1}) job.on(host).wait_for("ready", 2);
  CHECK(count(job.on(1).out(), "restart 1, ") == 1);
  replace_sidecar(job.on(0), "ddp-coordinator");
  for (const int host : {0, 1}) job.on(host).wait_for("the link to the coordinator is back", 11);
  ::kill(only_child_of(agent_of(job.on(1))), SIGKILL);
  for (const int host : {0, 1}) {
    const Result result = job.on(host).wait();
    CAPTURE(host, result.err);
    CHECK(result.code == 128 + SIGKILL);  // one restart of one was spent before
  }
  CHECK_FALSE(std::filesystem::exists(journal));
  CHECK(hosts.all_gone());
}

TEST_CASE("sidecars: a coordinator that is killed is started again also after somebody has looked at the job",
          "[launcher][integration]") {
  const Hosts hosts(2);
  NodesJob job(hosts, static_job(2), kMeetUntilTold);
  start_all(job, 2);
  const std::string journal = journal_of(sidecar_of(job.on(0), "ddp-coordinator"));
  run(ddprun_raw({"ps"}));  // it asks the agents of all jobs here, whose answers do not matter
  CHECK(std::filesystem::exists(journal));
  replace_sidecar(job.on(0), "ddp-coordinator");
  for (const int host : {0, 1}) job.on(host).wait_for("the link to the coordinator is back");
  succeed(job, {0, 1});
  CHECK(hosts.all_gone());
}

TEST_CASE("sidecars: a coordinator that cannot be started again is given up, with its reason on every node",
          "[launcher][integration]") {
  const std::string what = GENERATE("corrupt", "emptied", "removed");
  CAPTURE(what);
  const Hosts hosts(2);
  NodesJob job(hosts, static_job(2), kMeetUntilTold);
  start_all(job, 2);
  const std::string journal = journal_of(sidecar_of(job.on(0), "ddp-coordinator"));
  if (what == "removed") std::filesystem::remove(journal);
  if (what != "removed") write_file(journal, what == "corrupt" ? "not a journal" : "");
  kill_sidecar(job.on(0), "ddp-coordinator");
  for (const int host : {0, 1}) {
    const Result result = job.on(host).wait();
    CAPTURE(host, result.err);
    CHECK(result.code == 75);
    CHECK(count(result.err, "stopped: ddp-coordinator could not be started in 5 tries: the coordinator's journal " +
                                journal + (what == "corrupt" ? ": " : " is gone")) == 1);
    CHECK(count(result.err, "which coordinated") == 0);  // no other node takes over
  }
  CHECK_FALSE(std::filesystem::exists(journal));
  CHECK(hosts.all_gone());
}

TEST_CASE("sidecars: a full or read-only folder for the journal is a warning, and the job runs without one",
          "[launcher][integration]") {
  const bool is_full = GENERATE(true, false);
  CAPTURE(is_full);
  const std::string folder = is_full ? "/run/user/0/ddprun" : "/tmp/ddprun-0";  // unshare -r makes this user root
  const std::string mounts = is_full ? "mount -t tmpfs -o size=16k none /run && mkdir -p -m 700 " + folder +
                                           " && { head -c 100000 /dev/zero >/run/user/0/rest 2>/dev/null; true; }"
                                     : "mount -t tmpfs none /run && mkdir -p -m 700 " + folder + " && mount --bind " +
                                           folder + " " + folder + " && mount -o remount,bind,ro " + folder;
  const Words there = {"unshare", "-rm", "sh", "-c", mounts + " && exec \"$@\"", "sh"};
  if (run(there + Words{"true"}).code != 0) skip("no mount namespaces here");
  const std::string endpoint = "--rdzv-endpoint=127.0.0.1:" + std::to_string(free_port());
  const Result result =
      run(there + ddprun({"--nnodes=1:2", "--rdzv-backend=c10d", endpoint, "--rdzv-conf=last_call_timeout=0"},
                         {"say=ran", "exit=0"}));
  CAPTURE(result.err);
  CHECK(result.code == 0);
  CHECK(count(result.out, "ran\n") == 1);
  CHECK(count(result.err,
              "the coordinator keeps no journal, so the job ends if it is killed: the coordinator's journal " + folder +
                  "/journal-") == 1);
}

TEST_CASE("sidecars: an agent that is killed costs its workers and a round, also the endpoint's",
          "[launcher][integration]") {
  const Hosts hosts(2);
  NodesJob job(hosts, static_job(2) + Words{"--max-restarts=2"}, kMeetUntilTold);
  start_all(job, 2);
  for (const int killed : {1, 0}) {
    CAPTURE(killed);
    ::kill(agent_of(job.on(killed)), SIGKILL);
    for (const int host : {0, 1}) job.on(host).wait_for("ready", killed == 1 ? 2 : 3);
    job.on(killed).wait_for(
        "was killed by SIGKILL; the workers of this node were killed, and another agent is started");
    CHECK(count(job.on(1 - killed).err(), "left the job: its agent was killed") >= 1);
  }
  CHECK(count(job.on(0).out(), "restart 2, ") == 1);
  succeed(job, {0, 1});
  CHECK(hosts.all_gone());
}

TEST_CASE("sidecars: a node whose agents are killed again and again ends, and says why no other is started",
          "[launcher][integration]") {
  const Hosts hosts(2);
  NodesJob job(hosts, c10d_job("1:2") + Words{"--max-restarts=9"}, kMeetUntilTold);
  for (const int host : {0, 1}) job.start(host);
  for (int killed = 1; killed <= 5; ++killed) {
    job.on(1).wait_for("ready", killed);
    ::kill(agent_of(job.on(1)), SIGKILL);
  }
  const Result result = job.on(1).wait();
  CAPTURE(result.err);
  CHECK(result.code == 128 + SIGKILL);
  CHECK(count(result.err, "no other agent is started: 5 in a row have lived for less than 10 s") == 1);
  CHECK(hosts.processes(1).empty());
  job.on(0).signal(SIGTERM);
  CHECK(job.on(0).wait().code == 128 + SIGTERM);
  CHECK(hosts.all_gone());
}

TEST_CASE("sidecars: a killed store restarts a round whose workers use it, and no other", "[launcher][integration]") {
  const Hosts hosts(2);
  for (const bool use_it : {true, false}) {
    CAPTURE(use_it);
    NodesJob job(hosts, static_job(2) + Words{"--max-restarts=1"}, (use_it ? Words{"hold"} : Words{}) + kMeetUntilTold);
    start_all(job, 2);
    // The link of node 1's agent, and the workers' connections if they keep them.
    const int expected = use_it ? 3 : 1;
    wait_until([&] { return connections_at_port(job.on(0).pid()) == expected; });
    replace_sidecar(job.on(0), "ddp-store");
    if (use_it) {
      for (const int host : {0, 1}) job.on(host).wait_for("ready", 2);
      CHECK(count(job.on(1).err(), "restart 1 of 1: the store is gone: ddp-store (pid ") == 1);
      CHECK(count(job.on(1).err(), "was killed by SIGKILL, and 2 connections of workers with it") >= 1);
    } else {
      job.on(0).wait_for("no worker had a connection to it, so the job goes on with an empty one");
    }
    succeed(job, {0, 1});
    CHECK(count(job.on(1).out(), "ready") == (use_it ? 2 : 1));
  }
  CHECK(hosts.all_gone());
}
