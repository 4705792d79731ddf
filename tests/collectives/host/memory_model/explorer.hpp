// SPDX-License-Identifier: BSD-3-Clause
// Runs a small program of 2 to 4 ranks again and again, each time in another order, and lets loads return old values
// where the C++ memory model allows it. A processor like x86 shows few of these runs, and none on demand.
//
// The ranks run the real code of collectives/host. It is compiled with -fsanitize=thread but not linked with
// ThreadSanitizer: the calls that the compiler puts before each access to memory, with the memory order that the source
// names, come to this explorer (instrumentation.cpp). So do futexes. The ranks are coroutines of one thread.
//
// The model. Each word of the segment has a list of all values stored to it, in the order of the stores. A rank knows,
// for each word, the oldest value that it may still read. A store with memory_order_release carries what its rank
// knows; a load with memory_order_acquire that reads it takes that over. A read-modify-write reads the newest value,
// and carries on what the store before it carried. A sequentially consistent load reads nothing older than the last
// sequentially consistent store. The kernel's queue of a futex is a word that waiting and waking read and write.
// Accesses that are not atomic must be ordered by what ranks know; otherwise they are a data race.
//
// Not in the model: fences, stores to one word in another order than they are made, and loads of values that are
// stored later.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

namespace ddp::collectives::test {

inline constexpr std::size_t kMostRanks = 4;

enum class Operation { Load, Store, Modify };

struct Program {
  // What each rank does. Each run calls them again, on the same segment, whose words have their old values again.
  std::vector<std::function<void()>> ranks;
  // The segment.
  unsigned char* memory = nullptr;
  std::size_t bytes = 0;
  // Called after each run in which all ranks have ended. Returns "" or what is wrong.
  std::function<std::string()> verdict = [] { return std::string(); };
  // Returns the name of the word at this place of the segment, or "".
  std::function<std::string(std::size_t offset)> name_of = {};

  // Plants a fault: returns the order to use for an operation instead of the one that the source names.
  std::function<std::memory_order(Operation operation, const void* word, std::memory_order order)> orders = {};
  // Sleeps that end by themselves in one run, which they do only when nothing else can go on. A program that needs more
  // has lost a wake-up.
  int most_timeouts = 0;
};

// Limits of the runs that are tried: how often another rank goes on than the one that runs, or than the next in turn
// after one that sleeps or has ended; and how many loads return an old value.
struct Bounds {
  int switches = 2;
  int old_values = 2;
};

struct Outcome {
  std::uint64_t runs = 0;
  std::string wrong;  // "" or what is wrong, followed by all that happened in that run
};

Outcome explore(const Program& program, const Bounds& bounds);

}  // namespace ddp::collectives::test
