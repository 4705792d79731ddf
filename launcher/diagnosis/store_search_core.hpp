// SPDX-License-Identifier: BSD-3-Clause
// Decides when a worker looks for a store where there is none. PyTorch's ranks, all of them, connect to MASTER_ADDR and
// MASTER_PORT where TORCHELASTIC_USE_AGENT_STORE is "True": a script that sets a port of its own then waits in silence
// for half an hour. Such a process makes one socket after the other, and each stays unconnected until the next.
//
// A program that needs no store is as good as any, so silence alone says nothing.
#pragma once

#include <sys/types.h>

#include <chrono>
#include <map>
#include <optional>
#include <set>
#include <vector>

namespace ddp::launcher {

class StoreSearchCore {
 public:
  using Time = std::chrono::steady_clock::time_point;

  // How long a process must have had an unconnected socket each time it was examined.
  static constexpr std::chrono::seconds kInVain{5};
  // Interval between samples: short for the first minute, in which most programs get to their store.
  static constexpr std::chrono::seconds kOften{1}, kOftenFor{60}, kSeldom{10};

  struct Sample {
    bool store_reached = false;                            // a process is connected to the job's store
    std::map<pid_t, std::vector<ino_t>> unconnected = {};  // TCP sockets that lead nowhere, by process
  };

  explicit StoreSearchCore(Time start) : start_(start) {}

  // Returns a process that searches in vain. The search is over then, or when the store is reached.
  std::optional<pid_t> examine(const Sample& sample, Time now);
  bool over() const { return over_; }
  // Returns when the next sample is due.
  Time next(Time now) const { return now + (now - start_ < kOftenFor ? kOften : kSeldom); }

 private:
  struct Search {
    Time since;
    std::set<ino_t> sockets;
  };

  const Time start_;
  std::map<pid_t, Search> searches_;
  bool over_ = false;
};

}  // namespace ddp::launcher
