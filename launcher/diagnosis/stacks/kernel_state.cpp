// SPDX-License-Identifier: BSD-3-Clause
#include "launcher/diagnosis/stacks/kernel_state.hpp"

#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <fstream>

#include "rendezvous/base/text.hpp"
#include "rendezvous/machine/process_folder.hpp"

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
  for (std::filesystem::directory_iterator entry(rendezvous::process_folder(process) + "/task", gone), end;
       !gone && entry != end; entry.increment(gone)) {
    const auto id = rendezvous::parse_number<pid_t>(entry->path().filename().string());
    if (id) threads[*id] = kernel_thread(entry->path());
  }
  return threads;
}

bool is_about_to_stop(pid_t process) {
  std::error_code gone;
  for (std::filesystem::directory_iterator entry(rendezvous::process_folder(process) + "/task", gone), end;
       !gone && entry != end; entry.increment(gone)) {
    std::ifstream status(entry->path() / "status");
    for (std::string line; std::getline(status, line);) {
      if (!line.starts_with("SigPnd:") && !line.starts_with("ShdPnd:")) continue;
      const auto pending = std::strtoull(line.c_str() + sizeof "SigPnd:" - 1, nullptr, 16);
      if ((pending >> (SIGSTOP - 1) & 1) != 0) return true;
    }
  }
  return false;
}

std::vector<pid_t> descendants_of(pid_t process, std::size_t most) {
  std::vector<pid_t> found;
  std::vector<pid_t> parents = {process};
  for (std::size_t i = 0; i < parents.size() && found.size() < most; ++i) {
    const std::string folder = rendezvous::process_folder(parents[i]) + "/task";
    for (const auto& [id, thread] : kernel_threads(parents[i])) {
      std::ifstream children(folder + "/" + std::to_string(id) + "/children");
      for (pid_t child = 0; children >> child && found.size() < most;) {
        const auto threads = kernel_threads(child);
        if (threads.empty() || threads.begin()->second.state == 'Z') continue;
        found.push_back(child);
        parents.push_back(child);
      }
    }
  }
  return found;
}

}  // namespace ddp::launcher
