// SPDX-License-Identifier: BSD-3-Clause
#include <catch2/catch.hpp>
#include <chrono>
#include <csignal>

#include "runtime/spawn/spawn_core.hpp"

using ddp::runtime::SpawnCore;
using ddp::runtime::SpawnReport;
using namespace std::chrono_literals;

namespace {

const SpawnCore::Time kStart{};

SpawnCore::Ending well(int rank) { return {rank, 0, 0, SpawnReport{}}; }
SpawnCore::Ending failed(int rank, ddp_status status, const char* text) {
  return {rank, 1, 0, SpawnReport{status, text}};
}
SpawnCore::Ending killed(int rank, int signal) { return {rank, -1, signal, std::nullopt}; }

std::string failure_after(const SpawnCore::Ending& ending) {
  SpawnCore core(4, 10s);
  core.ended(ending, kStart);
  core.wake(core.wake_at());
  return core.failure() ? core.failure()->text : "none";
}

}  // namespace

TEST_CASE("spawn: the end of a process is described", "[runtime][unit]") {
  CHECK(failure_after(well(1)) == "none");
  CHECK(failure_after({1, 0, 0, std::nullopt}) == "none");    // exit(0)
  CHECK(failure_after({1, -1, 0, SpawnReport{}}) == "none");  // it reported success; its exit code is unknown
  CHECK(failure_after({1, 3, 0, std::nullopt}) == "rank 1 of 4 exited with code 3");
  CHECK(failure_after(failed(1, DDP_SYSTEM, "no data")) == "rank 1 of 4 failed: no data");
  CHECK(failure_after(killed(1, SIGSEGV)) == "rank 1 of 4 was killed by SIGSEGV (Segmentation fault)");
  CHECK(failure_after(killed(1, 64)) == "rank 1 of 4 was killed by signal 64");
  CHECK(failure_after({1, -1, 0, std::nullopt}) ==
        "rank 1 of 4 ended in an unknown way: other code of this process has reaped it");
}

TEST_CASE("spawn: if all succeed, no process is signalled", "[runtime][unit]") {
  SpawnCore core(2, 10s);
  CHECK(core.ended(well(1), kStart).signal == 0);
  CHECK_FALSE(core.over());
  CHECK(core.ended(well(0), kStart).signal == 0);
  CHECK(core.over());
  CHECK_FALSE(core.failure());
  CHECK(core.wake_at() == SpawnCore::Time::max());
}

TEST_CASE("spawn: after a failure the other processes learn of it and are stopped, and killed after the grace",
          "[runtime][unit]") {
  SpawnCore core(3, 10s);
  const SpawnCore::Actions first = core.ended(failed(2, DDP_CORRUPT, "x"), kStart);
  CHECK(first.signal == SIGTERM);
  REQUIRE(first.announce);
  CHECK(first.announce->rank == 2);
  CHECK(core.wake_at() == kStart + 10s);
  CHECK(core.wake(kStart + 9s).signal == 0);
  CHECK(core.ended(killed(0, SIGTERM), kStart + 9s).signal == 0);
  CHECK(core.wake(kStart + 10s).signal == SIGKILL);
  CHECK(core.wake(kStart + 11s).signal == 0);
  core.ended(killed(1, SIGKILL), kStart + 11s);
  CHECK(core.over());
  CHECK(core.failure()->rank == 2);
  CHECK(core.failure()->status == DDP_CORRUPT);
}

TEST_CASE("spawn: a lost peer is not the cause if another failure comes in time", "[runtime][unit]") {
  SpawnCore core(3, 10s);
  CHECK(core.ended(failed(0, DDP_PEER_LOST, "rank 1 is gone"), kStart).signal == 0);
  CHECK(core.ended(failed(2, DDP_ABORTED, "an earlier error"), kStart + 1ms).signal == 0);
  core.ended(killed(1, SIGKILL), kStart + 5ms);
  CHECK(core.over());
  CHECK(core.failure()->text == "rank 1 of 3 was killed by SIGKILL (Killed)");
}

TEST_CASE("spawn: a lost peer is the cause if no other failure comes", "[runtime][unit]") {
  SpawnCore core(3, 10s);
  core.ended(failed(0, DDP_PEER_LOST, "rank 1 is gone"), kStart);
  CHECK(core.wake_at() == kStart + SpawnCore::kCauseWindow);
  const SpawnCore::Actions actions = core.wake(core.wake_at());
  CHECK(actions.signal == SIGTERM);
  CHECK(actions.announce->rank == 0);
  core.ended(failed(1, DDP_SYSTEM, "stopped"), kStart + 2s);
  CHECK(core.failure()->rank == 0);
}

TEST_CASE("spawn: processes that are stopped because they are not wanted any more are no failure", "[runtime][unit]") {
  SpawnCore core(2, 10s);
  CHECK(core.stop(kStart).signal == SIGTERM);
  CHECK(core.stop(kStart).signal == 0);
  core.ended(killed(0, SIGTERM), kStart);
  CHECK(core.wake(kStart + 10s).signal == SIGKILL);
  core.ended(killed(1, SIGKILL), kStart + 10s);
  CHECK(core.over());
  CHECK_FALSE(core.failure());
}
