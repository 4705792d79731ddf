// SPDX-License-Identifier: BSD-3-Clause
// Records the last operations of every group of this process: kind, size, progress and times. Writes them as JSON when
// an operation fails, when the process crashes, or on request:
//
//     {"rank": 2, "world_size": 4, "pid": 4242, "time_us": 1700000031000000, "why": "world: all_reduce #412 ...",
//      "groups": [
//       {"name": "world", "rank": 2, "size": 4, "operations": [
//        {"sequence": 412, "operation": "all_reduce", "count": 1000, "dtype": "float32", "bytes": 4000,
//         "reduction": "sum", "root": null, "peer": null, "tag": null, "state": "started",
//         "issued_us": 1700000030999000, "started_us": 1700000030999004, "ended_us": null}]}]}
//
// The oldest operation comes first. Times are in microseconds since 1970 by this node's clock. The state is issued
// (waits for its turn), started, ended, or failed (the operation that ended the group). Messages have a peer (-1: any
// rank) and a tag; their numbers are separate from those of collectives.
//
// The memory is allocated when a group is made and never freed, only reused, so that a signal handler may read it at
// any time. Under ddprun it is memory that the agent reads too (rendezvous/operation_records.hpp).
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "rendezvous/operation_records.hpp"
#include "runtime/base/environment.hpp"
#include "runtime/collective/operation.hpp"

namespace ddp::runtime {

// The recorder of one group. One thread at a time may call its functions; reading needs no lock.
class FlightRecorder {
 public:
  using Time = std::chrono::steady_clock::time_point;

  // Keeps the last `capacity` operations. With 0 it keeps none and costs nothing.
  FlightRecorder(std::string_view group, GroupPlace place, std::size_t capacity);
  ~FlightRecorder();
  FlightRecorder(const FlightRecorder&) = delete;
  FlightRecorder& operator=(const FlightRecorder&) = delete;

  // Returns the record number that the functions below take. `sequence` is the number of the collective or message in
  // its group.
  std::uint64_t issued(std::uint64_t sequence, const Operation& operation, Time now);
  // Note the progress of a record. They do nothing if it has been overwritten.
  void started(std::uint64_t record, Time now);
  void ended(std::uint64_t record, Time now);
  void failed(std::uint64_t record, Time now);

  struct Ring;

 private:
  rendezvous::OperationRecord* find(std::uint64_t number) const;

  Ring* ring_ = nullptr;
};

// Returns how many operations a recorder keeps, from DDP_FLIGHT_RECORDER_SIZE. Throws rendezvous::Error if that is not
// a number.
std::size_t flight_recorder_size(const Environment& environment);
// Sets the rank of this process and the file of write_flight_recorder(). With an empty path, none is written.
void place_flight_recorder(const std::string& path, int rank, int world_size);
// Writes the records of all groups and renames the file into place. Safe in a signal handler. Returns false if there is
// no path or the file cannot be written.
bool write_flight_recorder(std::string_view why) noexcept;
// Writes the records to `path`. Throws rendezvous::Error.
void save_flight_recorder(const std::string& path, std::string_view why);

}  // namespace ddp::runtime
