// SPDX-License-Identifier: BSD-3-Clause
// Memory for the copy of what is being saved. It is kept for the next save, because the first touch
// of fresh memory costs more than the copy itself.
#pragma once

#include <sys/mman.h>

#include <cstdint>
#include <cstdlib>
#include <memory>
#include <new>

namespace ddp::runtime {

class StagingMemory {
 public:
  // Returns at least this many bytes, uninitialised. The previous content is lost.
  char* reserve(std::uint64_t bytes) {
    if (bytes <= size_) return memory_.get();
    memory_.reset();
    size_ = 0;
    const std::uint64_t size = (bytes + kAlignment - 1) / kAlignment * kAlignment;
    memory_.reset(static_cast<char*>(std::aligned_alloc(kAlignment, size)));
    if (memory_ == nullptr) throw std::bad_alloc();
    madvise(memory_.get(), size, MADV_HUGEPAGE);  // a hint: fewer page faults at the first touch
    size_ = size;
    return memory_.get();
  }

 private:
  static constexpr std::uint64_t kAlignment = 2ULL << 20;  // the size of a huge page
  struct Free {
    void operator()(char* memory) const { std::free(memory); }
  };
  std::unique_ptr<char, Free> memory_;
  std::uint64_t size_ = 0;
};

}  // namespace ddp::runtime
