// SPDX-License-Identifier: BSD-3-Clause
// What a process uses, as /proc says it. Needs no right that the owner of a process does not have.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <map>
#include <optional>
#include <string>

namespace ddp::launcher {

struct WorkerUsage {
  std::string state;        // what its main thread does: "runs", "sleeps", "waits for a disk", "stopped", "has ended"
  std::int64_t cpu_ms = 0;  // what all its threads have used since its start, in user and kernel mode
  std::int64_t rss = 0;     // resident bytes
  std::int64_t threads = 0;
};

// Returns nothing if there is no such process.
std::optional<WorkerUsage> usage_of(pid_t process);

// Steps per second of each rank, from what was seen at earlier looks: so the first look has none. Forgets a rank's past
// if its steps go back.
class StepRates {
 public:
  // Takes in a rank's newest step and when it was shown, in nanoseconds. Returns its rate since an earlier look, which
  // is up to some seconds ago.
  std::optional<double> note(int rank, std::int64_t step, std::int64_t step_at);
  void clear() { seen_.clear(); }

 private:
  struct Seen {
    std::int64_t step = 0, at = 0;
  };
  struct Past {
    Seen base, newest;
  };
  std::map<int, Past> seen_;
};

}  // namespace ddp::launcher
