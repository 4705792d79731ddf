// SPDX-License-Identifier: BSD-3-Clause
// A worker's end of the memory in which it records its operations.
#pragma once

#include <sys/mman.h>

#include <cstddef>
#include <cstdint>
#include <string>

#include "rendezvous/base/descriptor.hpp"
#include "rendezvous/operation_records.hpp"

namespace ddp::testing {

class WorkerMemory {
 public:
  explicit WorkerMemory(const rendezvous::Descriptor& memory)
      : header_(static_cast<rendezvous::OperationRecordsHeader*>(
            mmap(nullptr, rendezvous::kOperationRecordsBytes, PROT_READ | PROT_WRITE, MAP_SHARED, memory.get(), 0))) {
    header_->version = rendezvous::kOperationRecordsVersion;
    header_->records = rendezvous::kMostRecords;
    header_->messages = 1U << 1;
    std::string("recv").copy(header_->operations[1].data(), 23);
    std::string("all_reduce").copy(header_->operations[0].data(), 23);
    std::string("float32").copy(header_->dtypes[0].data(), 23);
  }
  ~WorkerMemory() { munmap(header_, rendezvous::kOperationRecordsBytes); }
  WorkerMemory(const WorkerMemory&) = delete;
  WorkerMemory& operator=(const WorkerMemory&) = delete;

  rendezvous::OperationRecordsHeader& header() { return *header_; }
  void join(std::size_t group, const std::string& name) {
    header_->groups[group].name.fill(0);
    name.copy(header_->groups[group].name.data(), name.size());
    header_->groups[group].size = 4;
    header_->groups[group].generation += 2;
  }
  rendezvous::OperationRecord& record(std::size_t group, std::uint64_t number) {
    return rendezvous::ring_of(header_, group)[number % header_->records];
  }
  // Begins operation `number`, which is its sequence number too, at `at` ns.
  void start(std::size_t group, std::uint64_t number, std::int64_t at) {
    rendezvous::OperationRecord& made = record(group, number);
    made.number = 0;
    made.sequence = number;
    made.count = 10;
    made.bytes = 40;
    made.issued_ns = at;
    made.started_ns = at;
    made.ended_ns = 0;
    made.state = rendezvous::OperationState::Started;
    made.number = number;
  }
  void end(std::size_t group, std::uint64_t number, std::int64_t at) {
    record(group, number).ended_ns = at;
    record(group, number).state = rendezvous::OperationState::Ended;
  }

 private:
  rendezvous::OperationRecordsHeader* header_;
};

}  // namespace ddp::testing
