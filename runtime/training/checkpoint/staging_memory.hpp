// SPDX-License-Identifier: BSD-3-Clause
// Memory for the copy of what is being saved. Kept for the next time: the first touch of fresh memory costs more than
// the copy itself.
#pragma once

#include <sys/mman.h>

#include <cstdint>
#include <cstdlib>
#include <memory>
#include <new>

namespace ddp::runtime {

class StagingMemory {
 public:
  // At least so many bytes, with anything in them. What was there before is gone.
  char* reserve(std::uint64_t bytes) {
    if (bytes <= size_) return memory_.get();
    memory_.reset();
    size_ = 0;
    const std::uint64_t size = (bytes + kAlignment - 1) / kAlignment * kAlignment;
    memory_.reset(static_cast<char*>(std::aligned_alloc(kAlignment, size)));
    if (memory_ == nullptr) throw std::bad_alloc();
    madvise(memory_.get(), size, MADV_HUGEPAGE);  // fewer first touches; a hint
    size_ = size;
    return memory_.get();
  }

 private:
  static constexpr std::uint64_t kAlignment = 2ULL << 20;  // of a huge page
  struct Free {
    void operator()(char* memory) const { std::free(memory); }
  };
  std::unique_ptr<char, Free> memory_;
  std::uint64_t size_ = 0;
};

}  // namespace ddp::runtime
