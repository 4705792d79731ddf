// SPDX-License-Identifier: BSD-3-Clause
#include "runtime/diagnosis/liveness_word.hpp"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <string_view>

#include "rendezvous/base/descriptor.hpp"
#include "rendezvous/base/text.hpp"
#include "rendezvous/worker_contract.hpp"

namespace ddp::runtime {
namespace {

namespace contract = rendezvous::contract;

// Returns whether the path is an agent's memfd. In another pid namespace than the agent's, it may be another file.
bool is_of_an_agent(const std::string& path) {
  const std::string expected = std::string("/memfd:") + contract::kLivenessWordsName;
  char target[128];
  const ssize_t size = readlink(path.c_str(), target, sizeof target);
  return size > 0 && std::string_view(target, static_cast<std::size_t>(size)).starts_with(expected);
}

// Returns the word's value while this thread holds it. glibc has gettid() since 2.30 only.
std::uint32_t held_by_this_thread() { return static_cast<std::uint32_t>(syscall(SYS_gettid)) | FUTEX_WAITERS; }

}  // namespace

LivenessWord::LivenessWord(const std::string& place) {
  const auto colon = place.rfind(':');
  if (colon == std::string::npos) return;
  const int index = rendezvous::parse_number<int>(place.substr(colon + 1)).value_or(-1);
  const std::string path = place.substr(0, colon);
  if (index < 0 || !open(path, static_cast<std::size_t>(index))) return;
  is_held_ = hold();
  if (is_held_) wake_agent(path, index);
}

LivenessWord::~LivenessWord() {
  if (is_held_) {
    std::uint32_t own = held_by_this_thread();
    word_->compare_exchange_strong(own, 0);  // does nothing if the agent has closed it
    syscall(SYS_set_robust_list, list_before_, sizeof list_);
  }
  if (words_ != nullptr) munmap(words_, size_);
}

bool LivenessWord::open(const std::string& path, std::size_t index) {
  if (!is_of_an_agent(path)) return false;
  const rendezvous::Descriptor fd(::open(path.c_str(), O_RDWR | O_CLOEXEC));
  if (!fd) return false;
  struct stat file = {};
  if (fstat(fd.get(), &file) == 0) size_ = static_cast<std::size_t>(file.st_size);
  const std::size_t word = contract::kFirstLivenessWord + index;
  if (size_ < (word + 1) * sizeof(Word)) return false;
  void* const memory = mmap(nullptr, size_, PROT_READ | PROT_WRITE, MAP_SHARED, fd.get(), 0);
  if (memory == MAP_FAILED) return false;
  words_ = static_cast<Word*>(memory);
  word_ = words_ + word;
  return true;
}

// Writes this thread's id, which the kernel compares, and FUTEX_WAITERS, which makes it wake the agent.
bool LivenessWord::hold() {
  std::size_t size = 0;
  if (syscall(SYS_get_robust_list, 0, &list_before_, &size) != 0 || size != sizeof list_) return false;
  std::uint32_t seen = *word_;
  if ((seen & FUTEX_TID_MASK) != 0) return false;
  entry_.next = &list_.list;
  list_.list.next = &entry_;
  list_.futex_offset = reinterpret_cast<char*>(word_) - reinterpret_cast<char*>(&entry_);
  if (syscall(SYS_set_robust_list, &list_, sizeof list_) != 0) return false;
  while ((seen & FUTEX_TID_MASK) == 0) {  // the agent may be handling the last holder's death meanwhile
    if (word_->compare_exchange_weak(seen, held_by_this_thread())) return true;
  }
  syscall(SYS_set_robust_list, list_before_, sizeof list_);
  return false;
}

// Writes the index to the agent's wake-up pipe, so that the agent watches the word. The kernel wakes an agent that
// watches it already, since a worker of a past round held it, even if this fails.
void LivenessWord::wake_agent(const std::string& path, int index) const {
  const std::string folder = path.substr(0, path.rfind('/') + 1);
  const std::string pipe = folder + std::to_string(words_[contract::kLivenessWakeUpPipe].load());
  const rendezvous::Descriptor fd(::open(pipe.c_str(), O_WRONLY | O_NONBLOCK | O_CLOEXEC));
  [[maybe_unused]] const ssize_t written = fd ? write(fd.get(), &index, sizeof index) : -1;
}

}  // namespace ddp::runtime
