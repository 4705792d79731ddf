// SPDX-License-Identifier: BSD-3-Clause
// Tells that a worker dies when the kernel begins to take it apart; waitpid does so once its memory is taken back, some
// 100 ms for each GiB later. Without the worker's help nothing does, so it is for workers of libddp.
//
// A thread of the worker holds a word of this agent's memory as the kernel's robust futexes are held: the first thing
// that is done for a thread that ends is to mark such words and to wake who waits for them.
//
//     worker: opens the memory, holds its word, writes its number into a pipe (the bell)
//     agent:  hears the bell; from then on a thread of its own waits for that word
//
// So a job whose workers know nothing of this has no thread more. That a word is lost says only that it is time to look
// at the worker: it may have become another program (exec).
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <thread>
#include <vector>

#include "rendezvous/base/descriptor.hpp"
#include "rendezvous/base/pipe.hpp"

namespace ddp::launcher {

class LivenessWords {
 public:
  // lost: called on a thread of this, at once when a worker's word is lost.
  LivenessWords(int workers, std::function<void(int local_rank)> lost);
  ~LivenessWords();
  LivenessWords(const LivenessWords&) = delete;
  LivenessWords& operator=(const LivenessWords&) = delete;

  // What a worker is told (contract::kLivenessWord); empty: this kernel gives us no such memory.
  std::string of_worker(int local_rank) const;
  // Comes to hold an int, the local rank of a worker to watch.
  rendezvous::Descriptor take_wake_up_pipe();
  // From now on, also when its place is taken by another worker. Out of range, or watched already: nothing happens.
  void watch(int local_rank);

 private:
  using Word = std::atomic<std::uint32_t>;

  void wait_for_loss(int local_rank);
  Word& word_of(int local_rank) const;

  const std::function<void(int)> lost_;
  rendezvous::Descriptor memory_;
  rendezvous::Pipe wake_up_;
  std::size_t size_ = 0;
  Word* words_ = nullptr;  // contract::kFirstLivenessWord says which is whose
  std::vector<std::thread> watchers_;
};

}  // namespace ddp::launcher
