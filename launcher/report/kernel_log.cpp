// SPDX-License-Identifier: BSD-3-Clause
#include "launcher/report/kernel_log.hpp"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <chrono>

#include "rendezvous/base/descriptor.hpp"

namespace ddp::launcher {

namespace {

constexpr ino_t kInitialPidNamespace = 0xEFFFFFFC;  // PROC_PID_INIT_INO; the kernel's log has its pids
constexpr std::int64_t kClocksDiffer = 1'000'000;   // us; the log's clock is another one, which differs a little

}  // namespace

bool kernel_log_has_our_pids() {
  struct stat status = {};
  return stat("/proc/self/ns/pid", &status) == 0 && status.st_ino == kInitialPidNamespace;
}

std::int64_t kernel_log_now() {
  using std::chrono::duration_cast, std::chrono::microseconds;
  return duration_cast<microseconds>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

bool is_record_since(std::string_view record, std::int64_t since) {
  const auto time_at = record.find(',', record.find(',') + 1) + 1;
  std::int64_t time = 0;
  const auto [end, error] = std::from_chars(record.data() + time_at, record.data() + record.size(), time);
  return error == std::errc() && time + kClocksDiffer >= since;
}

// One read returns one record; EPIPE means that some were overwritten meanwhile.
bool search_kernel_log(const std::function<bool(std::string_view record)>& fits) {
  const rendezvous::Descriptor log(open("/dev/kmsg", O_RDONLY | O_NONBLOCK | O_CLOEXEC));
  bool found = false;
  char record[8192];
  while (log && !found) {
    const ssize_t size = read(log.get(), record, sizeof record);
    if (size < 0 && errno != EPIPE) break;
    found = fits({record, static_cast<std::size_t>(std::max<ssize_t>(size, 0))});
  }
  return found;
}

}  // namespace ddp::launcher
