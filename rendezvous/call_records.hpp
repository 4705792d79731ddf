// SPDX-License-Identifier: BSD-3-Clause
// The memory in which a worker of libddp notes its last calls of each group, and in which its agent reads them, also of
// a worker that is stopped, or was killed. It is a memfd of kCallRecordsBytes, which the worker gets over the agent's
// socket ("calls" in agent_client.hpp); without an agent it is memory of the worker's own.
//
//     CallRecordsHeader: version, bytes that are in use, names of operations
//     then one after the other: GroupRecords, with `capacity` CallRecords behind it
//
// The worker writes, and only one thread at a time to a group. A group that is no more leaves its place to one of the
// same capacity. Readers need no lock, and check all that they read: nothing keeps a worker from writing something
// else.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <type_traits>

namespace ddp::rendezvous {

inline constexpr std::uint64_t kCallRecordsVersion = 1;
inline constexpr std::size_t kCallRecordsBytes = 4 << 20;  // pages that nobody writes to take no memory

enum class CallState : std::uint32_t { Issued, Started, Ended, Failed };

// `number` is 0 while the other fields are being written.
struct CallRecord {
  std::atomic<std::uint64_t> number;    // counts all calls of the group, from 1
  std::atomic<std::uint64_t> sequence;  // counts its collectives, and apart from them its messages
  std::atomic<std::uint32_t> kind;      // an index of CallRecordsHeader::operations
  std::atomic<CallState> state;
  std::atomic<std::int32_t> dtype, root;  // root: of a message the peer; -1: any
  std::atomic<std::int32_t> reduce_op;
  std::atomic<std::uint32_t> tag;
  std::atomic<std::uint64_t> count, bytes;
  std::atomic<std::int64_t> issued_ns, started_ns, ended_ns;  // by CLOCK_MONOTONIC; 0: not yet
};

// The calls of one group. The newest one, number N, is at index N % capacity.
struct GroupRecords {
  static constexpr std::size_t kNameBytes = 64;

  std::atomic<std::uint64_t> capacity;
  std::atomic<std::uint64_t> last;       // number of the newest call
  std::atomic<std::uint32_t> in_use;     // 0: the group is no more
  std::atomic<std::int32_t> rank, size;  // the worker's rank in the group
  std::array<char, kNameBytes> name;     // what is longer is cut; written before in_use

  CallRecord* records() { return reinterpret_cast<CallRecord*>(this + 1); }
  const CallRecord* records() const { return reinterpret_cast<const CallRecord*>(this + 1); }
  static constexpr std::size_t bytes_for(std::size_t capacity);
};

struct alignas(64) CallRecordsHeader {
  static constexpr std::size_t kOperations = 32, kOperationBytes = 24;

  std::uint64_t version;
  std::atomic<std::uint64_t> used;                                        // bytes of the groups behind this
  std::array<std::array<char, kOperationBytes>, kOperations> operations;  // each ends with a NUL
  std::uint32_t messages;  // bit I: operation I is a message, which has a peer and a tag
};

constexpr std::size_t GroupRecords::bytes_for(std::size_t capacity) {
  return sizeof(GroupRecords) + capacity * sizeof(CallRecord);
}

static_assert(std::atomic<std::uint64_t>::is_always_lock_free && alignof(GroupRecords) == alignof(CallRecord));
static_assert(sizeof(CallRecordsHeader) % alignof(GroupRecords) == 0 &&
              sizeof(GroupRecords) % alignof(CallRecord) == 0);

}  // namespace ddp::rendezvous
