// SPDX-License-Identifier: BSD-3-Clause
// How the ranks of a group see at once that the process of another one dies, before the kernel frees its memory, which
// may take long. Each rank holds its liveness word in the segment as a robust futex is held: by the id of a thread, and
// by an entry in that thread's list of robust futexes. However the process ends, the kernel walks this list first, sets
// FUTEX_OWNER_DIED in the word, and wakes one of the threads that wait for it.
//
// All words of a process are held by one thread, ddp-peers, which ends after the last of its groups.
#pragma once

#include <linux/futex.h>

#include <atomic>
#include <cstdint>
#include <mutex>
#include <span>
#include <vector>

#include "collectives/host/memory/segment.hpp"

namespace ddp::collectives {

// Returns whether the process that held this word has died, or has become another program by exec.
inline bool holder_died(const LivenessWord& word) { return (word.holder.load() & FUTEX_OWNER_DIED) != 0; }

// The words that one thread holds.
class HeldWords {
 public:
  HeldWords();
  ~HeldWords();
  HeldWords(const HeldWords&) = delete;
  HeldWords& operator=(const HeldWords&) = delete;

  // Makes the calling thread the holder. It must use no robust mutex, since a thread has only one list. It holds
  // nothing if the system refuses; the other ranks then learn of this process's end from its lifeline only.
  void adopt_this_thread();

  // Any thread may call these two. A word must be released before its memory is unmapped.
  void hold(LivenessWord& word);
  void release(LivenessWord& word);

 private:
  std::mutex mutex_;
  // What the kernel reads. The process shares this page with nobody, but when memory runs out the kernel may take
  // private memory away from a process that it kills, before the list is walked.
  robust_list_head* head_ = nullptr;
  std::uint32_t thread_ = 0;
  std::vector<LivenessWord*> held_;  // the list's first entry is the last one
};

// What a thread may sleep on besides a word of its own: a word and its value.
struct SleepWord {
  const std::atomic<std::uint32_t>* word;
  std::uint32_t seen;
};
// The kernel allows as many in one sleep.
inline constexpr std::size_t kMostSleepWords = 128;

// Sleeps while all words have the values seen, at most `nanoseconds`. Before Linux 5.16, or where a container forbids
// it, sleeps on the first word only.
void sleep_on_all(std::span<const SleepWord> words, long nanoseconds);

}  // namespace ddp::collectives
