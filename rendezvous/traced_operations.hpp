// SPDX-License-Identifier: BSD-3-Clause
// The memory in which a worker of libddp records its collectives and messages, and from which its agent reads them for
// --trace. It is a memfd of kTraceBytes that the worker gets over the agent's socket; each process has one of its own:
//
//     TraceHeader         names, and one TracedGroup for each group
//     kTracedGroups rings of kTracedOperations OperationRecords
//
// Record n of a group is at slot n % kTracedOperations of its ring. The worker overwrites the oldest ones and never
// waits: the agent finds records that it missed by their numbers. The records are those of the flight recorder, so that
// a worker that is traced does not store more than any other. What it did last stays readable, whatever kills it.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>

namespace ddp::rendezvous {

inline constexpr std::uint64_t kTraceVersion = 1;
inline constexpr std::size_t kTracedGroups = 64;
inline constexpr std::size_t kTracedOperations = 4096;
inline constexpr std::size_t kTraceNameBytes = 64;

enum class OperationState : std::int32_t { Issued, Started, Ended, Failed };

// One operation. A member is written by one thread and read by any; `number` is 0 while the others are being written.
struct OperationRecord {
  template <typename T>
  using Shared = std::atomic<T>;

  Shared<std::uint64_t> number{0};  // counts all operations of the group, from 1
  Shared<std::uint64_t> sequence{};
  Shared<std::uint64_t> count{}, bytes{};
  Shared<std::int64_t> issued_ns{}, started_ns{}, ended_ns{};  // by CLOCK_MONOTONIC; 0: not yet
  Shared<std::int32_t> kind{}, dtype{}, root{}, reduce_op{};
  Shared<std::uint32_t> tag{};
  Shared<OperationState> state{};
};
static_assert(OperationRecord::Shared<std::uint64_t>::is_always_lock_free && sizeof(OperationRecord) == 80);

struct TracedGroup {
  // Counts the groups that have had this place, twice each: odd while a group moves in. 0: none has.
  std::atomic<std::uint64_t> generation;
  std::array<char, kTraceNameBytes> name;  // ends with a NUL
  std::int32_t rank, size;
};

using TraceName = std::array<char, 24>;  // ends with a NUL

struct TraceHeader {
  std::uint64_t version;
  std::atomic<std::uint64_t> groups_left_out;  // those for which no place was left
  std::array<TraceName, 32> operations;        // by OperationRecord::kind
  std::array<TraceName, 32> dtypes;            // by OperationRecord::dtype
  std::array<TracedGroup, kTracedGroups> groups;
};

inline constexpr std::size_t kTraceRingsAt = (sizeof(TraceHeader) + 4095) / 4096 * 4096;
inline constexpr std::size_t kTraceRingBytes = kTracedOperations * sizeof(OperationRecord);
inline constexpr std::size_t kTraceBytes = kTraceRingsAt + kTracedGroups * kTraceRingBytes;

}  // namespace ddp::rendezvous
