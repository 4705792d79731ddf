// SPDX-License-Identifier: BSD-3-Clause
// Rank 0's output on stdout: lines, and between them a progress bar on a terminal, or a line every
// few steps elsewhere. Output depends on steps, not on time, so that two runs can be compared;
// ddp::ProgressBar writes to stderr by the clock.
#pragma once

#include <chrono>
#include <cstdio>
#include <memory>
#include <string>

namespace train {

class ProgressReport {
 public:
  ProgressReport(int steps, double bytes_per_step);

  // Only rank 0 writes.
  void speak(bool speaks) { speaks_ = speaks; }

  // Writes one line per step to a file: the step and the loss, with all digits of a float. mode is
  // as for fopen.
  void open_log(const std::string& path, const char* mode);

  // Starts the clock for speed and remaining time.
  void begin(int step) { first_step_ = step, begun_ = Clock::now(); }
  void step(int step, double loss);
  [[gnu::format(printf, 2, 3)]] void line(const char* format, ...);

 private:
  using Clock = std::chrono::steady_clock;

  bool speaks_ = false, terminal_;
  int steps_, first_step_ = 0;
  double bytes_per_step_;
  Clock::time_point begun_;
  std::unique_ptr<std::FILE, int (*)(std::FILE*)> log_{nullptr, &std::fclose};
};

struct StepDone {
  int rank, restart_count, step;
};
// Appends a line to the file, in one write, so that lines of several workers do not mix. Throws BadInput if it cannot.
void append_time(const std::string& path, const StepDone& done);

}  // namespace train
