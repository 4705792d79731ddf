// SPDX-License-Identifier: BSD-3-Clause
#include "launcher/diagnosis/stacks/take_stacks.hpp"

#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <optional>
#include <sstream>

#include "launcher/diagnosis/stacks/frames.hpp"
#include "launcher/diagnosis/stacks/kernel_state.hpp"
#include "launcher/diagnosis/stacks/tool_run.hpp"
#include "rendezvous/machine/process_folder.hpp"

namespace ddp::launcher {
namespace {

// With less time than these, the native frames of a process whose Python frames py-spy shows are not taken (0.1 s of
// CPU time for the symbols of PyTorch), nor the lines of native frames (several tenths).
constexpr std::chrono::milliseconds kTimeForNative{1000}, kTimeForLines{2000};

// With that much time, processes that workers have started are taken too: at most this many of each worker.
constexpr std::size_t kMostChildrenShown = 4;

std::string contents(const std::string& path) {
  std::ifstream file(path);
  return {std::istreambuf_iterator<char>(file), {}};
}

bool runs_python(pid_t process) {
  const std::string maps = contents(rendezvous::process_folder(process) + "/maps");
  return maps.find("/libpython") != std::string::npos || maps.find("/python") != std::string::npos;
}

std::string in_path(const std::string& tool) {
  const char* const path = getenv("PATH");
  std::istringstream folders(path != nullptr ? path : "/usr/bin:/bin");
  for (std::string folder; std::getline(folders, folder, ':');) {
    const std::string file = folder + "/" + tool;
    if (folder.rfind('/', 0) == 0 && access(file.c_str(), X_OK) == 0) return file;
  }
  return "";
}

// Returns whether only this user and root can change the file at a path without links: they own the file and each
// folder of the path, and nobody else may write there. A folder with the sticky bit, such as /tmp, keeps others from
// replacing what is in it; a group with the user's own number has no other members by custom.
bool is_private(const std::filesystem::path& file) {
  const uid_t own = geteuid();
  for (std::filesystem::path part = file;; part = part.parent_path()) {
    struct stat facts = {};
    if (stat(part.c_str(), &facts) != 0 || (facts.st_uid != own && facts.st_uid != 0)) return false;
    const mode_t others = own != 0 && facts.st_gid == own ? S_IWOTH : S_IWGRP | S_IWOTH;
    const bool is_sticky = S_ISDIR(facts.st_mode) && (facts.st_mode & S_ISVTX) != 0;
    if ((facts.st_mode & others) != 0 && !is_sticky) return false;
    if (part == part.root_path()) return true;
  }
}

std::string py_spy_beside(const std::filesystem::path& program) {
  std::error_code none;
  if (!program.is_absolute()) return "";
  const std::filesystem::path file = std::filesystem::canonical(program.parent_path() / "py-spy", none);
  return !none && access(file.c_str(), X_OK) == 0 && is_private(file) ? file.string() : "";
}

// Returns whether a process has all of its user ids from this user, so that nobody else has chosen its command line.
// The owner of its folder in /proc does not tell: that is root for each process that must not be traced.
bool is_of_this_user(pid_t process) {
  const std::string status = contents(rendezvous::process_folder(process) + "/status");
  const std::size_t at = status.find("\nUid:");
  uid_t real = 0, effective = 0, saved = 0, of_files = 0;
  if (at == std::string::npos ||
      sscanf(status.c_str() + at, "\nUid: %u %u %u %u", &real, &effective, &saved, &of_files) != 4) {
    return false;
  }
  const uid_t own = geteuid();
  return real == own && effective == own && saved == own && of_files == own;
}

// Returns the line of a tool's complaint that begins with "Error: ", else the last one that has a reason, without
// control characters.
std::string complaint(const ToolRun& run) {
  if (!run.why_not.empty()) return run.why_not;
  std::string text = run.err;
  while (!text.empty() && text.back() == '\n') text.pop_back();
  if (const std::size_t error = text.find("Error: "); error != std::string::npos) {
    text = text.substr(error, text.find('\n', error) - error);
  }
  const std::string vain = ": Couldn't show any frames.";  // eu-stack says that after the reason
  if (text.ends_with(vain) && text.find('\n') != std::string::npos) text.erase(text.rfind('\n'));
  text.erase(0, text.rfind('\n') + 1);
  const std::string itself = run.command.front() + ": ";
  if (text.starts_with(itself)) text.erase(0, itself.size());
  std::erase_if(text, [](unsigned char c) { return c < ' ' || c == 0x7f; });
  return text.empty() ? "it printed nothing" : text;
}

// Returns why there are no Python lines.
std::string complaint_of_py_spy(const ToolRun& run) {
  const std::string said = complaint(run);
  if (said.find("Failed to find a python interpreter") != std::string::npos) {
    return "py-spy finds no Python in it: it is about to end, has just begun, or its Python has no symbols";
  }
  return "py-spy: " + said;
}

struct Taking {
  WorkerStacks stacks;
  std::optional<std::size_t> parent = {};  // where the worker is that has started it; none: it is a worker
  std::map<pid_t, KernelThread> before = {};
  bool runs_python = false;
  std::optional<std::size_t> python = {}, native = {};  // which run is about it
};

bool was_stopped(const std::map<pid_t, KernelThread>& threads) {
  return std::any_of(threads.begin(), threads.end(),
                     [](const auto& thread) { return thread.second.state == 'T' || thread.second.state == 't'; });
}

void add_frames(Taking& taking, const std::vector<ToolRun>& runs) {
  std::map<pid_t, PythonThread> python;
  if (taking.python) {
    if (auto threads = python_threads(runs[*taking.python].out)) {
      python = std::move(*threads);
    } else {
      taking.stacks.missing.push_back(complaint_of_py_spy(runs[*taking.python]));
    }
  }
  std::map<pid_t, std::vector<StackFrame>> native;
  if (taking.native) {
    native = native_threads(runs[*taking.native].out);
    const bool has_frames =
        std::any_of(native.begin(), native.end(), [](const auto& thread) { return !thread.second.empty(); });
    if (!has_frames) taking.stacks.missing.push_back("eu-stack: " + complaint(runs[*taking.native]));
  }
  for (const auto& [id, kernel] : taking.before) {
    ThreadStack thread = {id, kernel.name, kernel.words(), {}, std::move(native[id])};
    if (const auto found = python.find(id); found != python.end()) {
      if (!found->second.name.empty()) thread.name = found->second.name;
      thread.python = std::move(found->second.frames);
    }
    if (taking.runs_python) keep_what_python_called(thread.native);
    taking.stacks.threads.push_back(std::move(thread));
  }
  std::stable_partition(taking.stacks.threads.begin(), taking.stacks.threads.end(),
                        [&](const ThreadStack& thread) { return thread.id == taking.stacks.pid; });
}

// Adds processes that these workers have started, after them.
void add_children(std::vector<Taking>& all) {
  const std::size_t workers = all.size();
  for (std::size_t i = 0; i < workers; ++i) {
    for (const pid_t child : descendants_of(all[i].stacks.pid, kMostChildrenShown)) {
      all.push_back({{all[i].stacks.rank, child, {}, {}}, i});
    }
  }
}

// Adds the runs of the tools that look at a process.
void choose_tools(Taking& taking, const StackTools& tools, std::chrono::milliseconds within,
                  std::vector<ToolRun>& runs) {
  taking.before = kernel_threads(taking.stacks.pid);
  if (taking.before.empty()) {
    taking.stacks.missing.push_back("the process has ended");
    return;
  }
  const std::string number = std::to_string(taking.stacks.pid);
  const bool is_python = taking.runs_python = runs_python(taking.stacks.pid);
  if (is_python && tools.py_spy.empty()) taking.stacks.missing.push_back(kGetPySpy);
  if (is_python && !tools.py_spy.empty()) {
    taking.python = runs.size();
    runs.push_back({{tools.py_spy, "dump", "--nonblocking", "--json", "--pid", number}});
  }
  if (taking.python && (within < kTimeForNative || taking.parent)) return;
  if (tools.eu_stack.empty()) {
    taking.stacks.missing.push_back(kGetEuStack);
    return;
  }
  taking.native = runs.size();
  runs.push_back({{tools.eu_stack, "-m", "-p", number}});
  const bool has_time = within >= kTimeForLines && !taking.parent;
  if (is_python || !has_time) return;
  // Without inlined functions (-i) the line of the caller would be one of a header, such as libddp's.
  runs.back().command.insert(runs.back().command.begin() + 1, {"-s", "-i"});
}

}  // namespace

StackTools find_stack_tools(const std::string& python) {
  std::error_code unknown;
  StackTools tools = {py_spy_beside(python), in_path("eu-stack")};
  if (tools.py_spy.empty()) tools.py_spy = in_path("py-spy");
  if (tools.py_spy.empty()) tools.py_spy = py_spy_beside(std::filesystem::read_symlink("/proc/self/exe", unknown));
  return tools;
}

StackTools find_stack_tools(pid_t worker) {
  // The first word of its command line leads into a virtual environment; /proc/PID/exe leads out of it.
  const std::string python = contents(rendezvous::process_folder(worker) + "/cmdline").c_str();
  // Asked after the words were read: a process that has given up this user's rights cannot have them back.
  return find_stack_tools(is_of_this_user(worker) ? python : "");
}

std::vector<WorkerStacks> take_stacks(const std::vector<std::pair<int, pid_t>>& workers, const StackTools& tools,
                                      std::chrono::milliseconds within) {
  const auto deadline = std::chrono::steady_clock::now() + within;
  std::vector<Taking> all;
  std::vector<ToolRun> runs;
  for (const auto& [rank, pid] : workers) all.push_back({{rank, pid, {}, {}}});
  if (within >= kTimeForLines) add_children(all);
  for (Taking& taking : all) choose_tools(taking, tools, within, runs);
  run_tools(runs, deadline);
  std::vector<WorkerStacks> stacks;
  for (Taking& taking : all) {
    const bool stops = was_stopped(kernel_threads(taking.stacks.pid)) || is_about_to_stop(taking.stacks.pid);
    if (stops && !was_stopped(taking.before)) kill(taking.stacks.pid, SIGCONT);
    add_frames(taking, runs);
    if (!taking.parent) {
      stacks.push_back(std::move(taking.stacks));
    } else if (!taking.stacks.threads.empty()) {
      const std::string& name = taking.before.begin()->second.name;
      stacks[*taking.parent].children.push_back(
          {taking.stacks.pid, name, std::move(taking.stacks.threads), std::move(taking.stacks.missing)});
    }
  }
  return stacks;
}

}  // namespace ddp::launcher
