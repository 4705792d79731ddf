// SPDX-License-Identifier: BSD-3-Clause
#include "launcher/process/limits.hpp"

#include <algorithm>
#include <filesystem>
#include <iterator>

#include "rendezvous/base/error.hpp"
#include "rendezvous/base/file_limit.hpp"

namespace ddp::launcher {

namespace {

constexpr rlim_t kOwnFiles = 27;  // event loops, sockets, shared memory, pipes between ddprun's own processes
constexpr rlim_t kMostConnections = 1 << 16;  // for which the file table is enlarged: half a MiB

}  // namespace

Limits raise_limits() {
  Limits inherited = {rendezvous::raise_file_limit(), {}};
  getrlimit(RLIMIT_NPROC, &inherited.processes);
  const rlimit raised = {inherited.processes.rlim_max, inherited.processes.rlim_max};
  setrlimit(RLIMIT_NPROC, &raised);
  return inherited;
}

void reserve_files(int workers, rlim_t stream_files, rlim_t connections, int nodes) {
  rlimit limit = {};
  getrlimit(RLIMIT_NOFILE, &limit);
  std::error_code ignored;
  const auto open = std::distance(std::filesystem::directory_iterator("/proc/self/fd", ignored), {});
  const auto each = static_cast<rlim_t>(workers);
  const rlim_t own = static_cast<rlim_t>(open) + kOwnFiles;
  const rlim_t to_start = own + each + stream_files;
  const rlim_t to_run = own + stream_files - std::min(stream_files, 2 * each) + (nodes == 1 ? each : 0);
  const rlim_t needed = std::max(to_start, to_run + std::min(to_run, rendezvous::kReservedFiles));
  if (needed <= limit.rlim_cur) return rendezvous::grow_file_table(needed + std::min(connections, kMostConnections));
  throw rendezvous::Error(
      rendezvous::ErrorCode::System,
      "starting " + std::to_string(workers) + " workers takes " + std::to_string(needed) +
          " open files, and ddprun may have " + std::to_string(limit.rlim_cur) +
          ": raise the hard limit (ulimit -n as root, LimitNOFILE= of a service, --ulimit nofile= "
          "of a container), start fewer workers, or let them write files of their own (--redirects 3)");
}

std::string describe_process_limit() {
  rlimit limit = {};
  getrlimit(RLIMIT_NPROC, &limit);
  const std::string number = limit.rlim_cur == RLIM_INFINITY ? "any number of" : std::to_string(limit.rlim_cur);
  return "this user may have " + number + " processes and threads (ulimit -u)";
}

}  // namespace ddp::launcher
