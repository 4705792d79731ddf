// SPDX-License-Identifier: BSD-3-Clause
#include "launcher/diagnosis/hang_core.hpp"

#include <algorithm>

namespace ddp::launcher {
namespace {

using std::chrono::milliseconds;

constexpr int kLooksInTimeout = 8;  // signs are looked for this often
constexpr milliseconds kLooksAtLeast{20}, kLooksAtMost{1000};
constexpr int kSightsInTimeout = 16;  // stacks for a proof are taken at this distance
constexpr milliseconds kSightsAtLeast{100}, kSightsAtMost{5000};
constexpr milliseconds kSleptThrough{
    2000};  // a look this late means that this process was stopped, its workers perhaps too

constexpr int kIdlePart = 20;  // a thread that used less than this part of the time does nothing
constexpr milliseconds kLeastWork{20};
constexpr std::int64_t kLeastFileBytes = 65536;

bool have_equal_functions(const std::vector<StackFrame>& a, const std::vector<StackFrame>& b) {
  return std::equal(a.begin(), a.end(), b.begin(), b.end(), [](const StackFrame& x, const StackFrame& y) {
    return x.function == y.function && x.file == y.file;
  });
}

bool is_busy(const WorkerActivity& before, const WorkerActivity& after, pid_t thread, milliseconds time) {
  const auto was = before.threads.find(thread), is = after.threads.find(thread);
  if (was == before.threads.end() || is == after.threads.end()) return false;
  return is->second - was->second >= std::max(kLeastWork, time / kIdlePart);
}

const WorkerStacks* of_rank(const std::vector<WorkerStacks>& stacks, int rank) {
  const auto found = std::find_if(stacks.begin(), stacks.end(), [&](const WorkerStacks& w) { return w.rank == rank; });
  return found == stacks.end() ? nullptr : &*found;
}

// Returns whether the functions differ, as far as they could be read both times.
bool differ(const std::vector<StackFrame>& a, const std::vector<StackFrame>& b) {
  return !a.empty() && !b.empty() && !have_equal_functions(a, b);
}

bool went_on(const ThreadStack& before, const ThreadStack& after, bool is_main, bool is_busy) {
  const bool is_unreadable = after.python.empty() && after.native.empty();
  const bool python = differ(before.python, after.python);
  return (python && is_main) || (is_busy && (python || is_unreadable || differ(before.native, after.native)));
}

}  // namespace

void HangCore::begin(TimePoint now) {
  signs_ = {};
  last_look_ = now;
  note_sign(now);
}

void HangCore::note_sign(TimePoint now) {
  state_ = State::Watching;
  last_sign_ = now;
  sight_.reset();
  proofs_ = 0;
  next_ = now + std::clamp(timeout_ / kLooksInTimeout, kLooksAtLeast, kLooksAtMost);
}

bool HangCore::all_show_steps() const {
  return !signs_.workers.empty() && std::all_of(signs_.workers.begin(), signs_.workers.end(),
                                                [](const WorkerSigns& worker) { return worker.step_at != 0; });
}

bool HangCore::is_sign(const Signs& now) const {
  const auto oldest = [](const Signs& signs) {
    std::int64_t step_at = INT64_MAX;
    for (const WorkerSigns& worker : signs.workers) step_at = std::min(step_at, worker.step_at);
    return step_at;
  };
  if (now.output != signs_.output || now.workers.size() != signs_.workers.size()) return true;
  const auto written = [](const WorkerSigns& a, const WorkerSigns& b) { return a.written == b.written; };
  if (!std::equal(now.workers.begin(), now.workers.end(), signs_.workers.begin(), written)) return true;
  return all_show_steps() ? oldest(now) != oldest(signs_) : now.workers != signs_.workers;
}

void HangCore::see(TimePoint now, const Signs& signs) {
  const bool has_slept = now - last_look_ > std::max(kSleptThrough, 2 * kSightsAtMost);
  last_look_ = now;
  const bool sign = is_sign(signs) || has_slept;
  signs_ = signs;
  if (sign) return note_sign(now);
  if (state_ == State::Watching && now - last_sign_ >= timeout_) state_ = State::Proving;
  const auto looks = std::clamp(timeout_ / kLooksInTimeout, kLooksAtLeast, kLooksAtMost);
  const auto sights = std::clamp(timeout_ / kSightsInTimeout, kSightsAtLeast, kSightsAtMost);
  next_ = now + (state_ == State::Proving ? sights : looks);
}

bool HangCore::prove(TimePoint now, const std::vector<WorkerStacks>& stacks,
                     const std::map<int, WorkerActivity>& activity) {
  if (state_ != State::Proving || stacks.empty()) return false;  // a sign came meanwhile, or nothing could be taken
  Sight sight{now, stacks, activity};
  if (!all_show_steps()) {
    if (sight_ && is_work(*sight_, sight)) {
      note_sign(now);
      return false;
    }
    proofs_ += sight_ ? 1 : 0;
    sight_ = std::move(sight);
    if (proofs_ < kProofs) return false;
  }
  state_ = State::Told;
  return true;
}

bool HangCore::is_work(const Sight& before, const Sight& after) {
  const auto time = std::chrono::duration_cast<milliseconds>(after.at - before.at);
  for (const WorkerStacks& worker : after.stacks) {
    const auto used = before.activity.find(worker.rank), uses = after.activity.find(worker.rank);
    if (used == before.activity.end() || uses == after.activity.end()) continue;
    if (uses->second.file_bytes - used->second.file_bytes >= kLeastFileBytes) return true;
    if (uses->second.children - used->second.children >= std::max(kLeastWork, time / kIdlePart)) return true;
    const WorkerStacks* const was = of_rank(before.stacks, worker.rank);
    if (was == nullptr) continue;
    for (const ThreadStack& thread : worker.threads) {
      const auto earlier = std::find_if(was->threads.begin(), was->threads.end(),
                                        [&](const ThreadStack& t) { return t.id == thread.id; });
      if (earlier == was->threads.end()) continue;
      const bool busy = is_busy(used->second, uses->second, thread.id, time);
      if (went_on(*earlier, thread, thread.id == worker.pid, busy)) return true;
    }
  }
  return false;
}

}  // namespace ddp::launcher
