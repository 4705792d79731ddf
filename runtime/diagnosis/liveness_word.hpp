// SPDX-License-Identifier: BSD-3-Clause
// This process's sign of life to ddprun: a word of the agent's memory, held by a thread. However the process ends, the
// kernel takes the word away before the process's memory, which may take long, and wakes the agent
// (launcher/process/liveness_words.hpp is the other side).
#pragma once

#include <linux/futex.h>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <string>

namespace ddp::runtime {

class LivenessWord {
 public:
  // From the thread that is to hold it, which ends it too and must use no robust mutex meanwhile: a thread has one list
  // of those. place: contract::kLivenessWord. Where there is nothing at that place, or another process is there
  // already, it is not held: then the agent hears of the end as of any other program's.
  explicit LivenessWord(const std::string& place);
  ~LivenessWord();
  LivenessWord(const LivenessWord&) = delete;
  LivenessWord& operator=(const LivenessWord&) = delete;

  bool held() const { return is_held_; }

 private:
  using Word = std::atomic<std::uint32_t>;

  bool open(const std::string& path, std::size_t index);
  bool hold();
  void ring(const std::string& path, int index) const;

  std::size_t size_ = 0;
  Word* words_ = nullptr;  // all workers'
  Word* word_ = nullptr;   // ours
  bool is_held_ = false;
  // What the kernel walks when the thread ends: one entry, which it takes for the word by the offset between them.
  robust_list entry_ = {};
  robust_list_head list_ = {};
  robust_list_head* list_before_ = nullptr;
};

}  // namespace ddp::runtime
