// SPDX-License-Identifier: BSD-3-Clause
// What the instrumented code reports to the explorer.
#pragma once

#include <cstddef>
#include <cstdint>

#include "tests/collectives/host/memory_model/explorer.hpp"

namespace ddp::collectives::test::hooks {

// Returns whether a rank is running and this is a place in the segment. Nothing else may be called if not.
bool concerns(const volatile void* place);

std::uint64_t load(const volatile void* word, std::size_t size, std::memory_order order);
void store(volatile void* word, std::size_t size, std::uint64_t value, std::memory_order order);
// Replaces the newest value by what `change` makes of it. Returns the value before.
using Change = std::uint64_t (*)(std::uint64_t before, std::uint64_t operand);
std::uint64_t modify(volatile void* word, std::size_t size, std::memory_order order, Change change,
                     std::uint64_t operand);
// Returns the value before, which was replaced if it is the one expected.
std::uint64_t compare_exchange(volatile void* word, std::size_t size, std::uint64_t expected, std::uint64_t desired,
                               std::memory_order order);

// An access that is not atomic.
void read(const volatile void* from, std::size_t bytes);
void write(const volatile void* to, std::size_t bytes);

// Returns false if a word has not the value expected; otherwise after a wake-up of one of them.
struct Futex {
  const void* word;
  std::uint32_t expected;
};
bool futex_wait(const Futex* words, std::size_t count);
void futex_wake(const void* word);

}  // namespace ddp::collectives::test::hooks
