// SPDX-License-Identifier: BSD-3-Clause
#include "launcher/diagnosis/worker_activity.hpp"

#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <sstream>
#include <string>

#include "launcher/stacks/kernel_state.hpp"
#include "rendezvous/base/text.hpp"
#include "rendezvous/machine/process_folder.hpp"

namespace ddp::launcher {
namespace {

constexpr std::size_t kMostChildren = 64;  // a worker may have more, which are not looked at

struct CpuTime {
  std::chrono::milliseconds own, children;  // the latter of those that have ended and were waited for
};

// Returns the CPU time of a thread or process, whose folder this is.
CpuTime cpu_time(const std::filesystem::path& folder) {
  std::string stat;
  std::getline(std::ifstream(folder / "stat"), stat);
  const std::size_t name_end = stat.rfind(')');  // the name may have brackets and spaces
  if (name_end == std::string::npos) return {};
  std::istringstream fields(stat.substr(name_end + 1));
  std::string skipped;
  for (int field = 3; field < 14; ++field) fields >> skipped;
  std::int64_t user = 0, system = 0, users_children = 0, systems_children = 0;  // fields 14 to 17 of proc(5)
  fields >> user >> system >> users_children >> systems_children;
  static const std::int64_t ticks = sysconf(_SC_CLK_TCK);
  return {std::chrono::milliseconds((user + system) * 1000 / ticks),
          std::chrono::milliseconds((users_children + systems_children) * 1000 / ticks)};
}

}  // namespace

WorkerActivity activity_of(pid_t process) {
  WorkerActivity activity;
  const std::filesystem::path folder = rendezvous::process_folder(process);
  std::error_code gone;
  for (std::filesystem::directory_iterator entry(folder / "task", gone), end; !gone && entry != end;
       entry.increment(gone)) {
    const auto id = rendezvous::parse_number<pid_t>(entry->path().filename().string());
    if (id) activity.threads[*id] = cpu_time(entry->path()).own;
  }
  activity.children = cpu_time(folder).children;
  for (const pid_t child : descendants_of(process, kMostChildren)) {
    const CpuTime time = cpu_time(rendezvous::process_folder(child));
    activity.children += time.own + time.children;
  }
  std::ifstream io(folder / "io");
  for (std::string name; io >> name;) {
    std::int64_t bytes = 0;
    io >> bytes;
    if (name == "rchar:" || name == "wchar:") activity.file_bytes += bytes;
  }
  return activity;
}

std::int64_t written_by(pid_t process) {
  std::int64_t bytes = 0;
  for (const char* stream : {"1", "2"}) {
    struct stat facts = {};
    const std::string path = rendezvous::process_folder(process) + "/fd/" + stream;
    if (stat(path.c_str(), &facts) == 0 && S_ISREG(facts.st_mode)) bytes += facts.st_size;
  }
  return bytes;
}

}  // namespace ddp::launcher
