// SPDX-License-Identifier: BSD-3-Clause
// How jobs of several nodes come together: which node gets which rank, which nodes are waited for,
// which are refused.
#include <catch2/catch.hpp>
#include <csignal>
#include <sstream>

#include "tests/integration/nodes/nodes.hpp"
#include "tests/support/ports.hpp"

using namespace ddp::testing;

TEST_CASE("nodes: three hosts with different numbers of workers are one job with one store",
          "[launcher][integration]") {
  const Hosts hosts(3);
  NodesJob job(hosts, static_job(3), {"place", "meet"});
  for (const int host : {2, 0, 1}) job.start_ranked(host, {"--nproc_per_node=" + std::to_string(host + 1)});
  int rank = 0;
  for (int host = 0; host < 3; ++host) {
    const Result result = job.on(host).wait();
    CAPTURE(host, result.out, result.err);
    CHECK(result.code == 0);
    CHECK(count(result.out, "met 6") == host + 1);
    for (int local = 0; local <= host; ++local, ++rank) {
      CHECK(count(result.out, "rank " + std::to_string(rank) + " of 6, local " + std::to_string(local) + " of " +
                                  std::to_string(host + 1) + ", node " + std::to_string(host) +
                                  " of 3, restart 0, store node0:29500") == 1);
    }
  }
  CHECK(hosts.all_gone());
}

TEST_CASE("nodes: an elastic job starts at once with MAX nodes, after the last call with fewer",
          "[launcher][integration]") {
  const Hosts hosts(3);
  NodesJob three(hosts, c10d_job("1:3", "last_call_timeout=60"), {"place", "meet"});
  for (const int host : {1, 2, 0}) three.start(host, {"--nproc_per_node=2"});
  for (int host = 0; host < 3; ++host) {
    const Result result = three.on(host).wait();
    CAPTURE(host, result.out, result.err);
    CHECK(result.code == 0);
    CHECK(count(result.out, "met 6") == 2);
    CHECK(count(result.out, "store node0:29400") == 2);
  }

  NodesJob two(hosts, c10d_job("1:3", "last_call_timeout=1"), {"place", "meet"});
  for (const int host : {2, 0}) two.start(host);
  for (const int host : {2, 0}) {
    const Result result = two.on(host).wait();
    CAPTURE(host, result.out, result.err);
    CHECK(result.code == 0);
    CHECK(count(result.out, "met 2") == 1);
  }
  CHECK(hosts.all_gone());
}

TEST_CASE("nodes: a host that comes first waits and prints for which, and the endpoint's host may come later",
          "[launcher][integration]") {
  const Hosts hosts(3);
  NodesJob job(hosts, static_job(3), {"meet"});
  Process& first = job.start_ranked(1);
  first.wait_for("ddprun: waiting for the coordinator at node0:29500: connection refused");
  Process& endpoint = job.start_ranked(0);
  const std::string news = "ddprun: waiting for nodes: 2 of 3 there (";
  first.wait_for(news);
  endpoint.wait_for("; missing: node rank 2; ");
  job.start_ranked(2);
  for (int host = 0; host < 3; ++host) {
    const Result result = job.on(host).wait();
    CAPTURE(host, result.out, result.err);
    CHECK(result.code == 0);
    CHECK(count(result.err, "\n") <= 4);  // one line every few seconds at most
  }
  CHECK(hosts.all_gone());
}

TEST_CASE("nodes: when the join deadline passes, each host says what it missed", "[launcher][integration][N8]") {
  const Hosts hosts(2);
  const Words short_wait = {"--rdzv-conf=join_timeout=1"};

  NodesJob no_coordinator(hosts, static_job(2) + short_wait, {"say=started"});
  const Result alone = no_coordinator.start_ranked(1).wait();
  CAPTURE(alone.err);
  CHECK(alone.code == 75);
  CHECK(count(alone.err, "no coordinator at node0:29500 within 1 s (--rdzv-conf join_timeout): ") == 1);
  CHECK(count(alone.err, "connection refused") == 1);

  NodesJob no_name(hosts, {"--nnodes=2", "--node_rank=1", "--master_addr=nosuch"}, {"say=started"});
  const Result lost = no_name.start(1, short_wait).wait();
  CAPTURE(lost.err);
  CHECK(lost.code == 75);
  CHECK(count(lost.err, "no coordinator at nosuch:29500 within 1 s") == 1);
  CHECK(count(lost.err, "its name cannot be resolved") == 1);

  NodesJob one_missing(hosts, static_job(3) + Words{"--rdzv-conf=join_timeout=4"}, {"say=started"});
  one_missing.start_ranked(0);
  one_missing.start_ranked(1);
  for (const int host : {0, 1}) {
    const Result result = one_missing.on(host).wait();
    CAPTURE(host, result.out, result.err);
    CHECK(result.code == 75);
    CHECK(count(result.err, "not all nodes came within 4 s (--rdzv-conf join_timeout): 2 of 3 there") == 1);
    CHECK(count(result.err, "; missing: node rank 2\n") == 1);
    CHECK(result.out.empty());
  }

  NodesJob too_few(hosts, c10d_job("2:3", "join_timeout=1"), {"say=started"});
  const Result result = too_few.start(0).wait();
  CAPTURE(result.err);
  CHECK(result.code == 75);
  CHECK(count(result.err, "1 of at least 2 there (node0)") == 1);
  CHECK(hosts.all_gone());
}

TEST_CASE("nodes: an endpoint that is each machine itself is named, with what said so, by every node",
          "[launcher][integration]") {
  const Hosts hosts(2);
  NodesJob job(hosts, {"--nnodes=1:2", "--rdzv-backend=c10d", "--rdzv-conf=last_call_timeout=0"}, {"say=alone"});
  for (const auto& [options, said] :
       {std::pair{Words{"--rdzv-endpoint=localhost:29471"}, "localhost:29471 (--rdzv-endpoint)"},
        std::pair{Words{}, "localhost:29400 (the default without --rdzv-endpoint)"}}) {
    for (const int host : {0, 1}) {
      const Result result = job.start(host, options).wait();
      CAPTURE(host, result.err);
      CHECK(result.code == 0);
      CHECK(count(result.err,
                  "meet at " + std::string(said) + ", which is each machine itself: nodes on two machines") == 1);
    }
  }
  CHECK(hosts.all_gone());
}

TEST_CASE("nodes: if two hosts have the same --node-rank, the second gets an error with both names, and the job waits",
          "[launcher][integration][A8]") {
  const Hosts hosts(4);
  NodesJob job(hosts, static_job(3), {"meet"});
  job.start(0, {"--node_rank=0"});
  Process& holder = job.start(1, {"--node_rank=1"});
  holder.wait_for("2 of 3 there");
  const Result wrong = job.start(2, {"--node_rank=1"}).wait();
  CAPTURE(wrong.err);
  CHECK(wrong.code == 1);
  CHECK(count(wrong.err,
              "node rank 1 is held by node node1 (10.7.0.2) and claimed by node node2 (10.7.0.3): give each host a "
              "--node-rank of its own") == 1);
  job.start(3, {"--node_rank=2"});
  for (const int host : {0, 1, 3}) {
    const Result result = job.on(host).wait();
    CAPTURE(host, result.out, result.err);
    CHECK(result.code == 0);
    CHECK(count(result.out, "met 3") == 1);
  }
  CHECK(hosts.all_gone());
}

TEST_CASE("nodes: a second host with --node-rank 0 learns that the others look elsewhere",
          "[launcher][integration][N12]") {
  const Hosts hosts(2);
  NodesJob job(hosts, static_job(2) + Words{"--rdzv-conf=join_timeout=1"}, {"meet"});
  const Result result = job.start(1, {"--node_rank=0"}).wait();
  CAPTURE(result.err);
  CHECK(result.code == 75);
  CHECK(count(result.err, "--master-addr node0 is not an address of this machine") == 1);
  CHECK(hosts.all_gone());
}

TEST_CASE("nodes: an agent that looks for the coordinator at a wrong port reports what it found there",
          "[launcher][integration]") {
  const Hosts hosts(2);
  Process http(hosts.on(0, {FAKE_PEER_BINARY, "listen", "29501", "HTTP/1.1 400 Bad Request\r\n\r\n"}));
  Process newer(hosts.on(0, {FAKE_PEER_BINARY, "listen", "29502", "\\xddddprun\\x63\\x00 and more"}));
  Process silent(hosts.on(0, {FAKE_PEER_BINARY, "listen", "29503", ""}));
  Process store(hosts.on(0, {DDP_STORE_BINARY, "--bind", "10.7.0.1", "--port", "29504"}));
  for (Process* peer : {&http, &newer, &silent, &store}) peer->wait_for("listening");
  struct Case {
    int port;
    std::string said;
  };
  const std::vector<Case> cases = {
      {29500, "connection refused"},
      {29501, "what answers there is not a ddprun coordinator (first bytes: \"HTTP/1.1 400 Bad\")"},
      {29502,
       "the coordinator at node0:29502 is of another version of ddprun (its agent link is version 99, this node's "
       "version 4): install the same on every node"},
      {29503, "no answer yet"},
      {29504, "what answers there is not a ddprun coordinator (it closed the connection without a word)"},
  };
  NodesJob job(hosts, {"--nnodes=2", "--node_rank=1", "--master_addr=node0", "--rdzv-conf=join_timeout=2"}, {});
  std::vector<Process*> lost;
  for (const Case& c : cases) lost.push_back(&job.start(1, {"--master_port=" + std::to_string(c.port)}));
  for (std::size_t i = 0; i < cases.size(); ++i) {
    const Result result = lost[i]->wait();
    CAPTURE(cases[i].port, result.err);
    CHECK(result.code == (cases[i].port == 29502 ? 1 : 75));
    CHECK(count(result.err, cases[i].said) >= 1);
    CHECK(count(result.err, "within 2 s (--rdzv-conf join_timeout)") == (cases[i].port == 29502 ? 0 : 1));
  }
}

TEST_CASE(
    "nodes: a host whose options differ from the others' is refused with both (but the id), and the job waits for the "
    "right one",
    "[launcher][integration]") {
  const Hosts hosts(3);
  const Words c10d = {"--rdzv-backend=c10d", "--rdzv-endpoint=node0:29400"};
  const Words right = c10d + Words{"--nnodes=2", "--rdzv-id=job"};
  NodesJob job(hosts, {}, {"meet"});
  Process& coordinator = job.start(0, right);
  coordinator.wait_for(" and knows the --rdzv-id may join this job");
  struct Case {
    Words options;
    std::string said;
  };
  const auto differ = [](const std::string& what, const std::string& there, const std::string& here) {
    return what + " is " + there + " on this host and " + here + " at the coordinator: give all hosts the same";
  };
  const std::vector<Case> cases = {
      {c10d + Words{"--nnodes=2", "--rdzv-id=other"}, "the coordinator's job has another --rdzv-id than 'other'"},
      {c10d + Words{"--nnodes=3", "--rdzv-id=job"}, differ("--nnodes", "3", "2")},
      {c10d + Words{"--nnodes=1:2", "--rdzv-id=job"}, differ("--nnodes", "1:2", "2")},
      {right + Words{"--max-restarts=1"}, differ("--max-restarts", "1", "0")},
      {{"--nnodes=2", "--node_rank=1", "--master_addr=node0", "--master_port=29400", "--rdzv-id=job"},
       differ("--rdzv-backend", "static", "c10d")},
  };
  std::vector<Process*> wrong;
  for (const Case& c : cases) wrong.push_back(&job.start(2, c.options));
  for (std::size_t i = 0; i < cases.size(); ++i) {
    const Result result = wrong[i]->wait();
    CAPTURE(result.err);
    CHECK(result.code == 1);
    CHECK(count(result.err, cases[i].said) == 1);
    CHECK(count(result.err, "'job'") == 0);  // without a secret, the id is what a stranger has to know
  }
  coordinator.wait_for("its --rdzv-id is 'other', this job's 'job'");
  Process newer(hosts.on(2, {FAKE_PEER_BINARY, "connect", "10.7.0.1", "29400", "\\xddddprun\\x63\\x00 and more"}));
  newer.wait_for("closed");
  CHECK(count(newer.out(), "heard 49 bytes") == 1);  // the coordinator's preface, which has its version
  coordinator.wait_for("agent link: refused 10.7.0.3:");
  coordinator.wait_for("it is of another version of ddprun");

  job.start(1, right);
  for (const int host : {0, 1}) {
    const Result result = job.on(host).wait();
    CAPTURE(host, result.out, result.err);
    CHECK(result.code == 0);
    CHECK(count(result.out, "met 2") == 1);
  }
  CHECK(hosts.all_gone());
}

TEST_CASE("nodes: with a secret only nodes that know it are let in, and workers do not get it",
          "[launcher][integration]") {
  const Hosts hosts(3);
  const TemporaryFolder folder;
  for (const char* name : {"right", "other"}) {
    REQUIRE(run(ddprun_raw({"--make-secret", folder / name})).code == 0);
  }
  const auto knows = [&](const char* name) {
    Process::Options options;
    if (*name != 0) options.environment = {{"DDPRUN_SECRET_FILE", folder / name}};
    return options;
  };
  NodesJob job(hosts, c10d_job("2"), {"env=DDPRUN_SECRET_FILE", "meet"});
  Process& coordinator = job.start(0, {}, knows("right"));

  // Strangers come first. Whatever they send or do not send, the others are served.
  coordinator.wait_for("1 of 2 there");
  const Words connect = {FAKE_PEER_BINARY, "connect", "10.7.0.1", "29400"};
  Process garbage(hosts.on(2, connect + Words{"GET / HTTP/1.1\r\n\r\n"}));
  Process half(hosts.on(2, connect + Words{"\\xddddp"}));
  Process unproven(hosts.on(
      2, connect + Words{"\\xddddprun\\x04\\x01\\x00\\x00\\x00\\x00\\x00\\x00\\x00\\x00 thirty-two bytes for a public"
                         " keyand no proof at all, but much more"}));
  for (Process* stranger : {&garbage, &unproven}) stranger->wait_for("closed");
  half.wait_for("connected");
  // The coordinator's preface, alone or followed by the 32 zero bytes of a refusal.
  CHECK(count(unproven.out(), "heard 49 bytes") + count(unproven.out(), "heard 81 bytes") == 1);

  const Result other = job.start(1, {}, knows("other")).wait();
  CAPTURE(other.err);
  CHECK(other.code == 1);
  CHECK(count(other.err,
              "the secrets of this node and of the coordinator at node0:29400 differ (DDPRUN_SECRET_FILE)") == 1);
  const Result none = job.start(1, {}, knows("")).wait();
  CAPTURE(none.err);
  CHECK(none.code == 1);
  CHECK(count(none.err, "the coordinator at node0:29400 wants a secret: give --secret FILE or DDPRUN_SECRET_FILE") ==
        1);

  job.start(1, {}, knows("right"));
  for (const int host : {0, 1}) {
    const Result result = job.on(host).wait();
    CAPTURE(host, result.out, result.err);
    CHECK(result.code == 0);
    CHECK(count(result.out, "[DDPRUN_SECRET_FILE=(unset)]") == 1);
  }

  NodesJob open(hosts, c10d_job("2"), {"meet"});
  open.start(0);
  const Result only_here = open.start(1, {}, knows("right")).wait();
  CAPTURE(only_here.err);
  CHECK(only_here.code == 1);
  CHECK(count(only_here.err, "the coordinator at node0:29400 has no secret, this node has one") == 1);
}

TEST_CASE("nodes: the store serves only the job's hosts, and there only the job's user", "[launcher][integration]") {
  const Hosts hosts(3);
  NodesJob job(hosts, static_job(2), {"meet", "catch=USR1", "ready", "wait"});
  job.start_ranked(0);
  // Sends ADD 1 to "key", which is answered by eight bytes.
  const auto is_served = [&](int host, const Words& as = {}) {
    const std::string add = "\\x03\\x03\\x00\\x00\\x00\\x00\\x00\\x00\\x00key\\x01\\x00\\x00\\x00\\x00\\x00\\x00\\x00";
    Process client(hosts.on(host, as + Words{FAKE_PEER_BINARY, "connect", "10.7.0.1", "29500", add}));
    client.wait_for("connected");
    client.wait_for("\n", 2);
    return count(client.out(), "heard 8 bytes") == 1;
  };
  job.on(0).wait_for("1 of 2 there");
  CHECK_FALSE(is_served(0));  // there are no workers yet
  job.start_ranked(1);
  for (const int host : {0, 1}) job.on(host).wait_for("ready");
  CHECK_FALSE(is_served(2));
  if (geteuid() == 0) {
    CHECK_FALSE(is_served(1, {"setpriv", "--reuid=65534", "--clear-groups"}));
    job.on(0).wait_for("as its node says, its process belongs to nobody (uid 65534)");
  }
  CHECK(is_served(1));
  CHECK(is_served(0));
  for (const int host : {0, 1}) job.on(host).signal(SIGUSR1);
  for (const int host : {0, 1}) CHECK(job.on(host).wait().code == 0);
  CHECK(hosts.all_gone());
}

// Returns the addresses that a host listens on, in the kernel's notation.
Words listening_on(const Hosts& hosts, int host) {
  Words found;
  std::istringstream lines(run(hosts.on(host, {"cat", "/proc/net/tcp", "/proc/net/tcp6"})).out);
  for (std::string line; std::getline(lines, line);) {
    std::istringstream words(line);
    std::string number, local, remote, state;
    words >> number >> local >> remote >> state;
    if (state == "0A") found.push_back(local.substr(0, local.find(':')));
  }
  return found;
}

TEST_CASE("nodes: a job of one node listens on loopback only, a node that does not coordinate on nothing",
          "[launcher][integration]") {
  const Hosts hosts(2);
  const Words verbs = {"meet", "catch=USR1", "ready", "wait"};
  Process alone(hosts.on(0, ddprun({}, verbs)));
  alone.wait_for("ready");
  CHECK(listening_on(hosts, 0) == Words{"0100007F", "00000000000000000000000001000000"});
  alone.signal(SIGUSR1);
  CHECK(alone.wait().code == 0);

  NodesJob job(hosts, static_job(2), verbs);
  for (const int host : {0, 1}) job.start_ranked(host);
  for (const int host : {0, 1}) job.on(host).wait_for("ready");
  CHECK(listening_on(hosts, 1).empty());
  CHECK(listening_on(hosts, 0) == Words{"0100070A"});
  for (const int host : {0, 1}) job.on(host).signal(SIGUSR1);
  for (const int host : {0, 1}) CHECK(job.on(host).wait().code == 0);
}

TEST_CASE("nodes: the coordinator listens on the address that is meant, and on all where that cannot be known",
          "[launcher][integration]") {
  struct Case {
    Words options;
    Words addresses;
  };
  using Catch::Matchers::UnorderedEquals;
  const Words all = {"00000000", "00000000000000000000000000000000"};
  const auto at = [](const std::string& address) {
    return Words{"--nnodes=2", "--node_rank=0", "--master_addr=" + address, "--master_port=29500"};
  };
  const Words c10d = {"--nnodes=2", "--rdzv-backend=c10d"};
  const auto check = [](const Hosts& hosts, const std::vector<Case>& cases) {
    for (const Case& each : cases) {
      CAPTURE(each.options);
      Process coordinator(hosts.on(0, ddprun(each.options, {"say=started"})));
      wait_until([&] { return listening_on(hosts, 0).size() >= each.addresses.size(); });
      CHECK_THAT(listening_on(hosts, 0), UnorderedEquals(each.addresses));
      coordinator.signal(SIGTERM);
      CHECK(coordinator.wait().code == 128 + SIGTERM);
    }
    CHECK(hosts.all_gone());
  };
  const std::string first = "0100070A", second = "0101070A";  // 10.7.0.1 and 10.7.1.1
  check(Hosts(2, {.networks = {{0, 1}, {0, 1}}}),
        {{at("10.7.1.1"), {second}},
         {at("node0"), {first, second}},
         {c10d + Words{"--rdzv-endpoint=10.7.0.1:29400"}, {first}},
         {c10d + Words{"--rdzv-endpoint=10.7.0.1:29400", "--local-addr=10.7.1.1"}, {first, second}},
         {at("127.0.0.1"), {"0100007F", "00000000000000000000000001000000"}},
         {at("localhost"), all},
         {at("10.7.0.2"), all},  // this may be what others call this host, behind a translation of addresses
         {{"--nnodes=2", "--node_rank=0", "--master_port=29500"}, all}});
  check(Hosts(1, {.debian_names = true}), {{at("node0"), all}});
}

TEST_CASE("nodes: if another process has the coordinator's port, its host says so", "[launcher][integration][N12]") {
  const Hosts hosts(1);
  Process taken(hosts.on(0, {FAKE_PEER_BINARY, "listen", "29500", "220 mail.example\r\n"}));
  taken.wait_for("listening");
  const Result by_rank = run(hosts.on(0, ddprun(static_job(2) + Words{"--node_rank=0"}, {})));
  CAPTURE(by_rank.err);
  CHECK(by_rank.code == 1);
  CHECK(count(by_rank.err, "port 29500 is taken by pid " + std::to_string(taken.pid())) == 1);
  // The port may belong to another node of this job that coordinates, so this one tries to connect
  // first.
  const Result elastic = run(hosts.on(
      0,
      ddprun({"--nnodes=2", "--rdzv-backend=c10d", "--rdzv-endpoint=node0:29500", "--rdzv-conf=join_timeout=1"}, {})));
  CAPTURE(elastic.err);
  CHECK(elastic.code == 75);
  CHECK(count(elastic.err, "what answers there is not a ddprun coordinator (first bytes: \"220 mail.example\"") == 1);
}

TEST_CASE("nodes: an elastic node coordinates after all when what held its port has ended", "[launcher][integration]") {
  const Hosts hosts(1);
  Process dying(hosts.on(0, {FAKE_PEER_BINARY, "listen", "29400", "220 mail.example\r\n"}));
  dying.wait_for("listening");
  NodesJob job(hosts, c10d_job("1:2"), {"say=started"});
  job.start(0).wait_for("waiting for the coordinator");
  dying.signal(SIGKILL);
  const Result result = job.on(0).wait();
  CAPTURE(result.err);
  CHECK(result.code == 0);
  CHECK(count(result.out, "started") == 1);
  CHECK(hosts.all_gone());
}

TEST_CASE("nodes: a node that waits for others can be stopped", "[launcher][integration]") {
  const Hosts hosts(2);
  NodesJob job(hosts, static_job(3), {"say=started"});
  for (const int host : {0, 1}) job.start_ranked(host);
  for (const int host : {0, 1}) job.on(host).wait_for("2 of 3 there");
  job.on(1).signal(SIGTERM);
  for (const int host : {1, 0}) {
    const Result result = job.on(host).wait();
    CAPTURE(host, result.err);
    CHECK(result.code == 128 + SIGTERM);
    CHECK(count(result.err, "SIGTERM received on node node1 (10.7.0.2)") == 1);
  }
  NodesJob alone(hosts, static_job(3), {"say=started"});
  alone.start_ranked(1).wait_for("waiting for the coordinator");
  alone.on(1).signal(SIGTERM);
  CHECK(alone.on(1).wait().code == 128 + SIGTERM);
  CHECK(hosts.all_gone());
}

TEST_CASE("nodes: several agents on one machine are nodes of one job", "[launcher][integration][N12]") {
  // Does not use separate hosts, so that it runs everywhere.
  const std::string port = std::to_string(free_port());
  const std::vector<Words> jobs = {
      {"--nnodes=3", "--rdzv-backend=c10d", "--rdzv-endpoint=localhost:" + port},
      {"--nnodes=3", "--master_addr=127.0.0.1", "--master_port=" + port},
  };
  for (const Words& options : jobs) {
    std::vector<std::unique_ptr<Process>> nodes;
    for (const int node : {2, 0, 1}) {
      nodes.push_back(std::make_unique<Process>(
          ddprun(options + Words{"--node_rank=" + std::to_string(node), "--nproc_per_node=2"}, {"meet"})));
    }
    for (const auto& node : nodes) {
      const Result result = node->wait();
      CAPTURE(options, result.out, result.err);
      CHECK(result.code == 0);
      CHECK(count(result.out, "met 6") == 2);
      CHECK(node->left_over().empty());
    }
  }
}

TEST_CASE("nodes: with several networks each host's workers get an address that they can reach",
          "[launcher][integration][N9]") {
  const Hosts hosts(3, {.networks = {{0, 1}, {0}, {1}}});
  NodesJob job(hosts, c10d_job("3"), {"place", "meet"});
  for (int host = 0; host < 3; ++host) job.start(host);
  for (int host = 0; host < 3; ++host) {
    const Result result = job.on(host).wait();
    CAPTURE(host, result.out, result.err);
    CHECK(result.code == 0);
    CHECK(count(result.out, "met 3") == 1);
    CHECK(count(result.out, "store node0:29400") == 1);  // it stands for both
  }
  CHECK(hosts.all_gone());
}

TEST_CASE("nodes: all workers get the address given by --local-addr, and is_host overrides detection",
          "[launcher][integration]") {
  const Hosts hosts(2, {.networks = {{0, 1}, {0, 1}}});
  NodesJob job(hosts, c10d_job("2"), {"place", "meet"});
  job.start(0, {"--local-addr=10.7.1.1"});
  job.start(1);
  for (const int host : {0, 1}) {  // the other node's worker has another address than its agent
    const Result result = job.on(host).wait();
    CAPTURE(host, result.out, result.err);
    CHECK(result.code == 0);
    CHECK(count(result.out, "store 10.7.1.1:29400") == 1);
  }

  NodesJob nobody(hosts, c10d_job("2", "join_timeout=1,is_host=false"), {"say=started"});
  const Result result = nobody.start(0).wait();
  CAPTURE(result.err);
  CHECK(result.code == 75);
  CHECK(count(result.err, "no coordinator at node0:29400 within 1 s") == 1);
  CHECK(hosts.all_gone());
}

TEST_CASE("nodes: hosts that have IPv6 only form a job", "[launcher][integration][N15]") {
  const Hosts hosts(2, {.v4 = false, .v6 = true});
  const std::vector<Words> jobs = {
      {"--nnodes=2", "--rdzv-backend=c10d", "--rdzv-endpoint=[fd07::1]:29400"},
      {"--nnodes=2", "--rdzv-backend=c10d", "--rdzv-endpoint=node0:29400"},
      {"--nnodes=2", "--master_addr=fd07::1", "--master_port=29400"},
  };
  for (const Words& options : jobs) {
    NodesJob job(hosts, options, {"place", "meet"});
    for (const int host : {1, 0}) job.start(host, {"--node_rank=" + std::to_string(host)});
    for (const int host : {1, 0}) {
      const Result result = job.on(host).wait();
      CAPTURE(options, host, result.out, result.err);
      CHECK(result.code == 0);
      CHECK(count(result.out, "met 2") == 1);
      const bool is_named = options[2].ends_with("node0:29400");
      CHECK(count(result.out, is_named ? "store node0:29400" : "store fd07::1:29400") == 1);
    }
  }
  CHECK(hosts.all_gone());
}

TEST_CASE("nodes: a host that resolves its own name to 127.0.1.1 is found, and others do not get that address",
          "[launcher][integration][N9]") {
  const Hosts hosts(2, {.debian_names = true});
  NodesJob job(hosts, c10d_job("2"), {"place", "meet"});
  for (const int host : {1, 0}) job.start(host);
  for (const int host : {1, 0}) {
    const Result result = job.on(host).wait();
    CAPTURE(host, result.out, result.err);
    CHECK(result.code == 0);
    CHECK(count(result.out, "met 2") == 1);
    CHECK(count(result.out, "store 10.7.0.1:29400") == 1);
  }
  NodesJob by_rank(hosts, static_job(2), {"meet"});
  for (const int host : {1, 0}) by_rank.start_ranked(host);
  for (const int host : {1, 0}) CHECK(by_rank.on(host).wait().code == 0);
  CHECK(hosts.all_gone());
}
