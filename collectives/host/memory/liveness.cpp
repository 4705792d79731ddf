// SPDX-License-Identifier: BSD-3-Clause
#include "collectives/host/memory/liveness.hpp"

#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <ctime>

#include "rendezvous/base/check.hpp"

namespace ddp::collectives {
namespace {

// The kernel follows no more entries of a list (ROBUST_LIST_LIMIT is 2048).
constexpr std::size_t kMostHeld = 2000;

// linux/futex.h has these since 5.16.
constexpr long kFutexWaitV = 449;  // on every processor
constexpr std::uint32_t kFutexOf32Bits = 2;
struct WaitV {
  std::uint64_t value, address;
  std::uint32_t flags, reserved;
};

// The kernel may read the pointer whenever the process dies.
void point(robust_list*& from, robust_list* to) { std::atomic_ref(from).store(to, std::memory_order_release); }

}  // namespace

HeldWords::HeldWords() {
  void* const page = mmap(nullptr, sizeof *head_, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  if (page == MAP_FAILED) return;
  head_ = new (page) robust_list_head();
  head_->list.next = &head_->list;
  // Each word has its entry beside it, so one distance serves for all.
  head_->futex_offset = offsetof(LivenessWord, holder) - offsetof(LivenessWord, entry);
}

HeldWords::~HeldWords() {
  if (head_ != nullptr) munmap(head_, sizeof *head_);
}

void HeldWords::adopt_this_thread() {
  const std::lock_guard lock(mutex_);
  if (head_ == nullptr || syscall(SYS_set_robust_list, head_, sizeof *head_) != 0) return;
  thread_ = static_cast<std::uint32_t>(syscall(SYS_gettid));
}

void HeldWords::hold(LivenessWord& word) {
  const std::lock_guard lock(mutex_);
  if (thread_ == 0 || held_.size() >= kMostHeld) return;
  word.entry.next = held_.empty() ? &head_->list : &held_.back()->entry;
  held_.push_back(&word);
  point(head_->list.next, &word.entry);
  word.holder = thread_ | FUTEX_WAITERS;  // with this bit the kernel wakes a thread that waits
}

void HeldWords::release(LivenessWord& word) {
  const std::lock_guard lock(mutex_);
  const auto place = std::find(held_.begin(), held_.end(), &word);
  if (place == held_.end()) return;
  word.holder = 0;
  point(place + 1 == held_.end() ? head_->list.next : (*(place + 1))->entry.next, word.entry.next);
  held_.erase(place);
}

void sleep_on_all(std::span<const SleepWord> words, long nanoseconds) {
  static std::atomic<bool> is_missing{false};
  DDP_CHECK(words.size() <= kMostSleepWords, words.size(), kMostSleepWords);
  if (!is_missing.load(std::memory_order_relaxed)) {
    std::array<WaitV, kMostSleepWords> all;
    for (std::size_t i = 0; i < words.size(); ++i) {
      all[i] = {words[i].seen, reinterpret_cast<std::uintptr_t>(words[i].word), kFutexOf32Bits, 0};
    }
    timespec until = {};
    clock_gettime(CLOCK_MONOTONIC, &until);
    until.tv_nsec += nanoseconds;
    until.tv_sec += until.tv_nsec / 1'000'000'000;
    until.tv_nsec %= 1'000'000'000;
    const long result = syscall(kFutexWaitV, all.data(), words.size(), 0, &until, CLOCK_MONOTONIC);
    if (result >= 0 || errno == EAGAIN || errno == ETIMEDOUT || errno == EINTR) return;
    is_missing = true;
  }
  sleep_on(*words.front().word, words.front().seen, nanoseconds);
}

}  // namespace ddp::collectives
