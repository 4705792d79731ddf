// SPDX-License-Identifier: BSD-3-Clause
// Makes worker processes by fork and exec, with a gate between (start_gate.hpp). The other way: warm_parent.hpp.
//
// Every worker leads a session and process group of its own, dies with the thread that called spawn (PDEATHSIG, with
// the parent check that closes its race), has default signal dispositions and an empty mask, and inherits no descriptor
// but 0, 1 and 2. Call it from a thread that lives as long as the agent. Until it executes its program a worker shares
// this process's memory (bare_child.hpp): Spawned keeps what it reads there.
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
  std::optional<Limits> limits = {};     // to have, if not this process's
  std::vector<unsigned long> cpus = {};  // to run on, one bit each; empty: as this process
  int cgroup_fd = -1;                    // of a cgroup v2 folder to be born into, if that can be
  std::vector<int> kept_fds = {};        // to be inherited beside 0, 1 and 2, under their numbers
};

struct ChildPlan;  // what a worker reads before it executes its program

// The workers of one round that were started together. Its end waits for those who have not executed their program yet.
class Spawned {
 public:
  Spawned(std::vector<pid_t> pids, Descriptor status);
  Spawned(std::vector<pid_t> pids, Descriptor status, std::vector<std::unique_ptr<ChildPlan>> plans);
  ~Spawned();
  Spawned(Spawned&&) noexcept;

  const std::vector<pid_t>& pids() const { return pids_; }
  // Did worker `index`, which has exited, fail before its program ran? Does not block.
  std::optional<ExecFailure> exec_failure(int index);

 private:
  std::vector<pid_t> pids_;
  Descriptor status_;
  std::vector<ExecFailure> failures_;
  std::vector<std::unique_ptr<ChildPlan>> plans_;
};

// All or none: throws rendezvous::Error if not every worker could be forked; then those that were are gone already.
Spawned spawn(std::vector<WorkerCommand> commands);

}  // namespace ddp::launcher
