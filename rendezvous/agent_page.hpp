// SPDX-License-Identifier: BSD-3-Clause
// The memory that an agent and the workers of its node share, so that each sees what the other does without a message:
//
//     "ddprun_node"      one NodePage. The agent writes it; workers can map it for reading only.
//     "ddprun_workers"   one WorkerPage for each worker of the node, by local rank. That worker writes it.
//
// Both are memfds, which a worker gets over the agent's socket (kAgentSocket in worker_contract.hpp). Each page begins
// with the version of its layout; who finds another one leaves the page alone and says so.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <optional>
#include <type_traits>

namespace ddp::rendezvous {

inline constexpr std::uint64_t kPageVersion = 1;
inline constexpr std::size_t kPageBytes = 4096;

// A value that one process writes and others read at any time. A reader never gets half of one.
template <typename Facts>
class SharedFacts {
  static_assert(std::is_trivially_copyable_v<Facts> && sizeof(Facts) % sizeof(std::uint64_t) == 0);

 public:
  void write(const Facts& facts) {
    Words words;
    std::memcpy(words.data(), &facts, sizeof facts);
    const std::uint64_t before = sequence_.load(std::memory_order_relaxed) & ~std::uint64_t{1};
    sequence_.store(before + 1, std::memory_order_relaxed);  // odd: under way
    for (std::size_t i = 0; i < kWords; ++i) words_[i].store(words[i], std::memory_order_release);
    sequence_.store(before + 2, std::memory_order_release);
  }

  // Returns nothing if no value was written yet, or if the writer died while it wrote one.
  std::optional<Facts> read() const {
    for (int i = 0; i < kMostTries; ++i) {
      const std::uint64_t before = sequence_.load(std::memory_order_acquire);
      if (before == 0) return std::nullopt;
      Words words;
      for (std::size_t w = 0; w < kWords; ++w) words[w] = words_[w].load(std::memory_order_acquire);
      if (before % 2 != 0 || sequence_.load(std::memory_order_relaxed) != before) continue;
      Facts facts;
      std::memcpy(&facts, words.data(), sizeof facts);
      return facts;
    }
    return std::nullopt;
  }

 private:
  static constexpr std::size_t kWords = sizeof(Facts) / sizeof(std::uint64_t);
  static constexpr int kMostTries = 100'000;  // a write takes less than a microsecond
  using Words = std::array<std::uint64_t, kWords>;
  std::atomic<std::uint64_t> sequence_;
  std::array<std::atomic<std::uint64_t>, kWords> words_;
};

enum class NodePhase : std::uint32_t {
  Idle = 0,
  Running = 1,
  Stopping = 2,
  Revoked = 3,  // the round is over: workers that can stay leave its groups, say "quiet", and wait for the next round
};

// What the agent shows. Worker i of the node has rank base_rank + i.
struct NodeFacts {
  std::int32_t round;  // from 1
  NodePhase phase;
  std::int32_t node_rank, node_count;
  std::int32_t base_rank, local_world_size, world_size;
  std::int32_t restart_count;
  std::int32_t master_port;
  std::array<char, 260> master_addr;  // ends with a NUL
  std::array<char, 40> epoch;         // names the coordinator; ends with a NUL
};

// What a worker shows.
struct WorkerFacts {
  std::int64_t pid;
  std::int64_t step;     // as the program counts; -1: it has shown none
  std::int64_t step_at;  // when it showed the step: nanoseconds of CLOCK_BOOTTIME
};

template <typename Facts>
struct alignas(kPageBytes) Page {
  std::uint64_t version;
  SharedFacts<Facts> facts;
};
using NodePage = Page<NodeFacts>;
using WorkerPage = Page<WorkerFacts>;
static_assert(sizeof(NodePage) == kPageBytes && sizeof(WorkerPage) == kPageBytes);

}  // namespace ddp::rendezvous
