// SPDX-License-Identifier: BSD-3-Clause
// Starts worker processes by fork and exec, with a gate between the two (start_gate.hpp).
// warm_parent.hpp starts them without exec.
//
// Every worker leads a session and process group of its own, dies with the thread that called
// spawn() (PDEATHSIG, with the parent check that closes its race), has default signal dispositions
// and an empty mask, and inherits no descriptor but 0, 1 and 2. Call spawn() from a thread that
// lives as long as the agent. Until it executes its program, a worker shares this process's memory
// (bare_child.hpp): Spawned keeps alive what it reads there.
#pragma once

#include <sys/types.h>

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "launcher/process/limits.hpp"
#include "launcher/process/start_gate.hpp"
#include "rendezvous/base/descriptor.hpp"

namespace ddp::launcher {

struct WorkerCommand {
  std::string path;
  std::vector<std::string> arguments;    // argv
  std::vector<std::string> environment;  // "NAME=value"
  int stdin_fd = -1;                     // becomes 0; -1: /dev/null
  int stdout_fd = -1;                    // becomes 1
  int stderr_fd = -1;                    // becomes 2
  std::optional<Limits> limits = {};     // none: this process's limits
  std::vector<unsigned long> cpus = {};  // CPUs to run on, one bit each; empty: as this process
  int cgroup_fd = -1;                    // folder of the cgroup v2 to start in, if possible; -1: none
  std::vector<int> kept_fds = {};        // inherited too, under the same numbers
};

struct ChildPlan;  // all that a worker reads before it executes its program

// The workers of one round, which were started together. The destructor waits for workers that have
// not executed their program yet.
class Spawned {
 public:
  Spawned(std::vector<pid_t> pids, Descriptor status);
  Spawned(std::vector<pid_t> pids, Descriptor status, std::vector<std::unique_ptr<ChildPlan>> plans);
  ~Spawned();
  Spawned(Spawned&&) noexcept;

  const std::vector<pid_t>& pids() const { return pids_; }
  // Returns what failed in worker `index`, which has exited, before its program ran; nothing if its
  // program ran. Does not block.
  std::optional<ExecFailure> exec_failure(int index);

 private:
  std::vector<pid_t> pids_;
  Descriptor status_;
  std::vector<ExecFailure> failures_;
  std::vector<std::unique_ptr<ChildPlan>> plans_;
};

// Starts all workers or none: throws rendezvous::Error if a worker cannot be forked, after those
// before it have ended.
Spawned spawn(std::vector<WorkerCommand> commands);

}  // namespace ddp::launcher
