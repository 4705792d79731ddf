// SPDX-License-Identifier: BSD-3-Clause
// The processes of one ddp::spawn: forks of this process, each with the environment of a rank, and the store where they
// meet. A thread of this object watches them and carries out what SpawnCore decides.
//
// All are forked before this object starts a thread, since a fork has one thread only. They wait at a gate until all of
// them exist and the store listens. They stay in this process's process group, so that Ctrl-C reaches them, and the
// kernel kills them when the thread that forked them ends, however it ends.
//
// Threads: one at a time may call its functions.
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
  using Work = std::function<SpawnReport(int rank)>;  // runs in the child; must not throw

  struct Options {
    bool daemon = false;  // the destructor stops the processes
    std::chrono::milliseconds grace = std::chrono::seconds(30);
  };

  // Forks the processes. Throws rendezvous::Error if this process cannot be forked safely or the kernel refuses.
  SpawnedProcesses(int size, const Options& options, const Work& work);
  // Waits for the processes that are left; with Options::daemon stops them first.
  ~SpawnedProcesses();
  SpawnedProcesses(const SpawnedProcesses&) = delete;
  SpawnedProcesses& operator=(const SpawnedProcesses&) = delete;

  // Waits for all processes. Returns false if some still run at `until`, true once neither a process nor a thread of
  // this object is left.
  bool join(Time until);
  // Returns the failure. May be called once join() has returned true.
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
  std::vector<Descriptor> pidfds_;  // empty if the kernel has no pidfds
  std::vector<std::optional<SpawnReport>> reported_;
  std::unique_ptr<rendezvous::StoreServer> store_;

  std::mutex mutex_;  // guards core_
  std::condition_variable over_;
  SpawnCore core_;
  bool failure_taken_ = false;
  std::thread watch_;
};

}  // namespace ddp::runtime
