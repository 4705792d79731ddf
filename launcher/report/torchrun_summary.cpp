// SPDX-License-Identifier: BSD-3-Clause
#include "launcher/report/torchrun_summary.hpp"

#include <algorithm>
#include <sstream>

#include "launcher/text/time_text.hpp"
#include "rendezvous/base/text.hpp"

namespace ddp::launcher {

using rendezvous::WorkerFailure;

namespace {

constexpr char kTorchrunTimeFormat[] = "%Y-%m-%d_%H:%M:%S";
constexpr std::size_t kMaxWidth = 60;
constexpr char kException[] = "torch.distributed.elastic.multiprocessing.errors.ChildFailedError: ";
constexpr char kHint[] = "To enable traceback see: https://pytorch.org/docs/stable/elastic/errors.html";

// Returns the name that Python has for the signal; torch says <N/A> of one without a name.
std::string pythons_signal_name(int signal) {
  const std::string name = rendezvous::signal_name(signal);
  return name.starts_with("SIG") ? name : "<N/A>";
}

std::string traceback_of(const WorkerFailure& failure) {
  if (failure.message.empty() && failure.status.signal != 0) {
    return "Signal " + std::to_string(failure.status.signal) + " (" + pythons_signal_name(failure.status.signal) +
           ") received by PID " + std::to_string(failure.pid);
  }
  if (failure.message.empty()) return kHint;
  std::string text;
  for (const char c : failure.message) text += c == '\n' ? std::string("\n  ") : std::string(1, c);
  return text;
}

std::string block(std::size_t index, const WorkerFailure& failure, const std::map<int, std::string>& error_files) {
  const auto file = error_files.find(failure.rank);
  std::ostringstream text;
  text << "[" << index << "]:\n"
       << "  time      : " << local_time(failure.time, kTorchrunTimeFormat) << "\n"
       << "  host      : " << failure.host << "\n"
       << "  rank      : " << failure.rank << " (local_rank: " << failure.local_rank << ")\n"
       << "  exitcode  : " << failure.status.python_code() << " (pid: " << failure.pid << ") ";
  if (failure.status.signal != 0) text << " (" << pythons_signal_name(failure.status.signal) << ")";
  text << "\n  error_file: " << (file != error_files.end() ? file->second : "<N/A>") << "\n"
       << "  traceback : " << traceback_of(failure) << "\n";
  return text.str();
}

std::size_t widest_line(const std::string& text) {
  std::istringstream lines(text);
  std::size_t width = 0;
  for (std::string line; std::getline(lines, line);) width = std::max(width, line.size());
  return width;
}

}  // namespace

std::string torchrun_summary(const JobEnd& end, const std::string& binary) {
  const WorkerFailure& cause = *end.cause;
  const std::string title = end.program + " FAILED\n";
  const std::string root = block(0, cause, end.round.error_files);
  std::string others;
  std::size_t index = 0;
  for (const WorkerFailure& failure : end.failures) {
    if (failure.rank != cause.rank) others += block(++index, failure, end.round.error_files);
  }
  const std::size_t width = std::min(widest_line(title + root + others), kMaxWidth);
  const std::string border = std::string(width, '=') + "\n", rule = std::string(width, '-') + "\n";
  if (others.empty()) others = "  <NO_OTHER_FAILURES>\n";

  std::ostringstream text;
  text << "failed (exitcode: " << cause.status.python_code() << ") local_rank: " << cause.local_rank
       << " (pid: " << cause.pid << ") of binary: " << binary << "\n"
       << kException << "\n"
       << border << title << rule << "Failures:\n"
       << others << rule << "Root Cause (first observed failure):\n"
       << root << std::string(width, '=');
  return text.str();
}

std::string torchrun_signal_summary(int pid, int signal) {
  return "torch.distributed.elastic.multiprocessing.api.SignalException: Process " + std::to_string(pid) +
         " got signal: " + std::to_string(signal);
}

}  // namespace ddp::launcher
