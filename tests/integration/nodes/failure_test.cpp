// SPDX-License-Identifier: BSD-3-Clause
// Jobs of several nodes with failing workers, dying agents and hosts, and unplugged cables, and
// jobs that grow and shrink.
#include <algorithm>
#include <catch2/catch.hpp>
#include <chrono>
#include <csignal>
#include <sstream>
#include <thread>

#include "tests/integration/failures/measured.hpp"
#include "tests/integration/nodes/nodes.hpp"

using namespace ddp::testing;

namespace {

using std::chrono::microseconds;

// A node counts as lost after three seconds of silence.
constexpr char kLostAfter3s[] = "last_call_timeout=1,keep_alive_interval=1,keep_alive_max_attempt=3";

// Soon enough on any machine: what would go wrong in these tests waits for 30 s or longer.
constexpr std::chrono::seconds kSoon{20};

microseconds since(Clock::time_point start) { return std::chrono::duration_cast<microseconds>(Clock::now() - start); }

// Returns what follows `before` where it occurs last: after "ready ", the pid of the newest worker.
std::string newest(const std::string& out, const std::string& before) {
  const auto at = out.rfind(before);
  if (at == std::string::npos) return "";
  const auto begin = at + before.size();
  return out.substr(begin, out.find('\n', begin) - begin);
}

// Returns the text from the first line with `text` on.
std::string from(const std::string& err, const std::string& text) {
  const auto at = err.find(text);
  return at == std::string::npos ? "" : err.substr(at);
}

}  // namespace

// ---- Workers fail ----

TEST_CASE("nodes: a worker's failure ends the job on every node with the same report and the same code",
          "[launcher][integration][P1][S3]") {
  const Hosts hosts(3);
  NodesJob job(hosts, static_job(3) + Words{"--nproc_per_node=2"},
               {"meet", "4:shout=my last words", "4:error={\"message\":\"out of luck\"}", "4:exit=7", "wait"});
  for (int host = 0; host < 3; ++host) job.start_ranked(host);
  std::string report;
  for (int host = 0; host < 3; ++host) {
    const Result result = job.on(host).wait();
    CAPTURE(host, result.out, result.err);
    CHECK(result.code == 7);
    CHECK(count(result.err, "stopping: rank 4 on node node2 exited with code 7") == 1);
    std::string own = from(result.err, "failed: rank 4 on node node2 exited with code 7");
    own = own.substr(0, own.find("ddprun:   what the others did"));  // which is each node's own
    CHECK(count(own, "| out of luck") == 1);
    CHECK(count(own, "| my last words") == 1);
    CHECK(count(own, "stopped by ddprun: ranks 0-3, 5") == 1);
    if (host == 0) report = own;
    CHECK(own == report);
  }
  CHECK(hosts.all_gone());
}

TEST_CASE("nodes: the restart budget is the job's, every round has a new store and the same count on all nodes",
          "[launcher][integration]") {
  const Hosts hosts(2);
  NodesJob job(hosts, static_job(2) + Words{"--nproc_per_node=2", "--max-restarts=2"},
               {"env=TORCHELASTIC_RESTART_COUNT", "count", "meet", "1/0:exit=3", "2/1:exit=4", "0/0:wait", "1/1:wait",
                "2/0:wait", "3/0:wait", "0/1:wait", "3/1:wait"});
  for (const int host : {0, 1}) job.start_ranked(host);
  std::string counts;
  for (const int host : {0, 1}) {
    const Result result = job.on(host).wait();
    CAPTURE(host, result.out, result.err);
    CHECK(result.code == 0);
    for (const char* restart : {"0", "1", "2"}) {
      CHECK(count(result.out, std::string("[TORCHELASTIC_RESTART_COUNT=") + restart + "]") == 2);
    }
    CHECK(count(result.err, "restart 1 of 2: rank 1 on node node0 exited with code 3") == 1);
    CHECK(count(result.err, "restart 2 of 2: rank 2 on node node1 exited with code 4") == 1);
    counts += result.out;
  }
  for (const char* one : {"count 1", "count 2", "count 3", "count 4"}) CHECK(count(counts, one) == 3);
  CHECK(hosts.all_gone());
}

TEST_CASE("nodes: a worker's death is known on the other nodes in much less than a second",
          "[launcher][integration][P4]") {
  const Hosts hosts(3);
  constexpr int kRounds = 12;
  NodesJob job(hosts, static_job(3) + Words{"--max-restarts=" + std::to_string(kRounds)}, kMeetUntilTold);
  for (int host = 0; host < 3; ++host) job.start_ranked(host);
  std::vector<microseconds> heard, restarted;
  for (int round = 1; round <= kRounds; ++round) {
    for (int host = 0; host < 3; ++host) job.on(host).wait_for("ready", round);
    const auto start = Clock::now();
    ::kill(std::stoi(newest(job.on(2).out(), "ready ")), SIGKILL);
    for (const int host : {0, 1}) job.on(host).wait_for("ddprun: stopping: ", round);
    heard.push_back(since(start));
    for (const int host : {0, 1}) job.on(host).wait_for("ready", round + 1);
    restarted.push_back(since(start));
  }
  for (auto* times : {&heard, &restarted}) std::sort(times->begin(), times->end());
  measured("a worker's death to \"stopping\" on both other hosts, median", heard[kRounds / 2]);
  measured("the same, slowest", heard.back());
  measured("a worker's death to the next round's workers, median", restarted[kRounds / 2]);
  CHECK(heard.back() < std::chrono::seconds(1));
  job.on(2).wait_for("ready", kRounds + 1);
  succeed(job, {0, 1, 2});
  for (int host = 0; host < 3; ++host) {  // and node ranks have never changed
    CHECK(count(job.on(host).out(), "rank " + std::to_string(host) + " of 3") == kRounds + 1);
  }
  CHECK(hosts.all_gone());
}

TEST_CASE("nodes: a failure after another node's workers have succeeded ends the job, or restarts all of it, at once",
          "[launcher][integration][P1]") {
  // torchrun takes 300 s, then one node exits with 0.
  const Hosts hosts(2);
  for (const int budget : {0, 1}) {
    CAPTURE(budget);
    NodesJob job(hosts, static_job(2) + Words{"--max-restarts=" + std::to_string(budget)},
                 {"place", "meet", "0:say=succeeded", "0:exit=0", "ready", "1/0:wait"});
    for (const int host : {0, 1}) job.start_ranked(host);
    job.on(1).wait_for("ready");
    job.on(0).wait_for("succeeded");
    const auto start = Clock::now();
    ::kill(std::stoi(newest(job.on(1).out(), "ready ")), SIGKILL);
    for (const int host : {0, 1}) {
      const Result result = job.on(host).wait();
      CAPTURE(host, result.out, result.err);
      CHECK(result.code == (budget == 0 ? 128 + SIGKILL : 0));
      CHECK(count(result.err, "rank 1 on node node1 was killed by SIGKILL") >= 1);
      CHECK(count(result.out, "restart 1") == budget);
    }
    CHECK(since(start) < kSoon);
  }
  CHECK(hosts.all_gone());
}

TEST_CASE("nodes: workers that ignore the stop are killed after the grace on every node",
          "[launcher][integration][P7]") {
  const Hosts hosts(3);
  NodesJob job(hosts, static_job(3) + Words{"--shutdown-timeout=1"},
               {"1:ignore=TERM", "1:escape", "0:child", "meet", "2:exit=7", "wait"});
  for (int host = 0; host < 3; ++host) job.start_ranked(host);
  const auto start = Clock::now();
  for (int host = 0; host < 3; ++host) {
    const Result result = job.on(host).wait();
    CAPTURE(host, result.err);
    CHECK(result.code == 7);
    CHECK(count(result.err, "--shutdown-timeout") == (host == 1 ? 1 : 0));
  }
  CHECK(since(start) < kSoon);
  CHECK(hosts.all_gone());
}

// ---- Agents and hosts die ----

TEST_CASE("nodes: an elastic job goes on without a node that dies, and takes it in again when it is back",
          "[launcher][integration][A8][N13][N14]") {
  const Hosts hosts(3);
  NodesJob job(hosts, c10d_job("1:3"), kMeetUntilTold);
  for (int host = 0; host < 3; ++host) job.start(host);
  for (int host = 0; host < 3; ++host) job.on(host).wait_for("met 3");
  const auto start = Clock::now();
  kill_node(job.on(1));
  const Result killed = job.on(1).wait();
  CHECK(killed.code == 128 + SIGKILL);
  for (const int host : {0, 2}) job.on(host).wait_for("met 2");
  measured("a node's death to the next round's workers", since(start));
  const auto seat = [&](int host) { return newest(job.on(host).out(), "local 0 of 1, "); };
  CHECK(count(seat(0), "node 0 of 2, restart 0, ") == 1);
  CHECK(count(seat(2), "node 1 of 2, restart 0, ") == 1);

  const auto again = Clock::now();
  job.start(1);
  for (int host = 0; host < 3; ++host) job.on(host).wait_for("met 3", host == 1 ? 1 : 2);
  measured("the start of a node that comes late to a round with it", since(again));
  CHECK(count(seat(0), "node 0 of 3, restart 0, ") == 1);
  CHECK(count(seat(2), "node 1 of 3, restart 0, ") == 1);
  CHECK(count(seat(1), "node 2 of 3, restart 0, ") == 1);
  succeed(job, {0, 1, 2});
  CHECK(count(job.on(0).err(), "node1 (10.7.0.2) was lost: its link broke") >= 1);
  CHECK(hosts.all_gone());
}

TEST_CASE("nodes: an elastic job below MIN waits for another node, and goes on with it",
          "[launcher][integration][N1]") {
  const Hosts hosts(3);
  NodesJob job(hosts, c10d_job("2:3") + Words{"--max-restarts=1"}, kMeetUntilTold);
  for (const int host : {0, 1}) job.start(host);
  for (const int host : {0, 1}) job.on(host).wait_for("met 2");
  kill_node(job.on(1));
  job.on(0).wait_for("node1 (10.7.0.2) was lost");
  CHECK(count(job.on(0).out(), "met") == 1);
  job.start(2);
  job.on(0).wait_for("met 2", 2);
  job.on(2).wait_for("node 1 of 2, restart 0, ");
  succeed(job, {0, 2});
  CHECK(hosts.all_gone());
}

TEST_CASE("nodes: a job of a fixed size waits for the replacement of a lost node, and spends a restart",
          "[launcher][integration][A8]") {
  const Hosts hosts(3);
  for (const Words& options : {static_job(2), c10d_job("2")}) {
    CAPTURE(options);
    NodesJob job(hosts, options + Words{"--max-restarts=1"}, kMeetUntilTold);
    job.start(0, {"--node_rank=0"});
    job.start(1, {"--node_rank=1"});
    for (const int host : {0, 1}) job.on(host).wait_for("met 2");
    kill_node(job.on(1));
    job.start(2, {"--node_rank=1"});  // before its loss is noticed
    job.on(0).wait_for("met 2", 2);
    job.on(2).wait_for("node 1 of 2, restart 1, ");
    succeed(job, {0, 2});
    CHECK(count(job.on(0).err(), "restart 1 of 1: node node1 (10.7.0.2) was lost") == 1);
  }
  CHECK(hosts.all_gone());
}

TEST_CASE("nodes: a lost node that may not be replaced, or is not in time, ends the job on every other one",
          "[launcher][integration][N1]") {
  const Hosts hosts(3);
  for (const int budget : {0, 1}) {
    CAPTURE(budget);
    NodesJob job(hosts, static_job(3) + Words{"--max-restarts=" + std::to_string(budget), "--rdzv-conf=join_timeout=4"},
                 kMeetUntilTold);
    for (int host = 0; host < 3; ++host) job.start_ranked(host);
    for (int host = 0; host < 3; ++host) job.on(host).wait_for("met 3");
    kill_node(job.on(2));
    std::string reason;
    for (const int host : {0, 1}) {
      const Result result = job.on(host).wait();
      CAPTURE(host, result.out, result.err);
      CHECK(result.code == 75);
      const std::string own = from(result.err, " stopped: node node2 (10.7.0.3) was lost: its link broke");
      CHECK(!own.empty());
      CHECK(count(own, "; nobody took its place within 4 s (--rdzv-conf join_timeout)") == budget);
      if (host == 0) reason = own;
      CHECK(own == reason);
    }
  }
  CHECK(hosts.all_gone());
}

TEST_CASE("nodes: when the coordinator's node dies the others kill their workers, report it and exit",
          "[launcher][integration][N1][N10]") {
  const Hosts hosts(3);
  for (const bool by_power : {false, true}) {
    CAPTURE(by_power);
    NodesJob job(hosts, static_job(3) + Words{std::string("--rdzv-conf=") + kLostAfter3s}, kMeetUntilTold);
    for (int host = 0; host < 3; ++host) job.start_ranked(host);
    for (int host = 0; host < 3; ++host) job.on(host).wait_for("met 3");
    const auto start = Clock::now();
    if (by_power) {
      hosts.power_off(0);
    } else {
      kill_node(job.on(0));
    }
    for (const int host : {1, 2}) {
      const Result result = job.on(host).wait();
      CAPTURE(host, result.out, result.err);
      CHECK(result.code == 75);
      CHECK(count(result.err, "killing the workers of this node: it had lost the coordinator") == 1);
      CHECK(count(result.err, " stopped: the coordinator at node0:29500 is gone: no word from it for 3 s") == 1);
    }
    measured(by_power ? "the coordinator's power to the exit of all" : "the coordinator's death to the exit of all",
             since(start));
    CHECK(since(start) < kSoon);
    CHECK(hosts.all_gone());
    hosts.plug(0);
  }
}

TEST_CASE(
    "nodes: an agent that was stopped for long has lost its workers and rejoins, one stopped for a moment goes on",
    "[launcher][integration][A4]") {
  const Hosts hosts(3);
  NodesJob job(hosts, c10d_job("1:3", kLostAfter3s), kMeetUntilTold);
  for (int host = 0; host < 3; ++host) job.start(host);
  for (int host = 0; host < 3; ++host) job.on(host).wait_for("met 3");
  const pid_t fenced = only_child_of(agent_of(job.on(1)));
  for (const int host : {0, 1}) ::kill(agent_of(job.on(host)), SIGSTOP);
  std::this_thread::sleep_for(std::chrono::seconds(1));  // how long the agents stand still
  ::kill(agent_of(job.on(0)), SIGCONT);
  job.on(0).wait_for("met 2");                  // node1 has been declared lost by then
  CHECK(state_of(fenced) == 'Z');               // its keeper has killed the worker
  CHECK(count(job.on(0).out(), "met 3") == 1);  // the short stop had no effect
  ::kill(agent_of(job.on(1)), SIGCONT);
  for (int host = 0; host < 3; ++host) job.on(host).wait_for("met 3", 2);
  CHECK(count(job.on(1).err(), "the workers of this node are dead: ddprun's keeper killed them") == 1);
  succeed(job, {0, 1, 2});
  CHECK(hosts.all_gone());
}

// ---- Cables ----

TEST_CASE("nodes: nothing happens to workers when a link is cut for a second", "[launcher][integration][N3]") {
  const Hosts hosts(3);
  NodesJob job(hosts, c10d_job("3"), kMeetUntilTold);
  for (int host = 0; host < 3; ++host) job.start(host);
  for (int host = 0; host < 3; ++host) job.on(host).wait_for("met 3");
  hosts.cable_out(0);
  hosts.unplug(1);
  std::this_thread::sleep_for(std::chrono::seconds(1));  // how long the link is cut
  hosts.cable_in(0);
  hosts.plug(1);
  succeed(job, {1, 2, 0});
  for (int host = 0; host < 3; ++host) {
    CHECK(count(job.on(host).out(), "met") == 1);
    CHECK(count(job.on(host).err(), "stopping") == 0);
  }
  CHECK(hosts.all_gone());
}

TEST_CASE("nodes: a node that cannot send, cannot receive, or both, has killed its workers when the others go on",
          "[launcher][integration][N1][N2][N3]") {
  const Hosts hosts(4);
  const TemporaryFolder folder;
  NodesJob job(hosts, c10d_job("1:4", kLostAfter3s), {"place", "meet", "stamp", "ready", "beat=" + (folder / "beat")});
  for (int host = 0; host < 4; ++host) job.start(host);
  for (int host = 0; host < 4; ++host) job.on(host).wait_for("ready");
  const auto start = Clock::now();
  hosts.unplug(1);
  hosts.deafen(2);
  hosts.mute(3);
  job.on(0).wait_for("ready", 2);
  measured("a silent cut to the next round's workers (lost after 3000 ms)", since(start));
  const std::string next_round = newest(job.on(0).out(), "stamp ");
  CHECK(count(job.on(0).out(), "of 1, local") == 1);
  CHECK(count(job.on(0).out(), "restart 0") == 2);
  for (const int host : {1, 2, 3}) {
    const Result result = job.on(host).wait();
    CAPTURE(host, result.out, result.err);
    CHECK(result.code == 75);
    CHECK(count(result.err, "killing the workers of this node: it had lost the coordinator") == 1);
    CHECK(count(result.out, "ready") == 1);
  }
  const auto last_beat = [&](int rank) {
    std::istringstream beats(read_file(folder / ("beat." + std::to_string(rank))));
    long long last = 0;
    while (beats >> last) {
    }
    return last;
  };
  for (const int rank : {1, 2, 3}) {
    CAPTURE(rank);
    CHECK(last_beat(rank) > 0);
    CHECK(last_beat(rank) < std::stoll(next_round));
  }

  hosts.plug(1);
  hosts.undeafen(2);
  hosts.unmute(3);
  for (const int host : {1, 2, 3}) job.start(host);
  for (const int host : {1, 2, 3}) job.on(host).wait_for("of 4, local 0 of 1, node ");
  job.on(0).signal(SIGTERM);
  for (int host = 0; host < 4; ++host) CHECK(job.on(host).wait().code == 128 + SIGTERM);
  CHECK(hosts.all_gone());
}

TEST_CASE("nodes: a node that is back before it is lost takes part in the next round",
          "[launcher][integration][N3][N14]") {
  const Hosts hosts(2);
  NodesJob job(hosts, c10d_job("1:2", "keep_alive_interval=2,keep_alive_max_attempt=3"), kMeetUntilTold);
  for (const int host : {0, 1}) job.start(host);
  for (const int host : {0, 1}) job.on(host).wait_for("met 2");
  hosts.unplug(1);
  job.on(1).wait_for("killing the workers of this node");
  hosts.plug(1);
  for (const int host : {0, 1}) job.on(host).wait_for("met 2", 2);
  for (const int host : {0, 1}) CHECK(count(job.on(host).out(), "restart 0") == 2);
  succeed(job, {0, 1});
  CHECK(count(job.on(0).err(), "node node1 (10.7.0.2) stopped its workers: it had lost the coordinator") == 1);
  CHECK(hosts.all_gone());
}

// ---- Nodes come and go ----

TEST_CASE("nodes: a node above MAX waits as a spare, and takes the place and rank of a node that dies",
          "[launcher][integration][N13]") {
  const Hosts hosts(4);
  NodesJob job(hosts, c10d_job("1:3"), kMeetUntilTold);
  for (int host = 0; host < 3; ++host) job.start(host);
  for (int host = 0; host < 3; ++host) job.on(host).wait_for("met 3");
  const auto seat = [&](int host) { return newest(job.on(host).out(), "local 0 of 1, ").substr(0, 25); };
  const std::string free = seat(1), kept = seat(2);
  job.start(3).wait_for("all places of this job are taken: this node waits as a spare");
  kill_node(job.on(1));
  for (const int host : {0, 2}) job.on(host).wait_for("met 3", 2);
  job.on(3).wait_for("met 3");
  CHECK(seat(3) == free);
  CHECK(seat(2) == kept);
  CHECK(count(seat(0), "node 0 of 3, restart 0") == 1);
  succeed(job, {0, 2, 3});
  CHECK(hosts.all_gone());
}

TEST_CASE("nodes: nodes that join in a burst end rounds that have hardly begun, and no stop gets lost",
          "[launcher][integration][N13]") {
  const Hosts hosts(1);
  constexpr int kNodes = 9;
  NodesJob job(hosts, c10d_job("1:9", "last_call_timeout=0") + Words{"--nproc_per_node=8", "--shutdown-timeout=5"},
               {"meet", "ready", "wait"});
  std::vector<Process*> nodes = {&job.start(0)};
  nodes[0]->wait_for("ready");
  while (nodes.size() < kNodes) nodes.push_back(&job.start(0));
  for (Process* node : nodes) node->wait_for("met 72", 8);
  nodes[0]->signal(SIGTERM);
  for (Process* node : nodes) {
    const Result result = node->wait();
    CAPTURE(result.err);
    CHECK(result.code == 128 + SIGTERM);
    CHECK(count(result.err, "--shutdown-timeout") == 0);
  }
  CHECK(hosts.all_gone());
}

TEST_CASE("nodes: SIGTERM to one node of an elastic job lets it go, to the coordinator's ends the job",
          "[launcher][integration][S4]") {
  const Hosts hosts(3);
  NodesJob job(hosts, c10d_job("1:3"), kMeetUntilTold);
  for (int host = 0; host < 3; ++host) job.start(host);
  for (int host = 0; host < 3; ++host) job.on(host).wait_for("met 3");
  const auto start = Clock::now();
  job.on(1).signal(SIGTERM);
  const Result leaver = job.on(1).wait();
  CAPTURE(leaver.err);
  CHECK(leaver.code == 128 + SIGTERM);
  CHECK(count(leaver.err, "SIGTERM received: this node leaves the job") == 1);
  for (const int host : {0, 2}) job.on(host).wait_for("met 2");
  measured("a node that leaves to the next round's workers", since(start));
  for (const int host : {0, 2}) CHECK(count(job.on(host).out(), "restart 0") == 2);
  job.on(0).signal(SIGTERM);
  for (const int host : {0, 2}) {
    const Result result = job.on(host).wait();
    CAPTURE(host, result.err);
    CHECK(result.code == 128 + SIGTERM);
    CHECK(count(result.err, " stopped: SIGTERM received on node node0") == 1);
  }
  CHECK(hosts.all_gone());
}

TEST_CASE("nodes: Ctrl-C on one node asks the workers of all, a second one kills them", "[launcher][integration][A1]") {
  const Hosts hosts(3);
  NodesJob job(hosts, static_job(3) + Words{"--shutdown-timeout=100000"}, {"note=INT", "ready", "wait"});
  for (int host = 0; host < 3; ++host) job.start_ranked(host);
  for (int host = 0; host < 3; ++host) job.on(host).wait_for("ready");
  job.on(1).signal(SIGINT);
  for (int host = 0; host < 3; ++host) job.on(host).wait_for("got SIGINT");
  job.on(1).signal(SIGINT);
  for (int host = 0; host < 3; ++host) {
    const Result result = job.on(host).wait();
    CAPTURE(host, result.err);
    CHECK(result.code == 128 + SIGINT);
    CHECK(count(result.err, host == 1 ? "second signal: killing the workers" : "SIGINT received on node node1") >= 1);
  }
  CHECK(hosts.all_gone());
}

// ---- The end ----

TEST_CASE("nodes: nodes may finish at different times, even the coordinator's first", "[launcher][integration][P2]") {
  const Hosts hosts(3);
  NodesJob job(hosts, static_job(3) + Words{"--secret=none"}, {"meet", "catch=USR1", "1:wait", "2:wait"});
  for (int host = 0; host < 3; ++host) job.start_ranked(host);
  for (int host = 0; host < 3; ++host) job.on(host).wait_for("met 3");
  for (const int host : {2, 1}) {
    std::this_thread::sleep_for(std::chrono::seconds(1));  // how far apart the nodes finish
    for (int other = 0; other < 3; ++other) CHECK(!hosts.processes(other).empty());
    job.on(host).signal(SIGUSR1);
  }
  for (int host = 0; host < 3; ++host) {
    const Result result = job.on(host).wait();
    CAPTURE(host, result.out, result.err);
    CHECK(result.code == 0);
    CHECK(result.err.empty());  // no node missed the end of the job, or one of the others
  }
  CHECK(hosts.all_gone());
}

TEST_CASE("nodes: a node that dies after its workers have succeeded neither fails nor delays the job",
          "[launcher][integration][N1]") {
  // torchrun takes 300 s.
  const Hosts hosts(3);
  NodesJob job(hosts, static_job(3) + Words{std::string("--rdzv-conf=") + kLostAfter3s},
               {"meet", "catch=USR1", "say=done", "0:wait", "1:wait"});
  for (int host = 0; host < 3; ++host) job.start_ranked(host);
  for (int host = 0; host < 3; ++host) job.on(host).wait_for("done");
  // The coordinator has to know that the worker has succeeded, and says so on its own node.
  const Words look = ddprun_raw({"ps", std::to_string(job.on(0).pid()), "--json"});
  wait_until([&look] { return count(run(look).out, "\"state\": \"done\"") == 1; });
  hosts.power_off(2);
  const auto start = Clock::now();
  succeed(job, {0, 1});
  measured("success of the rest to the end, a node dead after its own (lost after 3000 ms)", since(start));
  CHECK(since(start) < kSoon);
  CHECK(hosts.all_gone());
}
