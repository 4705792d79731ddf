// SPDX-License-Identifier: BSD-3-Clause
// The word in the agent's memory by which ddprun sees that this process lives. A thread holds it as a robust futex.
// However the process ends, the kernel releases the word and wakes the agent before it frees the process's memory,
// which may take long. launcher/process/liveness_words.hpp is the other side.
#pragma once

#include <linux/futex.h>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <string>

namespace ddp::runtime {

class LivenessWord {
 public:
  // Takes the word at `place`, the value of contract::kLivenessWord. The calling thread holds it; the same thread must
  // destroy it and use no robust mutex meanwhile, since a thread has only one list of those. If there is no word at
  // that place, or another process holds it, it is not held. The agent then notices the end as for any other program.
  explicit LivenessWord(const std::string& place);
  ~LivenessWord();
  LivenessWord(const LivenessWord&) = delete;
  LivenessWord& operator=(const LivenessWord&) = delete;

  bool held() const { return is_held_; }

 private:
  using Word = std::atomic<std::uint32_t>;

  bool open(const std::string& path, std::size_t index);
  bool hold();
  void wake_agent(const std::string& path, int index) const;

  std::size_t size_ = 0;
  Word* words_ = nullptr;  // the words of all workers
  Word* word_ = nullptr;   // this process's word
  bool is_held_ = false;
  // The list that the kernel walks when the thread ends. Its one entry leads to the word by futex_offset.
  robust_list entry_ = {};
  robust_list_head list_ = {};
  robust_list_head* list_before_ = nullptr;
};

}  // namespace ddp::runtime
