// SPDX-License-Identifier: BSD-3-Clause
#include "tests/rendezvous/store/allocation_meter.hpp"

#include <algorithm>
#include <cstdlib>
#include <new>

namespace {

std::size_t largest = 0;  // these tests have one thread

}  // namespace

void* operator new(std::size_t size, const std::nothrow_t&) noexcept {
  largest = std::max(largest, size);
  return std::malloc(std::max<std::size_t>(size, 1));
}
void* operator new(std::size_t size) {
  if (void* memory = ::operator new(size, std::nothrow)) return memory;
  throw std::bad_alloc();
}
void operator delete(void* memory) noexcept { std::free(memory); }
void operator delete(void* memory, std::size_t) noexcept { std::free(memory); }

namespace ddp::rendezvous {

void reset_largest_allocation() { largest = 0; }
std::size_t largest_allocation() { return largest; }

}  // namespace ddp::rendezvous
