// SPDX-License-Identifier: BSD-3-Clause
// Decides whether the workers of a node stand still (--hang-timeout). It maps what is seen of them to what to do next,
// and holds no clock, process or file.
//
// A sign of progress is output of a worker, a worker that ends, a collective or message of libddp that a worker calls,
// and a step that a worker shows (ddp::progress). If all
// workers show steps, of these only those of the worker count whose step is the oldest: one that is stuck must not be
// hidden by others that go on. To look for signs costs nothing: counters in memory, and the sizes of two files.
//
//     Watching ──no sign for `timeout`──▶ Proving ──the proof holds──▶ Told
//        ▲ sign                              │ sign, or somebody works     │ sign
//        └───────────────────────────────────┴─────────────────────────────┘
//
// Workers that show steps have said what progress is, so a time without one is the proof. Of others nothing is known
// but what the system sees, and a worker that is silent may work: so stacks are taken kProofs times, and a worker works
// if between two of them
//
//     * its main thread went from one Python function to another,
//     * a thread that used a CPU for a twentieth of the time or more went from one function to another, or
//     * it read or wrote files: 64 KiB or more, or
//     * a process that it has started used a CPU for a twentieth of the time or more, such as a data loader's or a
//       compiler.
//
// A worker that waits does none of these, one in an endless loop neither, unless that calls functions of its own.
// Context switches say nothing: those that wait for others wake up from time to time, too.
#pragma once

#include <sys/types.h>

#include <chrono>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "launcher/diagnosis/stacks/stack.hpp"

namespace ddp::launcher {

// How often stacks are compared before workers that show no steps are said to stand still.
inline constexpr int kProofs = 6;

struct WorkerSigns {
  int rank = 0;
  std::int64_t step_at = 0;  // when it showed its newest step, on any clock; 0: it has shown none
  std::int64_t written = 0;  // bytes in files that are its stdout and stderr
  std::uint64_t calls = 0;   // collectives and messages of libddp

  bool operator==(const WorkerSigns&) const = default;
};

struct Signs {
  std::vector<WorkerSigns> workers;  // those that run
  std::uint64_t output = 0;          // bytes that came from workers so far
};

struct WorkerActivity {
  std::map<pid_t, std::chrono::milliseconds> threads;  // CPU time of each
  std::int64_t file_bytes = 0;                         // read and written so far
  std::chrono::milliseconds children{0};               // CPU time of its processes, also of those that have ended
};

class HangCore {
 public:
  using TimePoint = std::chrono::steady_clock::time_point;

  explicit HangCore(std::chrono::milliseconds timeout) : timeout_(timeout) {}

  // The workers have started: their time begins.
  void begin(TimePoint now);

  // Takes in the signs. To be called at next().
  void see(TimePoint now, const Signs& signs);
  // Returns whether stacks are to be taken now, and given to prove().
  bool wants_stacks() const { return state_ == State::Proving; }
  // Takes in stacks, with the activity of each rank at that moment. Returns whether the proof is complete: the workers
  // stand still.
  bool prove(TimePoint now, const std::vector<WorkerStacks>& stacks, const std::map<int, WorkerActivity>& activity);

  TimePoint next() const { return next_; }
  // Returns when the newest sign of progress came.
  TimePoint last_sign() const { return last_sign_; }
  // Returns whether the proof is complete, and no sign has come since.
  bool has_told() const { return state_ == State::Told; }
  // Returns whether all workers have told what progress is.
  bool all_show_steps() const;

 private:
  enum class State { Watching, Proving, Told };
  struct Sight {
    TimePoint at;
    std::vector<WorkerStacks> stacks;
    std::map<int, WorkerActivity> activity;
  };

  bool is_sign(const Signs& signs) const;
  void note_sign(TimePoint now);
  static bool is_work(const Sight& before, const Sight& after);

  const std::chrono::milliseconds timeout_;
  State state_ = State::Watching;
  TimePoint last_sign_, last_look_, next_;
  Signs signs_;
  std::optional<Sight> sight_;
  int proofs_ = 0;
};

}  // namespace ddp::launcher
