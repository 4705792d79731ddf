// SPDX-License-Identifier: BSD-3-Clause
// What workers print, and ddprun's own lines, to ddprun's stdout and stderr: whole lines, never mixed inside.
//
//     worker ── pipe, or pty if ours is a terminal ──▶ [ output thread: lines ] ──▶ stdout / stderr
//
// One thread owns the reading and writing and alone may block on a console that is stuck; everybody else posts to it.
// A console that is gone ends the output, not the job: what workers write is then read and dropped. With one worker, or
// after kMaxHeldBytes without a newline, bytes are passed on as they come. '\r' on a terminal ends a line (progress
// bars). Streams belong to a round; end_round closes them.
#pragma once

#include <chrono>
#include <cstddef>
#include <memory>
#include <string>
#include <vector>

namespace ddp::launcher {

enum class Console { Stdout, Stderr };

// A line longer than this is written in pieces; it bounds what 8 workers without newlines can make us hold.
inline constexpr std::size_t kMaxHeldBytes = 16 << 20;
// Of each worker's stderr, kept for the failure report.
inline constexpr std::size_t kTailLines = 20;

class Output {
 public:
  Output();
  // Writes what is left, waiting for the console at most this long.
  static constexpr std::chrono::seconds kFinalFlush{2};
  ~Output();
  Output(const Output&) = delete;
  Output& operator=(const Output&) = delete;

  // The two ends that a worker's stdout and stderr become (close-on-exec, owned by the caller, who closes them after
  // the fork). Throws rendezvous::Error if there are no descriptors left.
  struct WorkerEnds {
    int stdout_fd = -1;
    int stderr_fd = -1;
  };
  WorkerEnds open_worker(int local_rank, bool pass_through);

  // ddprun's own lines; text without its final newline. Does not block.
  void write_line(Console console, std::string text);

  // The round's processes are gone: reads what they left in their pipes, ends unfinished lines, closes the streams.
  // Returns the last stderr lines of each local rank. Waits for a stuck console at most `deadline`.
  std::vector<std::vector<std::string>> end_round(std::chrono::milliseconds deadline);

  // The terminal changed its size: so do the workers' ptys.
  void resize();

 private:
  class Thread;
  std::unique_ptr<Thread> thread_;
};

}  // namespace ddp::launcher
