// SPDX-License-Identifier: BSD-3-Clause
// ddprun's own output: its log as JSON, and the event log.
#include <catch2/catch.hpp>
#include <nlohmann/json.hpp>
#include <sstream>

#include "tests/integration/ddprun.hpp"

using namespace ddp::testing;
using nlohmann::json;

namespace {

std::vector<json> json_lines(const std::string& text) {
  std::vector<json> lines;
  std::istringstream stream(text);
  for (std::string line; std::getline(stream, line);) lines.push_back(json::parse(line));
  return lines;
}

// Returns the states, such as "WORKER 1 FAILED", in the order of the file.
std::vector<std::string> states(const std::string& file) {
  std::vector<std::string> states;
  for (const json& record : json_lines(read_file(file))) {
    const json& metadata = record.at("metadata");
    std::string state = record.at("source").get<std::string>() + " ";
    if (!metadata.at("global_rank").is_null()) state += metadata.at("global_rank").dump() + " ";
    states.push_back(state + metadata.at("state").get<std::string>());
  }
  return states;
}

}  // namespace

TEST_CASE("own log: --log-format json is one object a line, the failure report one of them",
          "[launcher][integration]") {
  const Result result = run(ddprun({"--log-format=json", "--log-level=info", "--nproc_per_node=2", "--max-restarts=1"},
                                   {"1:exit=3", "0:catch=TERM", "0:wait"}));
  CHECK(result.code == 3);
  const std::vector<json> lines = json_lines(result.err);
  std::map<std::string, int> events;
  for (const json& line : lines) {
    ++events[line.at("event").get<std::string>()];
    CHECK(line.at("node").is_string());
    CHECK(line.at("time").get<std::string>().size() == 24);
  }
  CHECK(events["workers_started"] == 2);
  CHECK(events["worker_exited"] == 4);
  const json& last = lines.back();
  CHECK((last.at("event") == "job_failed" && last.at("level") == "error"));
  CHECK((last.at("round") == 2 && last.at("rank") == 1));
  CHECK(last.at("reason").get<std::string>().find("exited with code 3\n  first failure: rank 1 ") != std::string::npos);
}

TEST_CASE("own log: --log-format json prints nothing for a job that succeeds", "[launcher][integration]") {
  CHECK(run(ddprun({"--log-format=json"}, {"say=out"})).err.empty());
}

TEST_CASE("own log: an unknown format is a usage error", "[launcher][integration]") {
  const Result result = run(ddprun({"--log-format=xml"}, {}));
  CHECK((result.code == 2 && count(result.err, "use text or json") == 1));
}

TEST_CASE("event log: records the end of each worker in each round, and of the node", "[launcher][integration]") {
  const TemporaryFolder folder;
  const Result result = run(ddprun({"--event-log-file", folder / "events", "--nproc_per_node=2", "--max-restarts=1"},
                                   {"1/0:exit=3", "0/0:wait"}));
  CHECK(result.code == 0);
  CHECK(states(folder / "events") ==
        std::vector<std::string>{"AGENT RENDEZVOUS", "WORKER 0 START", "WORKER 1 START", "WORKER 0 TERMINATED",
                                 "WORKER 1 FAILED", "AGENT RENDEZVOUS", "WORKER 0 START", "WORKER 1 START",
                                 "WORKER 0 SUCCEEDED", "WORKER 1 SUCCEEDED", "AGENT SUCCEEDED"});
  run(ddprun({"--event-log-file", folder / "events"}, {"exit=1"}));
  CHECK(states(folder / "events").size() == 15);  // the second run appends
  CHECK(states(folder / "events").back() == "AGENT FAILED");
}

TEST_CASE("event log: a file that cannot be opened is reported before anything starts", "[launcher][integration]") {
  const Result result = run(ddprun({"--event-log-file=/nowhere/events"}, {"say=out"}));
  CHECK((result.code == 1 && result.out.empty()));
  CHECK(count(result.err, "cannot open /nowhere/events (--event-log-file): No such file") == 1);
}
