// SPDX-License-Identifier: BSD-3-Clause
// Exported functions on processes that a program starts itself.
#include <array>
#include <chrono>
#include <cstdio>
#include <memory>
#include <string>

#include "ddp/ddp.h"
#include "rendezvous/base/error.hpp"
#include "runtime/api/arguments.hpp"
#include "runtime/api/c_guard.hpp"
#include "runtime/api/live_sessions.hpp"
#include "runtime/spawn/spawned_processes.hpp"

namespace {

using ddp::rendezvous::Error;
using ddp::rendezvous::ErrorCode;
using ddp::runtime::guard;
using ddp::runtime::not_null;
using ddp::runtime::SpawnedProcesses;
using ddp::runtime::SpawnFailure;
using ddp::runtime::SpawnReport;
using Clock = std::chrono::steady_clock;
using Milliseconds = std::chrono::milliseconds;

constexpr int kMostProcesses = 1 << 15;
constexpr std::size_t kLongestReason = 4000;

SpawnedProcesses* of(ddp_spawned* handle) { return reinterpret_cast<SpawnedProcesses*>(handle); }
const SpawnedProcesses* of(const ddp_spawned* handle) { return reinterpret_cast<const SpawnedProcesses*>(handle); }

void check(int nprocs, const ddp_spawn_options& options) {
  if (nprocs < 1 || nprocs > kMostProcesses) {
    throw Error(ErrorCode::InvalidArgument, "spawn: " + std::to_string(nprocs) + " processes make no sense");
  }
  if (options.grace_ms < 0) throw Error(ErrorCode::InvalidArgument, "spawn: the grace is negative; 0 means 30 s");
  if (ddp::runtime::first_session() == nullptr) return;
  throw Error(ErrorCode::InvalidArgument,
              "spawn: this process is a rank of a job, which no copy of it can be: end its session first");
}

SpawnReport run(ddp_spawn_function function, int rank, void* context) {
  std::array<char, kLongestReason> why = {};
  const ddp_status status = function(rank, context, why.data(), why.size());
  if (status == DDP_OK) return {};
  why.back() = '\0';
  return {status, why[0] != '\0' ? why.data() : ddp_error_last()};
}

ddp_status join(ddp_spawned* handle, Clock::time_point until, int32_t* ended, ddp_spawn_failure* failure) {
  const SpawnFailure* why = nullptr;
  const ddp_status status = guard([&] {
    SpawnedProcesses& processes = not_null(of(handle), "what was spawned");
    const bool none_left = processes.join(until);
    if (ended != nullptr) *ended = none_left ? 1 : 0;
    if (none_left && processes.failure()) why = &*processes.failure();
  });
  if (status != DDP_OK || why == nullptr) return status;
  if (failure != nullptr) *failure = {why->rank, why->exit_code, why->signal};
  return ddp_error_set(why->status, ("spawn: " + why->text).c_str());
}

}  // namespace

ddp_status ddp_spawn(ddp_spawn_function function, void* context, int32_t nprocs, const ddp_spawn_options* given,
                     ddp_spawned** out) {
  return guard([&] {
    not_null(out, "what was spawned, to fill in") = nullptr;
    not_null(function, "the function to spawn");
    const ddp_spawn_options options = DDP_OPTIONS(ddp_spawn_options, grace_ms, given);
    check(nprocs, options);
    SpawnedProcesses::Options how;
    how.daemon = options.daemon != 0;
    if (options.grace_ms > 0) how.grace = Milliseconds(options.grace_ms);
    std::fflush(nullptr);  // otherwise each copy would write the same text again
    auto processes =
        std::make_unique<SpawnedProcesses>(nprocs, how, [&](int rank) { return run(function, rank, context); });
    ddp::runtime::enlist(processes.get());
    *out = reinterpret_cast<ddp_spawned*>(processes.release());
  });
}

ddp_status ddp_spawn_join(ddp_spawned* spawned, ddp_spawn_failure* failure) {
  return join(spawned, Clock::time_point::max(), nullptr, failure);
}

ddp_status ddp_spawn_join_for(ddp_spawned* spawned, int64_t timeout_ms, int32_t* ended, ddp_spawn_failure* failure) {
  const auto wait = std::clamp<Milliseconds>(Milliseconds(timeout_ms), Milliseconds(0), std::chrono::hours(24 * 365));
  return join(spawned, Clock::now() + wait, ended, failure);
}

int64_t ddp_spawn_pid(const ddp_spawned* spawned, int32_t rank) {
  if (spawned == nullptr || rank < 0 || rank >= of(spawned)->size()) return -1;
  return of(spawned)->pid(rank);
}

void ddp_spawn_destroy(ddp_spawned* spawned) { ddp::runtime::destroy(of(spawned)); }
