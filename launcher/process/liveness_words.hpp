// SPDX-License-Identifier: BSD-3-Clause
// Liveness words report that a worker is dying as soon as the kernel begins to end it. waitpid
// reports it once the worker's memory is freed, some 100 ms later for each GiB. This needs the
// worker's help, so it works for workers that use libddp.
//
// A thread of the worker holds a word of this agent's memory the way robust futexes are held. When
// a thread ends, the kernel first marks such words and wakes the threads that wait for them.
//
//     worker: opens the memory, holds its word, writes its index into the wake-up pipe
//     agent:  reads the index; from then on a thread waits for that word
//
// So a job whose workers do not use this has no additional threads. A lost word only means that the
// worker should be checked: it may have executed another program.
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
  // `lost` is called as soon as a worker's word is lost, on a thread of this object.
  LivenessWords(int workers, std::function<void(int local_rank)> lost);
  ~LivenessWords();
  LivenessWords(const LivenessWords&) = delete;
  LivenessWords& operator=(const LivenessWords&) = delete;

  // Returns a worker's value of contract::kLivenessWord; empty if the kernel does not provide such
  // memory.
  std::string of_worker(int local_rank) const;
  // Returns the reading end of the wake-up pipe, non-blocking: each int in it is the local rank of
  // a worker to watch.
  rendezvous::Descriptor take_wake_up_pipe();
  // Watches a worker's word from now on, and after a restart the word of its successor with this
  // local rank. Does nothing if the rank is out of range or is watched already.
  void watch(int local_rank);

 private:
  using Word = std::atomic<std::uint32_t>;

  void wait_for_loss(int local_rank);
  Word& word_of(int local_rank) const;

  const std::function<void(int)> lost_;
  rendezvous::Descriptor memory_;
  rendezvous::Pipe wake_up_;
  std::size_t size_ = 0;
  Word* words_ = nullptr;  // worker i's is at contract::kFirstLivenessWord + i
  std::vector<std::thread> watchers_;
};

}  // namespace ddp::launcher
