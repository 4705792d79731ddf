// SPDX-License-Identifier: BSD-3-Clause
// The last operations of every group of this process: what, how large, how far it came, and when. Written as JSON when
// an operation fails, when the process crashes, or on request:
//
//     {"rank": 2, "world_size": 4, "pid": 4242, "time_us": 1700000031000000, "why": "world: all_reduce #412 ...",
//      "groups": [
//       {"name": "world", "rank": 2, "size": 4, "operations": [
//        {"sequence": 412, "operation": "all_reduce", "count": 1000, "dtype": "float32", "bytes": 4000,
//         "reduction": "sum", "root": null, "peer": null, "tag": null, "state": "started",
//         "issued_us": 1700000030999000, "started_us": 1700000030999004, "ended_us": null}]}]}
//
// oldest operation first; times in microseconds since 1970 by this node's clock. state: issued (waits for its turn),
// started, ended, failed (the one that ended the group). Messages have a peer (-1: any rank) and a tag, and are
// numbered apart from collectives.
//
// The memory is there from the start and never given back, only used again: a signal handler may read it at any time.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "runtime/base/environment.hpp"
#include "runtime/collective/operation.hpp"

namespace ddp::runtime {

// One group's. Its functions are called by one thread at a time; reading needs no care.
class FlightRecorder {
 public:
  using Time = std::chrono::steady_clock::time_point;

  // Keeps the last `capacity` operations; none, and costs nothing, if that is 0.
  FlightRecorder(std::string_view group, GroupPlace place, std::size_t capacity);
  ~FlightRecorder();
  FlightRecorder(const FlightRecorder&) = delete;
  FlightRecorder& operator=(const FlightRecorder&) = delete;

  // Returns what the others know the operation by. sequence: of its kind, collective or message, in the group.
  std::uint64_t issued(std::uint64_t sequence, const Operation& operation, Time now);
  // Of one that is forgotten by now: nothing.
  void started(std::uint64_t record, Time now);
  void ended(std::uint64_t record, Time now);
  void failed(std::uint64_t record, Time now);

  struct Record;
  struct Ring;

 private:
  Record* find(std::uint64_t number) const;

  Ring* ring_ = nullptr;
};

// How many operations a group's keeps, by DDP_FLIGHT_RECORDER_SIZE. Throws rendezvous::Error if that is no number.
std::size_t flight_recorder_size(const Environment& environment);
// Who this process is, and where write_flight_recorder() writes; an empty path: nowhere.
void place_flight_recorder(const std::string& path, int rank, int world_size);
// All groups of this process, in one go into place. Also from a signal handler. False if it cannot, or has no place.
bool write_flight_recorder(std::string_view why) noexcept;
// To a path of the caller's. Throws rendezvous::Error.
void save_flight_recorder(const std::string& path, std::string_view why);

}  // namespace ddp::runtime
