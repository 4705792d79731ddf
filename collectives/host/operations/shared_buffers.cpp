// SPDX-License-Identifier: BSD-3-Clause
#include "collectives/host/operations/shared_buffers.hpp"

#include <cstdio>
#include <cstring>
#include <string>
#include <utility>

#include "collectives/host/failure.hpp"

namespace ddp::collectives {

SharedBuffers::~SharedBuffers() {
  for (const auto& [memory, buffer] : buffers_) release(buffer);
}

unsigned char* SharedBuffers::allocate(std::size_t bytes, Steps& steps) {
  const Segment& segment = membership_.segment();
  const std::uint32_t rank = membership_.rank(), ranks = membership_.size();
  Buffer buffer = {nullptr, segment.whole_pages(std::max<std::size_t>(bytes, 1)), next_};
  next_ += buffer.bytes * ranks;  // also if it fails: all ranks go on at the same place
  std::string why;
  try {
    buffer.view = segment.allocate_heap(buffer.offset, buffer.bytes, rank);
  } catch (const Failure& failure) {
    why = failure.what();
  }
  // Every rank says whether it has the memory.
  bool all_have = true;
  try {
    const Step step = steps.begin(1);
    *steps.own(step) = why.empty() ? 1 : 0;
    steps.publish(step);
    steps.await_all(step);
    for (std::uint32_t r = 0; r < ranks; ++r) all_have = all_have && *steps.of(r, step) == 1;
  } catch (...) {
    if (buffer.view != nullptr) release(buffer);
    throw;
  }
  if (!all_have) {
    if (buffer.view != nullptr) release(buffer);
    static std::atomic<bool> said{false};
    if (!why.empty() && !said.exchange(true))
      std::fprintf(stderr, "libddp: a buffer of %zu bytes is in ordinary memory, which is slower: %s\n", bytes,
                   why.c_str());
    return nullptr;
  }
  unsigned char* const memory = buffer.view + rank * buffer.bytes;
  const std::lock_guard lock(mutex_);
  buffers_[memory] = buffer;
  return memory;
}

bool SharedBuffers::free(void* memory) {
  const std::lock_guard lock(mutex_);
  const auto found = buffers_.find(static_cast<const unsigned char*>(memory));
  if (found == buffers_.end()) return false;
  release(found->second);
  buffers_.erase(found);
  return true;
}

void SharedBuffers::release(const Buffer& buffer) const {
  membership_.segment().free_heap(buffer.view, buffer.offset, buffer.bytes, membership_.rank());
}

std::uint64_t SharedBuffers::place_of(const void* memory, std::size_t bytes) const {
  const auto* const begin = static_cast<const unsigned char*>(memory);
  const std::lock_guard lock(mutex_);
  auto found = buffers_.upper_bound(begin);
  if (found == buffers_.begin()) return 0;
  --found;
  const auto inside = static_cast<std::size_t>(begin - found->first);
  if (inside >= found->second.bytes || bytes > found->second.bytes - inside) return 0;
  return 1 + found->second.offset + inside;
}

unsigned char* SharedBuffers::of_rank(std::uint32_t rank, std::uint64_t place) const {
  const std::lock_guard lock(mutex_);
  for (const auto& [memory, buffer] : buffers_) {
    const std::uint64_t inside = place - 1 - buffer.offset;  // huge if the place lies before the buffer
    if (inside < buffer.bytes) return buffer.view + rank * buffer.bytes + inside;
  }
  throw Failure(DDP_BACKEND_ERROR, "a shared buffer was freed while a collective used it");
}

}  // namespace ddp::collectives
