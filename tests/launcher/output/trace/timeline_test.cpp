// SPDX-License-Identifier: BSD-3-Clause
#include "launcher/output/trace/timeline.hpp"

#include <catch2/catch.hpp>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "launcher/diagnosis/call_memory.hpp"
#include "tests/launcher/output/trace/worker_memory.hpp"

using namespace ddp::launcher;
using ddp::testing::WorkerMemory;
using nlohmann::json;

namespace {

struct Written {
  explicit Written(bool coordinates = true)
      : timeline({.path = "t",
                  .job = "night",
                  .program = "train.py",
                  .host = "a",
                  .incarnation = "1",
                  .coordinates = coordinates},
                 [this](const std::string& line) {
                   REQUIRE(line.substr(line.size() - 3) == "},\n");
                   events.push_back(json::parse(line.substr(0, line.size() - 2)));
                 }) {}

  // Returns the events of this phase, such as "B".
  std::vector<json> of(const std::string& phase) const {
    std::vector<json> found;
    for (const json& event : events) {
      if (event["ph"] == phase) found.push_back(event);
    }
    return found;
  }
  void begin_round(std::int64_t at, int restarts = 0) {
    timeline.begin_round(at, restarts + 1, "epoch",
                         {.node_rank = 1,
                          .node_count = 2,
                          .base_rank = 2,
                          .world_size = 4,
                          .base_role_rank = 0,
                          .role_world_size = 4,
                          .restart_count = restarts,
                          .max_restarts = 3,
                          .master_addr = "",
                          .master_port = 0});
  }

  std::vector<json> events;
  Timeline timeline;
};

}  // namespace

TEST_CASE("timeline: rounds and processes are slices, failures and notes are instants", "[launcher][unit]") {
  Written written;
  written.timeline.use_clock(500, ClockOffset::Estimate{});
  written.begin_round(1000, 1);
  written.timeline.worker_started(2000, 2, 4711);
  written.timeline.worker_ended(5000, 2, "exited with code 7", true);
  written.timeline.note(6000, "the round is stopped: rank 2 exited with code 7");
  written.timeline.end_round(7000);
  const auto begun = written.of("B");
  REQUIRE(begun.size() == 2);
  CHECK(begun[0]["name"] == "round 2 (restart 1)");
  CHECK(begun[0]["args"]["world_size"] == 4);
  CHECK(begun[0]["pid"] == kNodeTracks + 1);
  CHECK(begun[1]["name"] == "process 4711");
  CHECK(begun[1]["ts"] == 2.0);
  CHECK(written.of("E").size() == 2);
  std::string instants;
  for (const json& instant : written.of("i")) instants += instant["name"].get<std::string>() + ";";
  CHECK(instants == "the trace begins;failure: exited with code 7;the round is stopped: rank 2 exited with code 7;");
}

TEST_CASE("timeline: another node's times are moved to the coordinator's clock, and its track says how well",
          "[launcher][unit]") {
  Written written(false);
  written.timeline.use_clock(0, ClockOffset::Estimate{.ahead_ns = 1'000'000, .error_ns = 30'500});
  written.begin_round(2'000);
  CHECK(written.of("B").at(0)["ts"] == 1002.0);
  std::string labels;
  for (const json& label : written.of("M")) labels += label["args"].dump();
  CHECK_THAT(labels, Catch::Contains("an estimate that is at most 30.5 us wrong"));
  Written unknown(false);
  unknown.timeline.use_clock(0, std::nullopt);
  unknown.begin_round(2'000);
  labels.clear();
  for (const json& label : unknown.of("M")) labels += label["args"].dump();
  CHECK_THAT(labels, Catch::Contains("nothing to do with the timeline's"));
}

TEST_CASE("timeline: collectives of a group are slices of one track, and never overlap when the estimate changes",
          "[launcher][unit]") {
  Written written(false);
  const CallMemory memory;
  auto reader = std::make_shared<OperationReader>(memory.descriptor());
  WorkerMemory worker(memory.descriptor());
  written.timeline.use_clock(0, ClockOffset::Estimate{.ahead_ns = 10'000, .error_ns = 1});
  written.begin_round(0);
  written.timeline.worker_started(0, 2, 4711);
  written.timeline.add_reader(0, 2, reader);
  worker.join(0, "world");
  worker.start(0, 1, 1'000);
  worker.end(0, 1, 3'000);
  written.timeline.read_operations(false);
  written.timeline.use_clock(0, ClockOffset::Estimate{.ahead_ns = 8'500, .error_ns = 1});
  worker.start(0, 2, 3'000);
  worker.end(0, 2, 6'000);
  worker.start(0, 3, 7'000);
  written.timeline.read_operations(false);
  written.timeline.worker_ended(9'000, 2, "was killed by SIGKILL", true);
  const auto slices = written.of("X");
  REQUIRE(slices.size() == 3);
  CHECK(slices[0]["name"] == "all_reduce");
  CHECK(slices[0]["ts"] == 11.0);
  CHECK(slices[0]["dur"] == 2.0);
  CHECK(slices[0]["args"]["sequence"] == 1);
  CHECK(slices[0]["args"]["bytes"] == 40);
  CHECK(slices[1]["ts"] == 13.0);  // 11.5 by the new estimate, but the one before ended later
  CHECK(slices[1]["dur"] == 1.5);
  CHECK(slices[2]["args"]["state"] == "the process ended in it");
  CHECK(slices[2]["dur"] == 2.0);
}

TEST_CASE("timeline: what is open is ended, and what is missing is said", "[launcher][unit]") {
  Written written;
  const CallMemory memory;
  auto reader = std::make_shared<OperationReader>(memory.descriptor());
  WorkerMemory worker(memory.descriptor());
  written.timeline.use_clock(0, ClockOffset::Estimate{});
  written.begin_round(0);
  written.timeline.worker_started(0, 2, 4711);
  written.timeline.add_reader(0, 2, reader);
  worker.join(0, "world");
  worker.start(0, 1, 1'000);
  worker.end(0, 1, 3'000);
  ++worker.header().groups_left_out;
  written.timeline.read_operations(true);
  CHECK(
      written.timeline.end(9'000) ==
      "1 collectives are left out, since the file has 1 GiB; 1 groups are left out, since their process had too many");
  CHECK(written.of("B").size() == written.of("E").size());
  CHECK(written.of("X").empty());
}
