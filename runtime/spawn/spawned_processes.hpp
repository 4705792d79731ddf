// SPDX-License-Identifier: BSD-3-Clause
// The processes of one ddp::spawn: copies of this one, each with the environment of a rank, and the store where they
// meet. SpawnCore decides about them; a thread of this object's watches them and carries it out.
//
// All are forked before anything here starts a thread, since a copy of a process has one thread only; they wait at a
// gate until every one exists and the store listens. They stay in this process's group, so that Ctrl-C reaches them,
// and the kernel kills them when the thread that made them ends, however it does.
//
// Threads: one at a time.
#pragma once

#include <sys/types.h>

#include <chrono>
#include <condition_variable>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "rendezvous/base/descriptor.hpp"
#include "rendezvous/base/pipe.hpp"
#include "rendezvous/store/server.hpp"
#include "runtime/spawn/spawn_core.hpp"

namespace ddp::runtime {

class SpawnedProcesses {
 public:
  using Time = std::chrono::steady_clock::time_point;
  using Work = std::function<SpawnReport(int rank)>;  // runs in the child, and throws nothing

  struct Options {
    bool daemon = false;  // they end with this object
    std::chrono::milliseconds grace = std::chrono::seconds(30);
  };

  // Throws rendezvous::Error: this process cannot be copied, or the kernel makes no more.
  SpawnedProcesses(int size, const Options& options, const Work& work);
  // Waits for those that are left, or stops them.
  ~SpawnedProcesses();
  SpawnedProcesses(const SpawnedProcesses&) = delete;
  SpawnedProcesses& operator=(const SpawnedProcesses&) = delete;

  // False: some still run. True: none is left, neither of them nor of the threads here.
  bool join(Time until);
  // Once join() was true.
  const std::optional<SpawnFailure>& failure();
  pid_t pid(int rank) const { return pids_[static_cast<std::size_t>(rank)]; }
  int size() const { return static_cast<int>(pids_.size()); }

 private:
  using Descriptor = rendezvous::Descriptor;
  using Pipe = rendezvous::Pipe;

  void fork_all(int size, const Work& work, Pipe& gate);
  [[noreturn]] void be_rank(int rank, int size, pid_t parent, const Work& work, Pipe& gate);
  void open_pidfds();
  void kill_all();
  void watch();
  void read_reports();
  void reap(std::vector<SpawnCore::Ending>& ended);
  void carry_out(const SpawnCore::Actions& actions);
  void wait_for_events(Time until) const;

  const Options options_;
  Pipe reports_;
  Descriptor stop_;  // an eventfd
  std::vector<pid_t> pids_;
  std::vector<Descriptor> pidfds_;  // none where the kernel has none
  std::vector<std::optional<SpawnReport>> reported_;
  std::unique_ptr<rendezvous::StoreServer> store_;

  std::mutex mutex_;  // of core_
  std::condition_variable over_;
  SpawnCore core_;
  bool failure_taken_ = false;
  std::thread watch_;
};

}  // namespace ddp::runtime
