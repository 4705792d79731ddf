// SPDX-License-Identifier: BSD-3-Clause
#include "launcher/output/event_log.hpp"

#include <catch2/catch.hpp>
#include <csignal>
#include <nlohmann/json.hpp>
#include <vector>

#include "rendezvous/wire/json_text.hpp"

using namespace ddp::launcher;
using ddp::rendezvous::Assignment;
using ddp::rendezvous::JsonObject;
using ddp::rendezvous::WorkerFailure;
using nlohmann::json;

namespace {

struct Records {
  std::vector<json> all;
  EventLog log{{"job", "trainer", "n1", "c10d", "train.py"},
               [this](const std::string& line) { all.push_back(json::parse(line)); }};

  const json& newest() const { return all.back(); }
  // Parses the metadata inside the metadata, which is a string.
  json inner() const { return json::parse(newest().at("metadata").at("metadata").get<std::string>()); }
};

// Node 1 of 2, ranks 8 to 15 of 16, all trainers, restarted once.
Assignment second_node() {
  Assignment assignment;
  assignment.node_rank = 1;
  assignment.node_count = 2;
  assignment.base_rank = assignment.base_role_rank = 8;
  assignment.world_size = assignment.role_world_size = 16;
  assignment.restart_count = 1;
  return assignment;
}

}  // namespace

TEST_CASE("event log: a worker's record has torchrun's names and shape", "[launcher][unit]") {
  Records records;
  records.log.round(second_node());
  records.log.worker_started(2, 1234);
  json record = records.newest();
  CHECK(record.at("timestamp").get<std::int64_t>() > 0);
  record.erase("timestamp");
  record.at("metadata").erase("metadata");
  CHECK(record == json::parse(R"({"name": "torchelastic.worker.status.START", "source": "WORKER", "metadata": {
      "run_id": "job", "global_rank": 10, "group_rank": 1, "worker_id": "1234", "role": "trainer", "hostname": "n1",
      "state": "START", "total_run_time": 0, "rdzv_backend": "c10d", "raw_error": null, "agent_restarts": 1,
      "duration_ms": null}})"));
  CHECK(records.inner() == json::parse(R"({"group_world_size": 2, "entry_point": "train.py", "local_rank": [2],
      "role_rank": [10], "role_world_size": [16], "exit_code": [null], "worker_pid": [1234]})"));
}

TEST_CASE("event log: workers succeed, fail, or are terminated", "[launcher][unit]") {
  Records records;
  records.log.round(second_node());
  records.log.worker_ended(0, 1, nullptr);
  CHECK(records.newest().at("metadata").at("state") == "SUCCEEDED");
  CHECK(records.inner().at("exit_code") == json{0});

  WorkerFailure failure;
  failure.status.signal = SIGSEGV;
  failure.message = "no \"data\"";
  records.log.worker_ended(1, 2, &failure);
  CHECK(records.newest().at("metadata").at("state") == "FAILED");
  CHECK(json::parse(records.newest().at("metadata").at("raw_error").get<std::string>()).at("message") ==
        failure.message);
  CHECK(records.inner().at("exit_code") == json{-SIGSEGV});

  failure.stopped_by_ddprun = true;
  records.log.worker_ended(1, 2, &failure);
  CHECK(records.newest().at("name") == "torchelastic.worker.status.TERMINATED");
}

TEST_CASE("event log: the agent's records say how long the rendezvous took and how it ended", "[launcher][unit]") {
  Records records;
  records.log.round(second_node());
  CHECK(records.newest().at("source") == "AGENT");
  CHECK(records.newest().at("name") == "torchelastic.worker.status.RENDEZVOUS");
  CHECK(records.newest().at("metadata").at("duration_ms").get<double>() >= 0);
  CHECK(records.newest().at("metadata").at("worker_id").is_null());
  records.log.agent_ended("");
  CHECK(records.newest().at("metadata").at("state") == "SUCCEEDED");
  records.log.agent_ended("rank 3 failed");
  CHECK(records.newest().at("metadata").at("state") == "FAILED");
  CHECK(records.newest().at("metadata").at("raw_error") == "rank 3 failed");
}

TEST_CASE("event log: a node that was in no round has nulls", "[launcher][unit]") {
  Records records;
  records.log.agent_ended("no coordinator");
  CHECK(records.newest().at("metadata").at("group_rank").is_null());
  CHECK(records.inner().at("group_world_size").is_null());
}

TEST_CASE("json text: whatever a string holds, the line is JSON", "[launcher][unit]") {
  JsonObject object;
  object.text("a\"b", "line\n\xff\x01 \u00e9").number("n", -5).number("none", std::nullopt).json("list", "[1]");
  CHECK(object.str() ==
        "{\"a\\\"b\": \"line\\n\xef\xbf\xbd\\u0001 \u00e9\", \"n\": -5, \"none\": null, \"list\": [1]}");
}
