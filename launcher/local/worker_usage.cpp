// SPDX-License-Identifier: BSD-3-Clause
#include "launcher/local/worker_usage.hpp"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstring>

#include "rendezvous/base/descriptor.hpp"
#include "rendezvous/machine/process_folder.hpp"

namespace ddp::launcher {
namespace {

constexpr std::int64_t kRateOver = 5'000'000'000;  // nanoseconds: a rate is of about this time

const char* words_of(char state) {
  switch (state) {
    case 'R':
      return "runs";
    case 'D':
      return "waits for a disk";
    case 'T':
    case 't':
      return "stopped";
    case 'Z':
    case 'X':
      return "has ended";
    default:
      return "sleeps";
  }
}

}  // namespace

std::optional<WorkerUsage> usage_of(pid_t process) {
  const rendezvous::Descriptor file(
      open((rendezvous::process_folder(process) + "/stat").c_str(), O_RDONLY | O_CLOEXEC));
  char text[1024];  // proc(5): a name of 15 bytes and 50 numbers
  const ssize_t size = file ? read(file.get(), text, sizeof text - 1) : -1;
  if (size <= 0) return std::nullopt;
  text[size] = 0;
  const char* const name_end = strrchr(text, ')');  // the name may have blanks and brackets
  char state = 0;
  unsigned long long user = 0, kernel = 0, pages = 0;
  long threads = 0;
  if (name_end == nullptr || sscanf(name_end + 1,
                                    " %c %*d %*d %*d %*d %*d %*u %*u %*u %*u %*u %llu %llu %*d %*d %*d %*d %ld %*d "
                                    "%*u %*u %llu",
                                    &state, &user, &kernel, &threads, &pages) != 5) {
    return std::nullopt;
  }
  const auto ticks = static_cast<unsigned long long>(std::max(1L, sysconf(_SC_CLK_TCK)));
  return WorkerUsage{.state = words_of(state),
                     .cpu_ms = static_cast<std::int64_t>((user + kernel) * 1000 / ticks),
                     .rss = static_cast<std::int64_t>(pages) * sysconf(_SC_PAGESIZE),
                     .threads = threads};
}

std::optional<double> StepRates::note(int rank, std::int64_t step, std::int64_t step_at) {
  const Seen now{step, step_at};
  const auto [entry, is_first] = seen_.try_emplace(rank, Past{now, now});
  Past& past = entry->second;
  if (step < past.newest.step || step_at < past.newest.at) past = {now, now};
  const Seen base = past.base;
  if (step_at - past.base.at > kRateOver) past.base = past.newest;
  past.newest = now;
  if (step_at <= base.at) return std::nullopt;
  return static_cast<double>(step - base.step) * 1e9 / static_cast<double>(step_at - base.at);
}

}  // namespace ddp::launcher
