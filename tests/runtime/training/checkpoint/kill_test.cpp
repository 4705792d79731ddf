// SPDX-License-Identifier: BSD-3-Clause
// Whatever a job was about to do to the disk when it was killed, what it had saved before can be loaded, and the next
// job saves on. tests/fixtures/fake_disk.c counts the calls, so that each of them is met, always the same.
// DDPRUN_CHECKPOINT_FULL=1 (scripts/stress/checkpoint_kills): more steps, more ranks, every call.
#include <algorithm>
#include <catch2/catch.hpp>
#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <string>
#include <vector>

#include "ddp/ddp.hpp"
#include "tests/runtime/job/run_job.hpp"
#include "tests/runtime/training/checkpoint/job.hpp"
#include "tests/support/process.hpp"

using namespace ddp::test;
using ddp::testing::TemporaryFolder;
namespace fs = std::filesystem;

namespace {

bool is_full() { return std::getenv("DDPRUN_CHECKPOINT_FULL") != nullptr; }

// The number of the last line "saved N"; 0 if there is none.
std::int64_t last_saved(const std::string& said) {
  const std::size_t at = said.rfind("saved ");
  return at != std::string::npos ? std::stoll(said.substr(at + 6)) : 0;
}

// What is there when the process that wrote is gone: the newest step is whole, and at least the last that was said to
// be saved. Returns it; 0: none.
std::int64_t check_after_kill(const std::string& path, std::int64_t said) {
  ddp::CheckpointFolder folder(path, {0, 0, {}, true});
  std::string skipped;
  const auto newest = folder.latest_valid([&](const std::string& why) { skipped += why + "\n"; });
  CHECK(skipped.empty());
  if (!newest) {
    CHECK(said == 0);
    return 0;
  }
  CHECK(newest->step() >= said);
  CHECK(newest->metadata("step") == std::to_string(newest->step()));
  std::vector<float> table(12 * 7);
  newest->read("table", table, {12, 7});
  for (std::size_t i = 0; i < table.size(); ++i) {
    if (table[i] != static_cast<float>(newest->step() * 1000) + static_cast<float>(i)) FAIL("element " << i);
  }
  for (const std::int64_t step : folder.steps()) folder.open(step).verify();
  return newest->step();
}

struct Kill {
  int rank;
  int call;
  std::string how;  // "die", "half"
};

struct Run {
  bool was_killed = false;
  std::int64_t saved = 0;  // as the ranks said
};

Run run_to_its_kill(int size, const std::string& scenario, const Variables& to_save, const Kill& kill) {
  const Variables disk = faulty_disk(to_save.at("FOLDER"), kill.rank, std::to_string(kill.call) + ":" + kill.how);
  const Variables variables = with(with(to_save, disk), {{"KEEP_LAST", "2"}, {"TIMEOUT_MS", "20000"}});
  ddp::rendezvous::StoreServer store({"127.0.0.1"}, 0);
  Run result;
  Job job(size, scenario, store.port(), true, variables);
  for (int rank = 0; rank < size; ++rank) {
    const Ended ended = job.finish(static_cast<std::size_t>(rank));
    INFO("rank " << rank << " said: " << ended.output);
    if (rank == kill.rank) result.was_killed = ended.signal == SIGKILL;
    if (rank != kill.rank) {  // neither hangs nor dies: it is done, or has an error to tell
      CHECK(ended.signal == 0);
    }
    CHECK(ended.output.find("wrong") == std::string::npos);
    result.saved = std::max(result.saved, last_saved(ended.output));
  }
  return result;
}

}  // namespace

TEST_CASE("checkpoint folder: killed at each call that changes the disk, the one before can be loaded",
          "[training][integration]") {
  const std::string what = GENERATE("die", "half");
  const int least = 200;  // kills, of the two kinds together
  // Steps of about 15 calls, from the first on, of which two are kept; the next job goes on in what this one left.
  int kills = 0;
  for (int call = 1; kills < least / 2 || is_full(); ++call) {
    INFO(what << " at call " << call);
    const TemporaryFolder place;
    const Run run = run_to_its_kill(1, "save alone", steps(place.path(), 1, is_full() ? 12 : 7), {0, call, what});
    const std::int64_t newest = check_after_kill(place.path(), run.saved);
    if (!run.was_killed) break;
    ++kills;

    ddp::CheckpointFolder next(place.path(), {2});
    const float one = 1;
    next.save(newest + 1, {{"w", &one, ddp::DType::Float32, {}}}, {});
    const std::size_t left =
        static_cast<std::size_t>(std::distance(fs::directory_iterator(place.path()), fs::directory_iterator()));
    REQUIRE(left == std::min<std::size_t>(2, static_cast<std::size_t>(newest + 1)));  // and nothing half done
  }
  CHECK(kills >= 90);
  CHECK(no_child_left());
}

TEST_CASE("checkpoint folder: killed while it replaces a step, that step can be loaded, the old one or the new one",
          "[training][integration]") {
  int kills = 0;
  for (int call = 1;; ++call) {
    INFO("call " << call);
    const TemporaryFolder place;
    run(1, "save alone", steps(place.path(), 1, 1));
    const Run run = run_to_its_kill(1, "save alone", steps(place.path(), 1, 1), {0, call, "die"});
    REQUIRE(check_after_kill(place.path(), 1) == 1);
    if (!run.was_killed) break;
    ++kills;
    ddp::CheckpointFolder next(place.path(), {1});
    const float one = 1;
    next.save(2, {{"w", &one, ddp::DType::Float32, {}}}, {});
    REQUIRE(std::distance(fs::directory_iterator(place.path()), fs::directory_iterator()) == 1);
  }
  CHECK(kills > 15);
}

TEST_CASE("checkpoint folder: whichever of its ranks is killed at whatever call, the one before can be loaded",
          "[training][integration]") {
  const int size = is_full() ? 3 : 2;
  for (const char* scenario : {"save", "save async"}) {
    for (int killed = 0; killed < size; ++killed) {
      int kills = 0;
      for (int call = 1;; call += is_full() ? 1 : 5) {
        INFO(scenario << ", rank " << killed << " at call " << call);
        const TemporaryFolder place;
        run(size, "save", steps(place.path(), 1, 1));
        const Kill kill = {killed, call, call % 2 != 0 ? "die" : "half"};
        const Run run = run_to_its_kill(size, scenario, steps(place.path(), 2, 3), kill);
        // What is said to be saved in the background may not be; it was in the foreground.
        const std::int64_t said = std::string(scenario) == "save" ? std::max<std::int64_t>(run.saved, 1) : 1;
        check_after_kill(place.path(), said);
        if (!run.was_killed) break;
        ++kills;
      }
      INFO(scenario << ", rank " << killed);
      CHECK(kills >= 2);
    }
  }
  CHECK(no_child_left());
}
