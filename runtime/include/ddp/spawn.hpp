// SPDX-License-Identifier: BSD-3-Clause
/// @file
/// Spawn: a program starts the ranks of a job itself, on this machine. Each is a copy of it that
/// runs one function.
#pragma once

#include <cstdint>
#include <cstring>
#include <exception>
#include <iostream>
#include <memory>
#include <string>
#include <type_traits>
#include <vector>

#include "ddp/ddp.h"
#include "ddp/error.hpp"

namespace ddp {

/// Failure of a process that spawn() started. what() names its rank and the cause: the text of the
/// exception that its function threw, the signal that killed it, or its exit code. status() is that
/// of the ddp::Error it threw, else Status::System. Source:
/// torch.multiprocessing.ProcessRaisedException and ProcessExitedException.
class SpawnError : public Error {
 public:
  /// Makes the error that ddp_spawn_join() describes.
  SpawnError(Status status, const std::string& message, const ddp_spawn_failure& failure)
      : Error(status, message), failure_(failure) {}
  /// Returns the rank that failed first by itself.
  int rank() const noexcept { return failure_.rank; }
  /// Returns its exit code: 1 after an exception; -1 if it was killed.
  int exit_code() const noexcept { return failure_.exit_code; }
  /// Returns the signal that killed it, such as SIGSEGV; 0 if none did.
  int signal() const noexcept { return failure_.signal; }

 private:
  ddp_spawn_failure failure_;
};

/// How spawn() starts and ends its processes.
struct SpawnOptions {
  /// Whether spawn() waits until all have ended; if false it returns at once, and
  /// SpawnContext::join() waits.
  bool join = true;
  /// Whether the processes are stopped when the SpawnContext ends; if false it waits for them then.
  bool daemon = false;
  /// Time from SIGTERM to SIGKILL, for processes that are stopped because another failed.
  Milliseconds grace = Milliseconds(30'000);
};

/// The processes of one spawn(). It can be moved but not copied. One thread at a time.
class SpawnContext {
 public:
  /// Takes ownership of `nprocs` processes of ddp.h.
  SpawnContext(ddp_spawned* spawned, int nprocs) : spawned_(spawned), nprocs_(nprocs) {}

  /// Waits until all have ended. When one fails, the others' collectives fail and name it, and they are stopped; then
  /// this throws SpawnError.
  void join() {
    ddp_spawn_failure failure = {-1, -1, 0};
    check(ddp_spawn_join(spawned_.get(), &failure), failure);
  }
  /// Waits as join() does, for at most `timeout`. Returns false if some still run.
  bool join(Milliseconds timeout) {
    ddp_spawn_failure failure = {-1, -1, 0};
    std::int32_t ended = 0;
    check(ddp_spawn_join_for(spawned_.get(), timeout.count(), &ended, &failure), failure);
    return ended != 0;
  }
  /// Returns the process ids, in the order of ranks.
  std::vector<int> pids() const {
    std::vector<int> all;
    for (int rank = 0; rank < nprocs_; ++rank) all.push_back(static_cast<int>(ddp_spawn_pid(spawned_.get(), rank)));
    return all;
  }

 private:
  struct Deleter {
    void operator()(ddp_spawned* spawned) const { ddp_spawn_destroy(spawned); }
  };
  static void check(ddp_status status, const ddp_spawn_failure& failure) {
    if (status != DDP_OK && failure.rank >= 0) throw SpawnError(static_cast<Status>(status), ddp_error_last(), failure);
    detail::check(status);
  }

  std::unique_ptr<ddp_spawned, Deleter> spawned_;
  int nprocs_;
};

namespace detail {

// Runs in the child. No exception leaves it: the reason goes to the parent.
template <typename Function>
ddp_status run_spawned(std::int32_t rank, void* function, char* why, std::size_t why_size) noexcept {
  const auto say = [&](const char* text) { std::strncpy(why, text, why_size - 1); };
  ddp_status status = DDP_OK;
  try {
    (*static_cast<Function*>(function))(static_cast<int>(rank));
  } catch (const Error& e) {
    status = static_cast<ddp_status>(e.status());
    say(e.what());
  } catch (const std::exception& e) {
    status = DDP_SYSTEM;
    say(e.what());
  } catch (...) {
    status = DDP_SYSTEM;
    say("it threw something that is no std::exception");
  }
  std::cout.flush();
  return status;
}

}  // namespace detail

/// Runs function(rank) in nprocs processes on this machine, as torch.multiprocessing.spawn does.
/// They are the ranks of a job of their own, in which init_process_group() finds the others.
/// Returns once all have ended, unless options say not to join.
///
/// If the program has set MASTER_ADDR and MASTER_PORT itself, before or in the function, its ranks
/// meet there, and rank 0 hosts the store. So spawns of several nodes form one job: give
/// init_process_group() the rank and the world's size, as in PyTorch.
///
/// Each process is a copy of this one (fork), so the function may be a lambda that refers to
/// variables around it; it finds their values of this moment. Its changes stay in its process;
/// results come back through files, the store or a collective. It shares this process's output, and
/// its stdin is empty.
///
/// Call it before the program starts a thread, joins a job or uses CUDA, none of which works in a
/// copy; otherwise it throws Error, which names the obstacle. Throws SpawnError when a process
/// fails. A spawned process may spawn others. All are killed if this process dies, but not the
/// processes that they started themselves.
template <typename Function>
SpawnContext spawn(Function&& function, int nprocs = 1, const SpawnOptions& options = {}) {
  static_assert(std::is_invocable_v<Function&, int>, "what is spawned is called with its rank, an int");
  auto call = [&function](int rank) { function(rank); };
  std::cout.flush();  // or each copy would write it too
  const std::int64_t grace_ms =
      options.grace.count() != 0 ? options.grace.count() : 1;  // 0 would be the default of ddp.h
  const ddp_spawn_options how = {sizeof(ddp_spawn_options), options.daemon ? 1 : 0, grace_ms};
  ddp_spawned* spawned = nullptr;
  detail::check(ddp_spawn(&detail::run_spawned<decltype(call)>, &call, nprocs, &how, &spawned));
  SpawnContext started(spawned, nprocs);
  if (options.join) started.join();
  return started;
}

}  // namespace ddp
