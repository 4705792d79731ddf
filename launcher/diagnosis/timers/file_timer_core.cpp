// SPDX-License-Identifier: BSD-3-Clause
#include "launcher/diagnosis/timers/file_timer_core.hpp"

#include <algorithm>
#include <csignal>
#include <utility>

#include "rendezvous/base/text.hpp"
#include "rendezvous/link/printable.hpp"
#include "rendezvous/wire/declared_json.hpp"

namespace ddp::launcher {

namespace {

constexpr std::size_t kScopeShown = 200;  // bytes
constexpr std::size_t kScopesShown = 8;
constexpr std::size_t kMostScopeBytes = 4096;  // PyTorch's lines have no more
constexpr std::size_t kMostTimers = 10'000;    // in all processes

// Times that no clock reaches become ones that it can hold.
FileTimerCore::Time to_time(double unix_seconds) {
  constexpr double kFarthest = 4e9;  // in the year 2096
  const std::chrono::duration<double> since(std::min(unix_seconds, kFarthest));
  return FileTimerCore::Time(std::chrono::duration_cast<FileTimerCore::Time::duration>(since));
}

}  // namespace

template <typename Json>
void members(Json& json, TimerRequest& request) {
  json.must("pid", request.pid).must("scope_id", request.scope);
  json.must("expiration_time", request.expiration).must("signal", request.signal);
}

std::optional<TimerRequest> parse_timer_request(std::string_view line) {
  auto request = rendezvous::read_json<TimerRequest>(line);
  if (!request || request->pid <= 0 || request->signal >= NSIG || request->scope.size() > kMostScopeBytes) return {};
  return request;
}

std::string describe(const ExpiredTimers& timers) {
  std::vector<std::string> scopes;
  for (const std::string& scope : timers.scopes) {
    scopes.push_back('"' + rendezvous::cut_line(rendezvous::printable_line(scope), kScopeShown) + '"');
  }
  return (scopes.size() == 1 ? "the timer of scope " : "the timers of scopes ") +
         rendezvous::list_of(scopes, kScopesShown) + " expired (torch.distributed.elastic.timer)";
}

void FileTimerCore::take(const TimerRequest& request, std::uint64_t start_time) {
  if (request.expiration < 0) {
    const auto process = processes_.find(request.pid);
    if (process == processes_.end()) return;
    process->second.timers.erase(request.scope);
    if (process->second.timers.empty()) processes_.erase(process);
    return;
  }
  Process& process = processes_[request.pid];
  if (std::exchange(process.start_time, start_time) != start_time) process.timers.clear();
  std::size_t timers = 0;
  for (const auto& [pid, each] : processes_) timers += each.timers.size();
  // A program with this many timers is broken, and their memory is the agent's.
  if (timers >= kMostTimers && !process.timers.contains(request.scope)) return;
  process.timers[request.scope] = {to_time(request.expiration), request.signal};
}

std::vector<ExpiredTimers> FileTimerCore::expire(Time now) {
  std::vector<ExpiredTimers> all;
  for (auto process = processes_.begin(); process != processes_.end();) {
    std::vector<std::pair<std::string, Timer>> expired;
    for (const auto& [scope, timer] : process->second.timers) {
      if (timer.expiration <= now) expired.emplace_back(scope, timer);
    }
    if (expired.empty()) {
      ++process;
      continue;
    }
    std::stable_sort(expired.begin(), expired.end(),
                     [](const auto& a, const auto& b) { return a.second.expiration < b.second.expiration; });
    ExpiredTimers timers = {process->first, process->second.start_time, {}, 0};
    for (const auto& [scope, timer] : expired) {
      timers.scopes.push_back(scope);
      if (timers.signal == 0) timers.signal = std::max(timer.signal, 0);  // the first one that names a signal
    }
    all.push_back(std::move(timers));
    process = processes_.erase(process);
  }
  return all;
}

std::optional<FileTimerCore::Time> FileTimerCore::next() const {
  std::optional<Time> next;
  for (const auto& [pid, process] : processes_) {
    for (const auto& [scope, timer] : process.timers) next = std::min(next.value_or(Time::max()), timer.expiration);
  }
  return next;
}

}  // namespace ddp::launcher
