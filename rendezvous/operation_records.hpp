// SPDX-License-Identifier: BSD-3-Clause
// The memory in which a worker of libddp records its collectives and messages, and in which its agent reads them: for a
// trace, and to say what a worker is in, also if that is stopped or was killed. It is a memfd of
// kOperationRecordsBytes, which the worker gets over the agent's socket ("operations" in agent_client.hpp); each
// process has one of its own:
//
//     OperationRecordsHeader    names, and one RecordedGroup for each group
//     kRecordedGroups places of kMostRecords OperationRecords each, of which a ring of `records` is used
//
// Record n of a group is at slot n % records of its ring. The worker overwrites the oldest ones and never waits: the
// agent finds records that it missed by their numbers. The records are those of the flight recorder, so that nothing is
// stored twice. Readers check all that they read: nothing keeps a worker from writing something else there.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>

namespace ddp::rendezvous {

inline constexpr std::uint64_t kOperationRecordsVersion = 1;
inline constexpr std::size_t kRecordedGroups = 64;
inline constexpr std::size_t kMostRecords = 4096;

enum class OperationState : std::int32_t { Issued, Started, Ended, Failed };

// One operation. A member is written by one thread and read by any; `number` is 0 while the others are being written.
struct OperationRecord {
  template <typename T>
  using Shared = std::atomic<T>;

  Shared<std::uint64_t> number{0};   // counts all operations of the group, from 1
  Shared<std::uint64_t> sequence{};  // counts its collectives, and apart from them its messages
  Shared<std::uint64_t> count{}, bytes{};
  Shared<std::int64_t> issued_ns{}, started_ns{}, ended_ns{};  // by CLOCK_MONOTONIC; 0: not yet
  Shared<std::int32_t> kind{}, dtype{}, root{}, reduce_op{};   // root: of a message the peer; -1: any
  Shared<std::uint32_t> tag{};
  Shared<OperationState> state{};
};
static_assert(OperationRecord::Shared<std::uint64_t>::is_always_lock_free && sizeof(OperationRecord) == 80);

struct RecordedGroup {
  static constexpr std::size_t kNameBytes = 64;

  // Counts the groups that have had this place, twice each: odd while a group moves in. 0: none has.
  std::atomic<std::uint64_t> generation;
  std::array<char, kNameBytes> name;  // ends with a NUL
  std::int32_t rank, size;            // the worker's rank in the group
  std::atomic<std::uint32_t> is_gone;
};

using OperationName = std::array<char, 24>;  // ends with a NUL

struct OperationRecordsHeader {
  std::uint64_t version;
  std::uint64_t records;                       // in each ring, at most kMostRecords; the agent says how many
  std::atomic<std::uint64_t> groups_left_out;  // those for which no place was left
  std::array<OperationName, 32> operations;    // by OperationRecord::kind
  std::uint32_t messages;                      // bit I: operations of kind I are messages
  std::array<OperationName, 32> dtypes;        // by OperationRecord::dtype
  std::array<RecordedGroup, kRecordedGroups> groups;
};

inline constexpr std::size_t kRingsAt = (sizeof(OperationRecordsHeader) + 4095) / 4096 * 4096;
inline constexpr std::size_t kRingBytes = kMostRecords * sizeof(OperationRecord);
inline constexpr std::size_t kOperationRecordsBytes = kRingsAt + kRecordedGroups * kRingBytes;

// Returns where the ring of a group begins.
inline OperationRecord* ring_of(OperationRecordsHeader* header, std::size_t group) {
  auto* const rings = reinterpret_cast<std::byte*>(header) + kRingsAt;
  return reinterpret_cast<OperationRecord*>(rings + group * kRingBytes);
}
inline const OperationRecord* ring_of(const OperationRecordsHeader* header, std::size_t group) {
  return ring_of(const_cast<OperationRecordsHeader*>(header), group);
}

}  // namespace ddp::rendezvous
