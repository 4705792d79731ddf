// SPDX-License-Identifier: BSD-3-Clause
#include "launcher/stacks/kernel_state.hpp"

#include <filesystem>
#include <fstream>

#include "rendezvous/base/text.hpp"

namespace ddp::launcher {
namespace {

KernelThread kernel_thread(const std::filesystem::path& folder) {
  KernelThread thread;
  std::string stat;
  std::getline(std::ifstream(folder / "stat"), stat);
  // "4711 (name) S ...": the name may have brackets of its own.
  const std::size_t begin = stat.find('('), end = stat.rfind(')');
  if (end != std::string::npos && end + 2 < stat.size()) {
    thread.name = stat.substr(begin + 1, end - begin - 1);
    thread.state = stat[end + 2];
  }
  std::getline(std::ifstream(folder / "wchan"), thread.wait);
  if (thread.wait == "0") thread.wait.clear();
  return thread;
}

}  // namespace

std::string KernelThread::words() const {
  const std::string in = wait.empty() ? "" : " in " + wait;
  switch (state) {
    case 'R':
      return "runs";
    case 'S':
    case 'I':
      return "asleep" + in;
    case 'D':
      return "in the kernel, where no signal reaches it" + in;
    case 'T':
      return "stopped by a signal";
    case 't':
      return "stopped by a debugger";
    case 'Z':
    case 'X':
      return "has ended";
    default:
      return "unknown";
  }
}

std::map<pid_t, KernelThread> kernel_threads(pid_t process) {
  std::map<pid_t, KernelThread> threads;
  std::error_code gone;
  for (std::filesystem::directory_iterator entry("/proc/" + std::to_string(process) + "/task", gone), end;
       !gone && entry != end; entry.increment(gone)) {
    const auto id = rendezvous::parse_number<pid_t>(entry->path().filename().string());
    if (id) threads[*id] = kernel_thread(entry->path());
  }
  return threads;
}

}  // namespace ddp::launcher
