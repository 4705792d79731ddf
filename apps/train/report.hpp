// SPDX-License-Identifier: BSD-3-Clause
// What rank 0 tells the user: lines, and between them a bar on a terminal or now and then a line elsewhere. All of it
// on stdout and by the step, so that those of two runs can be compared; ddp::ProgressBar is for stderr and by the
// clock.
#pragma once

#include <chrono>
#include <cstdio>
#include <memory>
#include <string>

namespace train {

class ProgressReport {
 public:
  // Silent on any rank but 0.
  ProgressReport(int rank, int steps, double bytes_per_step);

  // One line for each step into a file: step and loss, to all the digits a float has. mode as for fopen.
  void open_log(const std::string& path, const char* mode);

  // The clock for speed and time left starts here.
  void begin(int step) { first_step_ = step, begun_ = Clock::now(); }
  void step(int step, double loss);
  [[gnu::format(printf, 2, 3)]] void line(const char* format, ...);

 private:
  using Clock = std::chrono::steady_clock;

  bool speaks_, terminal_;
  int steps_, first_step_ = 0;
  double bytes_per_step_;
  Clock::time_point begun_;
  std::unique_ptr<std::FILE, int (*)(std::FILE*)> log_{nullptr, &std::fclose};
};

}  // namespace train
