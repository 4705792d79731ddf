// SPDX-License-Identifier: BSD-3-Clause
// What ranks learn when they disagree. diagnosis_scenarios.cpp is what each rank does.
#include <algorithm>
#include <catch2/catch.hpp>
#include <csignal>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "rendezvous/store/server.hpp"
#include "tests/runtime/job/job.hpp"
#include "tests/runtime/job/run_job.hpp"
#include "tests/support/process.hpp"

using Catch::Matchers::Contains;
using ddp::rendezvous::StoreServer;
using ddp::test::Ended;
using ddp::test::Job;
using ddp::test::no_child_left;
using ddp::test::run;
using ddp::test::Variables;
using ddp::testing::Process;
using ddp::testing::read_file;
using ddp::testing::TemporaryFolder;
using nlohmann::json;

namespace {

const Variables kDetail = {{"DDP_DEBUG", "detail"}};

// Returns what the ranks print, however they end.
std::vector<Ended> ends_of(int size, const std::string& scenario, const Variables& variables) {
  StoreServer store({"127.0.0.1"}, 0);
  std::vector<Ended> ends;
  {
    Job job(size, scenario, store.port(), true, variables);
    for (int rank = 0; rank < size; ++rank) ends.push_back(job.finish(static_cast<std::size_t>(rank)));
  }
  CHECK(no_child_left());
  return ends;
}

}  // namespace

TEST_CASE("DDP_DEBUG=detail: whatever ranks disagree on, all of them learn which rank called what",
          "[runtime][integration]") {
  const struct {
    const char* scenario;
    const char* others;  // what ranks 0 and 2 called
    const char* rank_1;
  } rows[] = {
      {"different operations", "all_reduce of 10 float32 (sum)", "barrier"},
      {"different types", "all_reduce of 10 float32 (sum)", "all_reduce of 10 int32 (sum)"},
      {"different reductions", "reduce of 10 float32 (sum) to rank 0", "reduce of 10 float32 (max) to rank 0"},
      {"different roots", "broadcast of 10 float32 from rank 0", "broadcast of 10 float32 from rank 1"},
      {"different objects", "broadcast_object from rank 0", "gather_object to rank 1"},
  };
  for (const auto& row : rows) {
    for (const int size : {2, 3}) {
      const std::string others = size == 2 ? "rank 0" : "ranks 0, 2";
      for (const std::string& output : run(size, row.scenario, kDetail)) {
        CHECK_THAT(output, Contains("call failed: 5 world: "));
        CHECK_THAT(output, Contains(": ranks disagree: " + others + " called " + row.others + "; rank 1 called " +
                                    row.rank_1 + "\n"));
      }
    }
  }
}

TEST_CASE("DDP_DEBUG=detail: a rank that does not call an operation is named at the deadline, with what it did last",
          "[runtime][integration]") {
  const int size = GENERATE(2, 4);
  const std::vector<std::string> outputs = run(size, "missing", kDetail);
  const std::string last = std::to_string(size - 1);
  for (int rank = 0; rank < size - 1; ++rank) {
    // From its own check (Timeout), or from the rank that was first (PeerLost).
    CHECK_THAT(outputs[static_cast<std::size_t>(rank)],
               (Contains("call failed: 2 world: all_reduce #2 (40 B): ") ||
                Contains("call failed: 3 world: all_reduce #2 (40 B): rank ")) &&
                   Contains("not done in 300 ms: another rank is stopped, slow, or calls something else; rank " + last +
                            " did not call all_reduce #2; its last call was barrier #1, ended ") &&
                   Contains("s ago\n"));
  }
}

TEST_CASE("DDP_DEBUG=detail: a rank that has called nothing, or has left, is named as well", "[runtime][integration]") {
  const std::vector<std::string> idle = run(3, "idle", kDetail);
  for (const std::size_t rank : {0U, 1U}) {
    CHECK_THAT(idle[rank], Contains("; rank 2 did not call barrier #1; it has called nothing in this group yet\n"));
  }
  const std::vector<std::string> left = run(3, "left", kDetail);
  for (const std::size_t rank : {0U, 1U}) {
    CHECK_THAT(left[rank], Contains("call failed: 3 world: barrier #2: "));
    CHECK_THAT(left[rank], Contains("; rank 2 did not call barrier #2; it left the group ") &&
                               Contains("s ago, its last call was barrier #1"));
  }
}

TEST_CASE("DDP_DEBUG=detail: ranks that wait in different kinds of operation learn of each other",
          "[runtime][integration]") {
  const std::vector<std::string> outputs = run(2, "different turns", kDetail);
  CHECK_THAT(outputs[0] + outputs[1],
             Contains("rank 1 did not call all_reduce #1; it has been in monitored_barrier #1 for ") ||
                 Contains("rank 0 did not call it within 300 ms"));
}

TEST_CASE("DDP_DEBUG=detail: a rank that waits for a message learns what its sender did last",
          "[runtime][integration]") {
  const std::vector<std::string> outputs = run(2, "no message", kDetail);
  CHECK_THAT(outputs[0], Contains("call failed: 2 world: recv from rank 1 (40 B, tag 0): not done in 300 ms") &&
                             Contains("; rank 1: its last call was barrier #1, ended ") &&
                             !Contains("it has been in recv"));
}

TEST_CASE("DDP_DEBUG=detail: correct calls still give the right results", "[runtime][integration]") {
  for (const char* scenario : {"async", "monitored"}) run(2, scenario, kDetail);
}

TEST_CASE("DDP_DEBUG off: an error at the deadline says how to learn more", "[runtime][integration]") {
  const std::vector<std::string> outputs = run(2, "missing", {});
  CHECK_THAT(outputs[0], Contains("or calls something else (DDP_DEBUG=detail says what the others did instead)\n"));
}

TEST_CASE("DDP_DEBUG off: a call for which Gloo ends the process is recorded with a hint", "[runtime][integration]") {
  const TemporaryFolder folder;
  const auto ends = ends_of(2, "size mismatch, unchecked",
                            {{"TEST_BACKEND", "gloo"}, {"TORCHELASTIC_ERROR_FILE", folder / "error.json"}});
  const auto aborted = std::count_if(ends.begin(), ends.end(), [](const Ended& e) { return e.signal == SIGABRT; });
  REQUIRE(aborted >= 1);
  const json record = json::parse(read_file(folder / "error.json"));
  CHECK_THAT(record["message"]["message"].get<std::string>(),
             Contains("uncaught exception gloo::EnforceNotMet") && Contains("DDP_DEBUG=detail names them"));
}

TEST_CASE("DDP_DEBUG=info: a group that is formed is logged once", "[runtime][integration]") {
  const Process::Options options = {.environment = {{"DDP_DEBUG", "info"}}};
  Process job({DDPRUN_BINARY, "--nproc-per-node", "2", COLLECTIVE_WORKER, "who"}, options);
  CHECK(job.wait().err == "libddp: the group world is formed: ranks 0, 1 over ddp\n");
  CHECK(job.left_over().empty());
}

TEST_CASE("monitored barrier: all ranks pass in its turn when all have come", "[runtime][integration]") {
  const int size = GENERATE(1, 2, 4);
  run(size, "monitored", {});
}

TEST_CASE("monitored barrier: every rank that waits learns which ranks are missing", "[runtime][integration]") {
  const std::vector<std::string> all = run(4, "monitored, all that are missing", {});
  for (const std::size_t rank : {0U, 2U}) {
    CHECK_THAT(all[rank],
               Contains("call failed: 2 world: monitored_barrier #1: ranks 1, 3 did not call it within 300 ms\n"));
    CHECK_THAT(all[rank], Contains("next failed: 4 world: barrier #2: the group was aborted by an earlier error: "));
  }
  const std::vector<std::string> first = run(4, "monitored, some missing", {});
  CHECK_THAT(first[0], Contains("call failed: 2 world: monitored_barrier #1: rank 1 did not call it within 300 ms ("));
  CHECK(first[2] == first[0]);
}

TEST_CASE("monitored barrier: a group that fails for another reason ends every wait", "[runtime][integration]") {
  const std::vector<std::string> outputs = run(3, "monitored, another failure", {});
  CHECK_THAT(outputs[0], Contains("recv failed: 2 world: recv from rank 1 (40 B, tag 0): not done in 300 ms"));
  CHECK_THAT(outputs[0], Contains("call failed: 4 world: monitored_barrier #1: the group was aborted by an earlier "));
  CHECK_THAT(outputs[2],
             Contains("call failed: 3 world: monitored_barrier #1: rank 0 gave up: world: recv from rank 1"));
}

TEST_CASE("flight recorder: an operation that fails leaves the last ones of every rank next to the error file",
          "[runtime][integration]") {
  const TemporaryFolder folder;
  run(3, "missing", {{"TORCHELASTIC_ERROR_FILE", folder / "error.json"}});
  CHECK(!std::filesystem::exists(folder / "flight_recorder_rank2.json"));  // nothing failed there
  for (const std::string rank : {"0", "1"}) {
    const json file = json::parse(read_file(folder / ("flight_recorder_rank" + rank + ".json")));
    CHECK(file["rank"] == std::stoi(rank));
    CHECK(file["world_size"] == 3);
    CHECK_THAT(file["why"].get<std::string>(), Contains("world: all_reduce #2 (40 B): not done in 300 ms"));
    const json& operations = file["groups"][0]["operations"];
    REQUIRE(operations.size() == 2);
    CHECK(operations[0]["operation"] == "barrier");
    CHECK(operations[0]["state"] == "ended");
    CHECK(operations[1]["operation"] == "all_reduce");
    CHECK(operations[1]["state"] == "failed");
    CHECK(operations[1]["ended_us"].get<std::int64_t>() - operations[1]["started_us"].get<std::int64_t>() > 200'000);
  }
}

TEST_CASE("flight recorder: it is written on request, and switched off by its size", "[runtime][integration]") {
  const TemporaryFolder folder;
  const std::vector<std::string> outputs = run(2, "dump", {{"DUMP", folder.path()}});
  CHECK_THAT(outputs[0], Contains("dump failed: 6 flight recorder: cannot write /proc/no/file: No such file"));
  const json file = json::parse(read_file(folder / "dump1.json"));
  CHECK(file["rank"] == 1);
  CHECK(file["why"] == "asked for");
  CHECK(file["groups"][0]["operations"].size() == 2);
  run(1, "dump", {{"DUMP", folder.path()}, {"DDP_FLIGHT_RECORDER_SIZE", "0"}});
  CHECK(json::parse(read_file(folder / "dump0.json"))["groups"].empty());
  const auto refused = ends_of(1, "dump", {{"DUMP", folder.path()}, {"DDP_FLIGHT_RECORDER_SIZE", "many"}});
  CHECK_THAT(refused[0].output, Contains("error: 1 DDP_FLIGHT_RECORDER_SIZE is \"many\""));
}
