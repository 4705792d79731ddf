// SPDX-License-Identifier: BSD-3-Clause
// Any node of a job shows the whole job.
#include <catch2/catch.hpp>
#include <csignal>
#include <nlohmann/json.hpp>
#include <set>

#include "tests/integration/nodes/nodes.hpp"

using Catch::Matchers::Contains;
using nlohmann::json;
using namespace ddp::testing;

namespace {

// A node that is stopped for a while is not lost.
const Words kPatient = {"--nproc_per_node=2", "--rdzv-conf=keep_alive_interval=60,keep_alive_max_attempt=5"};

json state_at(const Process& node) {
  const Result shown = run(ddprun_raw({"ps", std::to_string(node.pid()), "--json"}));
  CAPTURE(shown.err);
  return json::parse(shown.out);
}

void start_and_wait(NodesJob& job, int hosts, const Words& options) {
  for (int host = 0; host < hosts; ++host) job.start_ranked(host, options);
  for (int host = 0; host < hosts; ++host) job.on(host).wait_for("up", 2);
}

}  // namespace

TEST_CASE("look: each node shows all nodes and all ranks", "[launcher][integration]") {
  const Hosts hosts(3);
  NodesJob job(hosts, static_job(3), kUntilTold);
  start_and_wait(job, 3, {"--nproc_per_node=2"});
  for (int host = 0; host < 3; ++host) {
    const json state = state_at(job.on(host));
    CHECK(state.at("error").is_null());
    CHECK(state.at("world_size") == 6);
    REQUIRE(state.at("nodes").size() == 3);
    for (int node = 0; node < 3; ++node) {
      const json& shown = state.at("nodes")[static_cast<std::size_t>(node)];
      CHECK(shown.at("host") == Hosts::name(node));
      CHECK(shown.at("pid") == job.on(node).pid());
      CHECK(shown.at("asked") == (node == host));
      CHECK(shown.at("coordinator") == (node == 0));
      REQUIRE(shown.at("workers").size() == 2);
      CHECK(shown.at("workers")[1].at("rank") == 2 * node + 1);
    }
  }
  succeed(job, {0, 1, 2});
  CHECK(hosts.all_gone());
}

TEST_CASE("look: a node that does not answer is shown as such, and the others as they are", "[launcher][integration]") {
  const Hosts hosts(3);
  NodesJob job(hosts, static_job(3), kUntilTold);
  start_and_wait(job, 3, kPatient);
  const pid_t silent = agent_of(job.on(2));
  kill(silent, SIGSTOP);
  const Result page = run(ddprun_raw({"ps", std::to_string(job.on(1).pid())}));
  const json state = state_at(job.on(1));
  kill(silent, SIGCONT);
  CHECK(page.code == 1);
  CHECK_THAT(page.out, Contains("it did not answer in time"));
  CHECK(state.at("nodes")[0].at("workers").size() == 2);
  CHECK(state.at("nodes")[1].at("workers").size() == 2);
  CHECK(state.at("nodes")[2].at("workers").empty());
  CHECK_THAT(state.at("nodes")[2].at("error").get<std::string>(), Contains("did not answer"));
  succeed(job, {0, 1, 2});
}

TEST_CASE("look: a node without the coordinator shows itself, and says so", "[launcher][integration]") {
  const Hosts hosts(2);
  NodesJob job(hosts, static_job(2), kUntilTold);
  start_and_wait(job, 2, kPatient);
  const pid_t coordinator = sidecar_of(job.on(0), "ddp-coordinator");
  kill(coordinator, SIGSTOP);
  const json state = state_at(job.on(1));
  kill(coordinator, SIGCONT);
  CHECK_THAT(state.at("error").get<std::string>(), Contains("only this node is shown"));
  REQUIRE(state.at("nodes").size() == 1);
  CHECK(state.at("nodes")[0].at("workers").size() == 2);
  succeed(job, {0, 1});
}

TEST_CASE("look: stacks are those of all nodes", "[launcher][integration]") {
  const Hosts hosts(2);
  NodesJob job(hosts, static_job(2), kUntilTold);
  start_and_wait(job, 2, {"--nproc_per_node=2"});
  const Result shown = run(ddprun_raw({"stacks", std::to_string(job.on(1).pid()), "--json"}));
  CAPTURE(shown.err);
  CHECK(shown.code == 0);
  std::set<int> ranks;
  for (const json& worker : json::parse(shown.out)) ranks.insert(worker.at("rank").get<int>());
  CHECK(ranks == std::set<int>{0, 1, 2, 3});
  succeed(job, {0, 1});
}

TEST_CASE("hang: a node that does not answer is named, once another one stands still", "[launcher][integration]") {
  const Hosts hosts(3);
  NodesJob job(hosts, static_job(3), kUntilTold);
  start_and_wait(job, 3, kPatient + Words{"--hang-timeout=0.2"});
  const pid_t silent = agent_of(job.on(1));
  kill(silent, SIGSTOP);
  for (const int host : {0, 2}) {
    job.on(host).wait_for("node node1 (ranks 2-3) does not answer: is its ddprun stopped");
  }
  kill(silent, SIGCONT);
  succeed(job, {0, 1, 2});
}

TEST_CASE("look: a node whose network is slow is named by every node: on the page, and in the verdict about a hang",
          "[launcher][integration]") {
  const Hosts hosts(3);
  Process weather(hosts.instead_of_cable(1, {FAKE_CABLE_BINARY, "delay=60"}));
  weather.wait_for("carries");
  // Each verdict restarts the job, so that another one comes once enough round trips are measured.
  NodesJob job(hosts,
               static_job(3) + Words{"--rdzv-conf=keep_alive_interval=1,keep_alive_max_attempt=6", "--hang-timeout=0.3",
                                     "--on-hang=restart", "--max-restarts=1000"},
               {"say=up", "wait"});
  for (int host = 0; host < 3; ++host) job.start_ranked(host);
  const std::string says = "node node1 answers slowly: a round trip of its link takes 1";
  for (int host = 0; host < 3; ++host) {
    job.on(host).wait_for(says);
    job.on(host).wait_for("round trips of the nodes' links to the one that coordinates: node1 1");
  }
  json node;
  const auto is_named = [&] {
    const json state = state_at(job.on(2));
    if (state.at("nodes").size() < 3) return false;  // the links come back
    node = state.at("nodes")[1];
    return node.contains("slow_link") && !node.at("slow_link").is_null();
  };
  wait_until(is_named);
  CHECK_THAT(node.at("slow_link").get<std::string>(), Contains(says));
  CHECK(node.at("round_trip_us") >= 120'000);
  CHECK_THAT(run(ddprun_raw({"ps", std::to_string(job.on(0).pid())})).out, Contains("LINK") && Contains(says));
  for (int host = 0; host < 3; ++host) job.on(host).signal(SIGTERM);
  for (int host = 0; host < 3; ++host) {
    const Result end = job.on(host).wait();
    CAPTURE(host, end.err);
    CHECK_THAT(end.err, !Contains("node node2 answers slowly") && !Contains("node node0 answers slowly"));
  }
  CHECK(hosts.all_gone());
}

TEST_CASE("look: stop on any node of an elastic job ends all of it", "[launcher][integration]") {
  const Hosts hosts(3);
  NodesJob job(hosts, c10d_job("1:3", "last_call_timeout=60"), {"say=up", "wait"});
  for (int host = 0; host < 3; ++host) job.start(host);
  for (int host = 0; host < 3; ++host) job.on(host).wait_for("up");
  const Result stop = run(ddprun_raw({"stop", std::to_string(job.on(2).pid())}));
  CAPTURE(stop.out, stop.err);
  CHECK(stop.code == 0);
  for (int host = 0; host < 3; ++host) CHECK(job.on(host).wait().code == 128 + SIGTERM);
  CHECK(hosts.all_gone());
}

TEST_CASE("look: a spare is shown without a seat", "[launcher][integration]") {
  const Hosts hosts(3);
  NodesJob job(hosts, c10d_job("2"), kUntilTold);
  for (int host = 0; host < 2; ++host) job.start(host);
  for (int host = 0; host < 2; ++host) job.on(host).wait_for("up");
  job.start(2);
  job.on(2).wait_for("waits as a spare");
  const json state = state_at(job.on(2));
  REQUIRE(state.at("nodes").size() == 3);
  CHECK(state.at("nodes")[0].at("seated") == true);
  CHECK(state.at("nodes")[1].at("seated") == true);
  CHECK(state.at("nodes")[2].at("seated") == false);
  CHECK(state.at("nodes")[2].at("state") == "spare");
  CHECK(state.at("nodes")[2].at("phase") == "waiting");
  CHECK(state.at("nodes")[2].at("asked") == true);
  for (int host = 0; host < 2; ++host) kill(only_child_of(agent_of(job.on(host))), SIGUSR1);
  for (int host = 0; host < 3; ++host) CHECK(job.on(host).wait().code == 0);
}

TEST_CASE("look: the report of a failure has the stacks of all nodes, at the coordinator's",
          "[launcher][integration]") {
  const Hosts hosts(3);
  NodesJob job(hosts, static_job(3), {"note=USR1", "say=up", "5:until=USR1", "5:exit=7", "wait"});
  start_and_wait(job, 3, {"--nproc_per_node=2", "--stacks-timeout=10"});
  kill(children_of(agent_of(job.on(2))).back(), SIGUSR1);  // rank 5; the others are to be at one place
  const Result own = job.on(0).wait();
  CAPTURE(own.err);
  CHECK(own.code == 7);
  CHECK_THAT(own.err, Contains("what the others did, before they were stopped:"));
  CHECK_THAT(own.err, Contains("ranks 0-4: "));
  for (int host = 1; host < 3; ++host) CHECK(job.on(host).wait().code == 7);
}
