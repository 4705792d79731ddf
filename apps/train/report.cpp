// SPDX-License-Identifier: BSD-3-Clause
#include "apps/train/report.hpp"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cstdarg>
#include <cstring>
#include <ctime>
#include <string>

#include "apps/train/failure.hpp"

namespace train {
namespace {

constexpr int kStepsPerLine = 20;
constexpr const char* kClearLine = "\r\033[K";

std::string bar(int done, int all) {
  constexpr std::size_t kWidth = 24;
  const std::size_t filled = kWidth * static_cast<std::size_t>(done) / static_cast<std::size_t>(all);
  std::string bar(kWidth, '.');
  return bar.replace(0, filled, filled, '#');
}

}  // namespace

ProgressReport::ProgressReport(int steps, double bytes_per_step)
    : terminal_(isatty(STDOUT_FILENO) != 0), steps_(steps), bytes_per_step_(bytes_per_step) {}

void ProgressReport::open_log(const std::string& path, const char* mode) {
  log_.reset(std::fopen(path.c_str(), mode));
  if (!log_) throw BadInput("--log " + path + ": " + std::strerror(errno));
}

void ProgressReport::step(int step, double loss) {
  if (!speaks_) return;
  if (log_) {
    std::fprintf(log_.get(), "%d %.9g\n", step, loss);
    std::fflush(log_.get());
  }
  if (!terminal_ && step % kStepsPerLine != 0 && step != steps_) return;

  const double seconds = std::chrono::duration<double>(Clock::now() - begun_).count();
  const double steps_per_second = (step - first_step_) / seconds;
  if (terminal_) std::printf("%s[%s] ", kClearLine, bar(step, steps_).c_str());
  std::printf("step %*d/%d  loss %.3f  %.0f tokens/s  %.0f s left", static_cast<int>(std::to_string(steps_).size()),
              step, steps_, loss, steps_per_second * bytes_per_step_, (steps_ - step) / steps_per_second);
  if (!terminal_ || step == steps_) std::putchar('\n');
  std::fflush(stdout);
}

void ProgressReport::line(const char* format, ...) {
  if (!speaks_) return;
  if (terminal_) std::fputs(kClearLine, stdout);
  va_list arguments;
  va_start(arguments, format);
  std::vprintf(format, arguments);
  va_end(arguments);
  std::putchar('\n');
  std::fflush(stdout);
}

void append_time(const std::string& path, const StepDone& done) {
  timespec now = {};
  clock_gettime(CLOCK_REALTIME, &now);
  const int file = ::open(path.c_str(), O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC, 0644);
  if (file < 0) throw BadInput("--times " + path + ": " + std::strerror(errno));
  dprintf(file, "%d %d %d %d %lld\n", done.rank, done.restart_count, done.step, static_cast<int>(getpid()),
          static_cast<long long>(now.tv_sec) * 1'000'000'000 + now.tv_nsec);
  close(file);
}

}  // namespace train
