// SPDX-License-Identifier: BSD-3-Clause
// `ddprun ps`: what it lists while jobs run, and after their processes were killed.
#include <signal.h>

#include <algorithm>
#include <catch2/catch.hpp>
#include <chrono>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <sstream>
#include <string>
#include <vector>

#include "rendezvous/agent_client.hpp"
#include "rendezvous/base/error.hpp"
#include "tests/integration/ddprun.hpp"

using Catch::Matchers::Contains;
using nlohmann::json;
using namespace ddp::testing;
using ddp::rendezvous::AgentRequest;

namespace {

// Returns what `ddprun ps --json` says of this job; nothing if it does not list it.
std::optional<json> listed(const Process& job) {
  const Result list = run(ddprun_raw({"ps", "--json"}));
  std::istringstream lines(list.out);
  for (std::string line; std::getline(lines, line);) {
    json entry = json::parse(line);
    if (entry.at("pid") == job.pid()) return entry;
  }
  return std::nullopt;
}

}  // namespace

TEST_CASE("ps: once a worker has ended fewer are said to run", "[apps][integration]") {
  Process job(ddprun({"--nproc-per-node=2", "--rdzv-id=fewer"}, Words{"0:exit=0"} + kUntilTold));
  job.wait_for("up");
  wait_until([&] { return children_of(agent_of(job)).size() == 1; });
  wait_until([&] { return count(run(ddprun_raw({"ps"})).out, "1 of 2 running") == 1; });
  succeed(job);
}

TEST_CASE("ps: a job is listed with its workers while it runs", "[apps][integration]") {
  Process job(ddprun({"--nproc-per-node=2", "--rdzv-id=mine"}, kUntilTold));
  job.wait_for("up", 2);
  const auto entry = listed(job);
  REQUIRE(entry);
  CHECK(entry->at("version") == 1);
  CHECK(entry->at("job") == "mine");
  CHECK(entry->at("phase") == "running");
  CHECK(entry->at("round") == 1);
  CHECK(entry->at("world_size") == 2);
  CHECK(entry->at("step").is_null());
  const std::vector<pid_t> workers = children_of(agent_of(job));
  REQUIRE(entry->at("workers").size() == 2);
  for (const json& worker : entry->at("workers")) {
    CHECK(std::count(workers.begin(), workers.end(), worker.at("pid").get<pid_t>()) == 1);
  }
  const std::string table = run(ddprun_raw({"ps"})).out;
  CHECK_THAT(table, Catch::StartsWith("JOB "));
  CHECK_THAT(table, Contains("mine ") && Contains("2 running") && Contains("fake_worker"));
  for (const pid_t worker : workers) kill(worker, SIGUSR1);
  CHECK(job.wait().code == 0);
  CHECK_FALSE(listed(job));
}

TEST_CASE("ps: the round counts, and the workers are those of the newest one", "[apps][integration]") {
  Process job(ddprun({"--nproc-per-node=1", "--max-restarts=1"}, kUntilTold));
  job.wait_for("up");
  const pid_t first = only_child_of(agent_of(job));
  kill(first, SIGKILL);
  job.wait_for("up", 2);
  const auto entry = listed(job);
  REQUIRE(entry);
  CHECK(entry->at("round") == 2);
  CHECK(entry->at("restarts") == 1);
  CHECK(entry->at("workers")[0].at("pid") != first);
  kill(only_child_of(agent_of(job)), SIGUSR1);
  CHECK(job.wait().code == 0);
}

TEST_CASE("ps: a job of which any process was killed is not listed, nor one of which all were, and no socket is left",
          "[apps][integration]") {
  const std::string which = GENERATE("guardian", "keeper", "agent", "worker", "all");
  CAPTURE(which);
  Process job(ddprun({"--nproc-per-node=1"}, kUntilTold));
  job.wait_for("up");
  const pid_t agent = agent_of(job), keeper = keeper_of(job), worker = only_child_of(agent);
  const std::string socket = variable_of(worker, "DDPRUN_AGENT_SOCKET");
  CHECK(access(socket.c_str(), F_OK) == 0);
  const std::map<std::string, pid_t> parts = {
      {"guardian", job.pid()}, {"keeper", keeper}, {"agent", agent}, {"worker", worker}};
  std::vector<pid_t> victims;
  for (const auto& [name, pid] : parts) {
    if (which == name || which == "all") victims.push_back(pid);
  }
  kill_at_once(victims);
  job.wait();
  CHECK(job.all_gone());
  CHECK_FALSE(listed(job));  // removes the socket if nobody else could
  CHECK(access(socket.c_str(), F_OK) != 0);
}

TEST_CASE("ps: agents that are stopped cost one wait together, and a job that runs is found", "[apps][integration]") {
  const Words patient = {"--nproc-per-node=1", "--rdzv-conf=keep_alive_interval=60,keep_alive_max_attempt=5"};
  Process runs(ddprun(patient, kUntilTold));
  std::vector<std::unique_ptr<Process>> stopped;
  for (int i = 0; i < 4; ++i) stopped.push_back(std::make_unique<Process>(ddprun(patient, kUntilTold)));
  runs.wait_for("up");
  for (const auto& job : stopped) job->wait_for("up");
  std::vector<pid_t> agents;
  for (const auto& job : stopped) agents.push_back(agent_of(*job));
  for (const pid_t agent : agents) kill(agent, SIGSTOP);
  const auto began = std::chrono::steady_clock::now();
  const Result page = run(ddprun_raw({"ps", std::to_string(runs.pid())}));
  const auto took = std::chrono::steady_clock::now() - began;
  for (const pid_t agent : agents) kill(agent, SIGCONT);
  CAPTURE(page.err);
  CHECK(page.code == 0);
  CHECK_THAT(page.out, Contains("1 worker on 1 node"));
  CHECK(count(page.err, "no answer in 5 s (is the agent stopped?)") >= 4);
  CHECK(took < std::chrono::seconds(15));  // one after the other they would take 20 s
  kill(only_child_of(agent_of(runs)), SIGUSR1);
  CHECK(runs.wait().code == 0);
  for (const auto& job : stopped) {
    kill(only_child_of(agent_of(*job)), SIGUSR1);
    CHECK(job->wait().code == 0);
    CHECK(job->all_gone());
  }
}

TEST_CASE("ps: a request of another version, or of nonsense, is refused in words", "[apps][integration]") {
  Process job(ddprun({"--nproc-per-node=1"}, kUntilTold));
  job.wait_for("up");
  const pid_t worker = only_child_of(agent_of(job));
  const std::string socket = variable_of(worker, "DDPRUN_AGENT_SOCKET");
  const auto ask = [&](const std::string& request) { return ddp::rendezvous::ask_agent(socket, request).text; };
  const auto why_not = [&](const AgentRequest& request) {
    return ddp::rendezvous::ask_agent(socket, request).answer.error;
  };
  std::string newer = encode(AgentRequest{.ask = "state"});
  newer[5] = 2;
  CHECK_THAT(ask(newer), Contains("error") && Contains("of version 2, and this ddprun reads version 1"));
  CHECK_THAT(ask("state"), Contains("the request is "));
  CHECK_THAT(why_not({.ask = "gold"}), Contains("nothing can be asked by this name: gold"));
  CHECK_THAT(why_not({.ask = "page", .incarnation = "x"}), Contains("no worker of this round"));
  const std::string incarnation = variable_of(worker, "DDPRUN_INCARNATION");
  const auto page = ddp::rendezvous::ask_agent(socket, AgentRequest{.ask = "page", .incarnation = incarnation});
  CHECK(page.answer.local_rank == 0);
  CHECK(page.descriptors.size() == 2);
  kill(worker, SIGUSR1);
  CHECK(job.wait().code == 0);
}

TEST_CASE("ps: knows --json and --watch, and nothing else", "[apps][integration]") {
  const Result wrong = run(ddprun_raw({"ps", "--all"}));
  CHECK(wrong.code == 2);
  CHECK_THAT(wrong.err, Contains("ps: there is no option --all (ddprun ps [JOB] [--json] [--watch 1s])"));
}
