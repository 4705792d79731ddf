// SPDX-License-Identifier: BSD-3-Clause
#include "runtime/diagnosis/flight_recorder.hpp"

#include <unistd.h>

#include <atomic>
#include <catch2/catch.hpp>
#include <chrono>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <string>
#include <thread>

#include "tests/support/process.hpp"

using ddp::runtime::FlightRecorder;
using ddp::runtime::Operation;
using ddp::runtime::OperationKind;
using ddp::runtime::place_flight_recorder;
using ddp::runtime::save_flight_recorder;
using ddp::runtime::write_flight_recorder;
using ddp::testing::TemporaryFolder;
using nlohmann::json;
using Clock = std::chrono::steady_clock;

namespace {

json saved(const std::string& why = "asked") {
  const TemporaryFolder folder;
  save_flight_recorder(folder / "recorder.json", why);
  const auto entries = std::filesystem::directory_iterator(folder.path());
  CHECK(std::distance(begin(entries), end(entries)) == 1);  // no temporary file is left
  return json::parse(ddp::testing::read_file(folder / "recorder.json"));
}

Operation all_reduce(std::size_t count) {
  return {.kind = OperationKind::AllReduce,
          .count = count,
          .dtype = DDP_FLOAT32,
          .reduce_op = ddp::collectives::ReduceOp::Max};
}

}  // namespace

TEST_CASE("flight recorder: each operation has its kind, its progress and its times", "[runtime][unit]") {
  const std::int64_t before_us =
      std::chrono::duration_cast<std::chrono::microseconds>(std::chrono::system_clock::now().time_since_epoch())
          .count();
  FlightRecorder recorder("world \"x\"", {2, 4}, 256);
  const auto now = Clock::now();
  recorder.issued(1, all_reduce(1000), now);
  recorder.started(1, now + std::chrono::microseconds(5));
  recorder.ended(1, now + std::chrono::microseconds(12));
  recorder.issued(2, {.kind = OperationKind::Broadcast, .count = 3, .dtype = DDP_INT64, .root = 1}, now);
  recorder.started(2, now);
  recorder.failed(2, now);
  recorder.issued(3, Operation(), now);
  recorder.started(3, now);
  const auto message = recorder.issued(
      1, {.kind = OperationKind::Receive, .count = 2, .dtype = DDP_UINT8, .root = DDP_ANY_RANK, .tag = 7}, now);
  CHECK(message == 4);
  const json file = saved("all_reduce #1\nsaid \"no\"");
  CHECK(file["why"] == "all_reduce #1\nsaid \"no\"");
  CHECK(file["pid"] == getpid());
  REQUIRE(file["groups"].size() == 1);
  const json& group = file["groups"][0];
  CHECK(group["name"] == "world \"x\"");
  CHECK(group["rank"] == 2);
  CHECK(group["size"] == 4);
  REQUIRE(group["operations"].size() == 4);
  const json& first = group["operations"][0];
  CHECK(first["sequence"] == 1);
  CHECK(first["operation"] == "all_reduce");
  CHECK(first["count"] == 1000);
  CHECK(first["dtype"] == "float32");
  CHECK(first["bytes"] == 4000);
  CHECK(first["reduction"] == "max");
  CHECK(first["root"].is_null());
  CHECK(first["state"] == "ended");
  const std::int64_t issued = first["issued_us"];
  CHECK(issued >= before_us);
  CHECK(issued < before_us + 60'000'000);
  CHECK(first["started_us"].get<std::int64_t>() - issued <= 6);
  CHECK(first["started_us"].get<std::int64_t>() - issued >= 5);
  CHECK(first["ended_us"].get<std::int64_t>() - issued >= 12);
  const json& second = group["operations"][1];
  CHECK(second["root"] == 1);
  CHECK(second["reduction"].is_null());
  CHECK(second["state"] == "failed");
  CHECK(group["operations"][2]["state"] == "started");
  CHECK(group["operations"][2]["ended_us"].is_null());
  const json& received = group["operations"][3];
  CHECK(received["operation"] == "recv");
  CHECK(received["sequence"] == 1);
  CHECK(received["peer"] == -1);
  CHECK(received["tag"] == 7);
  CHECK(received["root"].is_null());
  CHECK(received["state"] == "issued");
  CHECK(received["started_us"].is_null());
  CHECK(first["peer"].is_null());
}

TEST_CASE("flight recorder: it keeps only the last operations and forgets the others quietly", "[runtime][unit]") {
  FlightRecorder recorder("world", {0, 1}, 3);
  for (std::uint64_t sequence = 1; sequence <= 5; ++sequence) recorder.issued(sequence, Operation(), Clock::now());
  recorder.ended(2, Clock::now());  // number 5 has its place
  const json operations = saved()["groups"][0]["operations"];
  REQUIRE(operations.size() == 3);
  for (std::size_t i = 0; i < 3; ++i) {
    CHECK(operations[i]["sequence"] == i + 3);
    CHECK(operations[i]["state"] == "issued");
  }
}

TEST_CASE("flight recorder: past groups leave no trace in the file", "[runtime][unit]") {
  {
    FlightRecorder gone("gone", {0, 1}, 3);
    gone.issued(1, Operation(), Clock::now());
  }
  FlightRecorder there("there", {0, 1}, 3);
  const FlightRecorder another("another", {1, 2}, 5);
  const FlightRecorder switched_off("off", {0, 1}, 0);
  const json groups = saved()["groups"];
  REQUIRE(groups.size() == 2);
  CHECK(groups[0]["name"].get<std::string>() + groups[1]["name"].get<std::string>() == "anotherthere");
  CHECK(groups[0]["operations"].empty());
  CHECK(groups[1]["operations"].empty());
}

TEST_CASE("flight recorder: a file written while operations run is whole", "[runtime][unit]") {
  std::atomic<bool> stop{false};
  std::thread thread([&] {
    FlightRecorder recorder("busy", {0, 1}, 16);
    for (std::uint64_t sequence = 1; !stop; ++sequence) {
      recorder.issued(sequence, all_reduce(sequence), Clock::now());
      recorder.started(sequence, Clock::now());
      recorder.ended(sequence, Clock::now());
    }
  });
  bool all_right = true;
  for (int i = 0; i < 100; ++i) {
    const json file = saved();
    if (file["groups"].empty()) continue;
    std::uint64_t last = 0;
    for (const json& operation : file["groups"][0]["operations"]) {
      all_right = all_right && operation["count"] == operation["sequence"] && operation["sequence"] > last;
      last = operation["sequence"];
    }
  }
  stop = true;
  thread.join();
  CHECK(all_right);
}

TEST_CASE("flight recorder: it is written where it was placed, or nowhere", "[runtime][unit]") {
  const TemporaryFolder folder;
  CHECK(!write_flight_recorder("nowhere"));
  place_flight_recorder(folder / "placed.json", 3, 8);
  CHECK(write_flight_recorder("an error"));
  const json file = json::parse(ddp::testing::read_file(folder / "placed.json"));
  CHECK(file["rank"] == 3);
  CHECK(file["world_size"] == 8);
  CHECK(file["why"] == "an error");
  place_flight_recorder("", 0, 1);
  CHECK(!write_flight_recorder("nowhere again"));
  CHECK_THROWS_WITH(save_flight_recorder(folder / "no such folder/file", ""),
                    Catch::Contains("flight recorder: cannot write ") && Catch::Contains("No such file"));
}
