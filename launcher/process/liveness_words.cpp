// SPDX-License-Identifier: BSD-3-Clause
#include "launcher/process/liveness_words.hpp"

#include <fcntl.h>
#include <linux/futex.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <climits>
#include <utility>

#include "rendezvous/base/thread.hpp"
#include "rendezvous/machine/process_folder.hpp"
#include "rendezvous/worker_contract.hpp"

namespace ddp::launcher {

using rendezvous::Descriptor;

namespace {

namespace contract = rendezvous::contract;

#ifndef MFD_NOEXEC_SEAL
constexpr unsigned MFD_NOEXEC_SEAL = 8;  // Linux 6.3
#endif

// No thread has this id, so no worker can take the word, and the thread that waits for it knows
// that it must end.
constexpr std::uint32_t kClosed = FUTEX_TID_MASK;

// Returns shared memory whose size is sealed: a process that has it open could otherwise shrink it,
// and the agent or a worker would crash where it accesses it.
Descriptor make_memory(std::size_t size) {
  constexpr unsigned kFlags = MFD_CLOEXEC | MFD_ALLOW_SEALING;
  Descriptor memory(memfd_create(contract::kLivenessWordsName, kFlags | MFD_NOEXEC_SEAL));
  if (!memory && errno == EINVAL) memory = Descriptor(memfd_create(contract::kLivenessWordsName, kFlags));
  const bool is_made = memory && ftruncate(memory.get(), static_cast<off_t>(size)) == 0 &&
                       fcntl(memory.get(), F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW) == 0;
  return is_made ? std::move(memory) : Descriptor();
}

void wait_while(const std::atomic<std::uint32_t>& word, std::uint32_t value) {
  syscall(SYS_futex, &word, FUTEX_WAIT, value, nullptr, nullptr, 0);
}

}  // namespace

LivenessWords::LivenessWords(int workers, std::function<void(int)> lost)
    : lost_(std::move(lost)),
      size_((contract::kFirstLivenessWord + static_cast<std::size_t>(workers)) * sizeof(Word)),
      watchers_(static_cast<std::size_t>(workers)) {
  static_assert(sizeof(Word) == sizeof(std::uint32_t));
  auto wake_up = rendezvous::try_pipe(O_NONBLOCK);
  if (!wake_up) return;
  wake_up_ = std::move(*wake_up);
  memory_ = make_memory(size_);
  if (!memory_) return;
  void* const memory = mmap(nullptr, size_, PROT_READ | PROT_WRITE, MAP_SHARED, memory_.get(), 0);
  if (memory == MAP_FAILED) return;
  words_ = static_cast<Word*>(memory);
  words_[contract::kLivenessWakeUpPipe] = static_cast<std::uint32_t>(wake_up_.write_end.get());
}

LivenessWords::~LivenessWords() {
  for (std::size_t i = 0; i < watchers_.size(); ++i) {
    if (!watchers_[i].joinable()) continue;
    Word& word = word_of(static_cast<int>(i));
    word = kClosed;
    syscall(SYS_futex, &word, FUTEX_WAKE, INT_MAX, nullptr, nullptr, 0);
    watchers_[i].join();
  }
  if (words_ != nullptr) munmap(words_, size_);
}

std::string LivenessWords::of_worker(int local_rank) const {
  if (words_ == nullptr) return "";
  return rendezvous::process_folder(getpid()) + "/fd/" + std::to_string(memory_.get()) + ":" +
         std::to_string(local_rank);
}

Descriptor LivenessWords::take_wake_up_pipe() { return std::move(wake_up_.read_end); }

void LivenessWords::watch(int local_rank) {
  if (words_ == nullptr || local_rank < 0 || static_cast<std::size_t>(local_rank) >= watchers_.size()) return;
  std::thread& watcher = watchers_[static_cast<std::size_t>(local_rank)];
  if (watcher.joinable()) return;
  try {
    watcher = rendezvous::start_thread("ddprun-liveness", [this, local_rank] { wait_for_loss(local_rank); });
  } catch (const std::exception&) {  // no thread can be started: this worker is left to waitpid
  }
}

void LivenessWords::wait_for_loss(int local_rank) {
  Word& word = word_of(local_rank);
  for (std::uint32_t seen = word; seen != kClosed; seen = word) {
    if ((seen & FUTEX_TID_MASK) == 0 && (seen & FUTEX_OWNER_DIED) != 0) {
      word.compare_exchange_strong(seen, 0);  // else an early death of the next holder would look like this one
      lost_(local_rank);
    } else {
      wait_while(word, seen);  // also while it is not held: the kernel wakes this thread when the next holder dies
    }
  }
}

LivenessWords::Word& LivenessWords::word_of(int local_rank) const {
  return words_[contract::kFirstLivenessWord + static_cast<std::size_t>(local_rank)];
}

}  // namespace ddp::launcher
