// SPDX-License-Identifier: BSD-3-Clause
#include "tests/rendezvous/store/allocation_meter.hpp"

#include <malloc.h>

#include <algorithm>
#include <cstdlib>
#include <new>

namespace {

constexpr std::size_t kHeaderBytes = 8;  // glibc's, in front of each block

std::size_t largest = 0;  // these tests have one thread
std::size_t live = 0;
std::size_t peak = 0;

std::size_t cost_of(void* memory) { return memory == nullptr ? 0 : malloc_usable_size(memory) + kHeaderBytes; }

}  // namespace

void* operator new(std::size_t size, const std::nothrow_t&) noexcept {
  largest = std::max(largest, size);
  void* const memory = std::malloc(std::max<std::size_t>(size, 1));
  live += cost_of(memory);
  peak = std::max(peak, live);
  return memory;
}
void* operator new(std::size_t size) {
  if (void* memory = ::operator new(size, std::nothrow)) return memory;
  throw std::bad_alloc();
}
void operator delete(void* memory) noexcept {
  live -= cost_of(memory);
  std::free(memory);
}
void operator delete(void* memory, std::size_t) noexcept { ::operator delete(memory); }

namespace ddp::rendezvous {

void reset_largest_allocation() { largest = 0; }
std::size_t largest_allocation() { return largest; }
std::size_t allocated_now() { return live; }
void reset_peak_allocation() { peak = live; }
std::size_t peak_allocation() { return peak; }

}  // namespace ddp::rendezvous
