// SPDX-License-Identifier: BSD-3-Clause
#include "launcher/agent/timers/file_timer_core.hpp"

#include <algorithm>
#include <csignal>
#include <utility>

#include "launcher/text/json_text.hpp"
#include "rendezvous/base/text.hpp"
#include "rendezvous/link/printable.hpp"

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

template <typename Integer>
std::optional<Integer> integer_in(const JsonMembers& members, const char* name) {
  const auto found = members.find(name);
  const auto* value = found == members.end() ? nullptr : std::get_if<std::int64_t>(&found->second);
  if (!value || !std::in_range<Integer>(*value)) return std::nullopt;
  return static_cast<Integer>(*value);
}

std::optional<double> number_in(const JsonMembers& members, const char* name) {
  const auto found = members.find(name);
  if (found == members.end()) return std::nullopt;
  if (const auto* value = std::get_if<double>(&found->second)) return *value;
  if (const auto* value = std::get_if<std::int64_t>(&found->second)) return static_cast<double>(*value);
  return std::nullopt;
}

}  // namespace

std::optional<TimerRequest> parse_timer_request(std::string_view line) {
  const std::optional<JsonMembers> members = json_members(line);
  if (!members) return std::nullopt;
  const auto pid = integer_in<pid_t>(*members, "pid");
  const auto scope = members->find("scope_id");
  const auto expiration = number_in(*members, "expiration_time");
  const auto signal = integer_in<int>(*members, "signal");
  if (!pid || *pid <= 0 || !expiration || !signal || *signal >= NSIG) return std::nullopt;
  if (scope == members->end() || !std::holds_alternative<std::string>(scope->second)) return std::nullopt;
  const auto& name = std::get<std::string>(scope->second);
  if (name.size() > kMostScopeBytes) return std::nullopt;
  return TimerRequest{*pid, name, *expiration, *signal};
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
