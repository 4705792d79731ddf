// SPDX-License-Identifier: BSD-3-Clause
#include "launcher/diagnosis/hang_watch.hpp"

#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <sstream>
#include <string>
#include <utility>

#include "launcher/diagnosis/stacks/kernel_state.hpp"
#include "launcher/text/time_text.hpp"
#include "rendezvous/base/text.hpp"
#include "rendezvous/machine/process_folder.hpp"

namespace ddp::launcher {
namespace {

using Clock = std::chrono::steady_clock;

constexpr std::chrono::milliseconds kProofWithin{2500};  // without the lines of native code
// Nobody waits for the stacks of a verdict, so there is time to find these lines.
constexpr std::chrono::seconds kVerdictWithin{7};

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

// Returns what a process has done so far; nothing of what cannot be read. Needs no right that the owner of a process
// does not have.
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

// Returns the sizes of the files that are a process's stdout and stderr; 0 for a pipe or a terminal.
std::int64_t written_by(pid_t process) {
  std::int64_t bytes = 0;
  for (const char* stream : {"1", "2"}) {
    struct stat facts = {};
    const std::string path = rendezvous::process_folder(process) + "/fd/" + stream;
    if (stat(path.c_str(), &facts) == 0 && S_ISREG(facts.st_mode)) bytes += facts.st_size;
  }
  return bytes;
}

}  // namespace

HangWatch::HangWatch(rendezvous::asio::io_context& io, std::chrono::milliseconds timeout, Sources sources,
                     Callbacks callbacks)
    : timeout_(timeout),
      sources_(std::move(sources)),
      callbacks_(std::move(callbacks)),
      core_(timeout),
      helper_(io),
      timer_(io) {}

void HangWatch::begin() {
  ended_.clear();
  is_watching_ = timeout_.count() > 0;
  resume();
}

void HangWatch::suspend() {
  helper_.cancel();
  timer_.cancel();
}

void HangWatch::resume() {
  if (!is_watching_) return;
  core_.begin(Clock::now());
  wait();
}

void HangWatch::end() {
  is_watching_ = false;
  suspend();
}

void HangWatch::wait() {
  timer_.expires_at(core_.next());
  timer_.async_wait([this](const auto& error) {
    if (!error && is_watching_) look();
  });
}

void HangWatch::look() {
  Signs signs;
  signs.output = sources_.output();
  const auto workers = sources_.workers();
  for (const StackHelper::Worker& worker : workers) {
    std::uint64_t calls = 0;
    for (const GroupCalls& group : worker.calls) calls += group.operations;
    signs.workers.push_back({worker.rank, sources_.step_at(worker.rank), written_by(worker.pid), calls});
  }
  const bool stood_still = core_.has_told();
  const auto last_sign = core_.last_sign();
  core_.see(Clock::now(), signs);
  const bool tells = stood_still || callbacks_.proof_holds;
  if (tells && core_.last_sign() != last_sign) callbacks_.goes_on();
  if (!core_.wants_stacks()) return wait();
  activity_.clear();
  for (const StackHelper::Worker& worker : workers) activity_[worker.rank] = activity_of(worker.pid);
  helper_.take(workers, kProofWithin, [this](const std::vector<WorkerStacks>& stacks) { prove(stacks); });
}

void HangWatch::prove(const std::vector<WorkerStacks>& stacks) {
  if (!core_.prove(Clock::now(), stacks, activity_)) return wait();
  if (callbacks_.proof_holds) {
    wait();
    return callbacks_.proof_holds();
  }
  helper_.take(sources_.workers(), kVerdictWithin, [this, stacks](const std::vector<WorkerStacks>& with_lines) {
    wait();
    callbacks_.stands_still(describe(with_lines.empty() ? stacks : with_lines));
  });
}

std::chrono::milliseconds HangWatch::still_for() const {
  return std::chrono::duration_cast<std::chrono::milliseconds>(Clock::now() - core_.last_sign());
}

NodeStillness HangWatch::stillness() const {
  NodeStillness own = {.is_watched = timeout_.count() > 0,
                       .is_still = is_watching_ && core_.has_told(),
                       .shows_steps = core_.all_show_steps(),
                       .since = is_watching_ ? still_for() : std::chrono::milliseconds(0)};
  for (const auto& [rank, how] : ended_) own.ended.push_back(rank);
  own.link = sources_.link();
  return own;
}

std::string describe_since(std::chrono::milliseconds still) {
  const auto began = std::chrono::time_point_cast<std::chrono::milliseconds>(std::chrono::system_clock::now() - still);
  const auto whole = std::chrono::floor<std::chrono::seconds>(still);
  const std::chrono::milliseconds shown = whole.count() > 0 ? whole : still;
  return "no output and no step for " + rendezvous::to_string(shown) + ", since " + local_time(began, "%H:%M:%S");
}

std::string describe_hang_links(const std::string& links) {
  return "round trips of the nodes' links to the one that coordinates: " + links;
}

Hang HangWatch::describe(const std::vector<WorkerStacks>& stacks) const {
  return {find_culprit(stacks, ended_), describe_since(still_for()), stacks};
}

}  // namespace ddp::launcher
