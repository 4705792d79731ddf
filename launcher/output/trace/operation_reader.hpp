// SPDX-License-Identifier: BSD-3-Clause
// Reads what one worker of libddp records in the memory that it shares with its agent
// (rendezvous/operation_records.hpp). The worker never waits for it: records that were overwritten before they were
// read are counted as missed. Nothing that the worker writes there is believed: names are cut, numbers are only shown.
#pragma once

#include <cstdint>
#include <functional>
#include <set>
#include <string>
#include <vector>

#include "rendezvous/base/descriptor.hpp"
#include "rendezvous/operation_records.hpp"

namespace ddp::launcher {

struct TracedOperation {
  std::size_t group_index = 0;
  const std::string* group = nullptr;      // its name, as long as the reader reads nothing else
  const std::string* operation = nullptr;  // valid as long as `group` is
  const std::string* dtype = nullptr;
  std::uint64_t sequence = 0, count = 0, bytes = 0;
  std::int64_t issued_ns = 0, started_ns = 0, ended_ns = 0;  // by this node's CLOCK_MONOTONIC; 0: not yet
  rendezvous::OperationState state = rendezvous::OperationState::Issued;
};

class OperationReader {
 public:
  using Take = std::function<void(const TracedOperation&)>;

  // Takes a descriptor of the memory. Throws rendezvous::Error.
  explicit OperationReader(const rendezvous::Descriptor& memory);
  ~OperationReader();
  OperationReader(const OperationReader&) = delete;
  OperationReader& operator=(const OperationReader&) = delete;

  // Gives each operation that is over since the last call, those of a group in the order of their ends.
  void read(const Take& take);
  // After the worker's death: gives those too that are not over.
  void read_last(const Take& take);

  std::uint64_t missed() const { return missed_; }
  std::uint64_t groups_left_out() const;

 private:
  struct Group {
    std::uint64_t generation = 0;  // the one that is read
    std::string name;
    std::uint64_t next = 1;           // the first record that was not seen
    std::set<std::uint64_t> running;  // those that were seen, and were not over
  };
  enum class Seen { NotYet, Running, Over, Overwritten };

  void read_group(std::size_t index, const Take& take, bool is_last);
  Seen copy(std::size_t index, std::uint64_t number, TracedOperation& to, std::uint64_t& found) const;
  const rendezvous::OperationRecord& record(std::size_t index, std::uint64_t number) const;
  const std::string* name_of(const std::vector<std::string>& names, std::int32_t index) const;
  void read_names();

  const rendezvous::OperationRecordsHeader* header_ = nullptr;
  std::uint64_t records_ = 0;  // in each ring; 0: the worker has written nothing yet
  std::vector<Group> groups_;
  std::vector<std::string> operations_, dtypes_;
  std::uint64_t missed_ = 0;
};

}  // namespace ddp::launcher
