// SPDX-License-Identifier: BSD-3-Clause
#include "launcher/output/trace/operation_reader.hpp"

#include <sys/mman.h>

#include <algorithm>
#include <cstring>

#include "rendezvous/base/error.hpp"

namespace ddp::launcher {
namespace {

using rendezvous::OperationRecord;
using rendezvous::OperationState;

constexpr std::size_t kMostRunning = 1024;  // in one group: more are operations that nobody will end

template <std::size_t N>
std::string text_of(const std::array<char, N>& name) {
  return {name.data(), strnlen(name.data(), N)};
}

}  // namespace

OperationReader::OperationReader(const rendezvous::Descriptor& memory) : groups_(rendezvous::kRecordedGroups) {
  void* const mapped = mmap(nullptr, rendezvous::kOperationRecordsBytes, PROT_READ, MAP_SHARED, memory.get(), 0);
  if (mapped == MAP_FAILED) rendezvous::system_error("memory for a trace: mmap");
  header_ = static_cast<const rendezvous::OperationRecordsHeader*>(mapped);
}

OperationReader::~OperationReader() {
  munmap(const_cast<rendezvous::OperationRecordsHeader*>(header_), rendezvous::kOperationRecordsBytes);
}

std::uint64_t OperationReader::groups_left_out() const { return header_->groups_left_out; }

const OperationRecord& OperationReader::record(std::size_t index, std::uint64_t number) const {
  return rendezvous::ring_of(header_, index)[number % records_];
}

void OperationReader::read_names() {
  operations_.clear();
  dtypes_.clear();
  for (const auto& name : header_->operations) operations_.push_back(text_of(name));
  for (const auto& name : header_->dtypes) dtypes_.push_back(text_of(name));
}

const std::string* OperationReader::name_of(const std::vector<std::string>& names, std::int32_t index) const {
  static const std::string kUnknown = "unknown";
  const auto at = static_cast<std::size_t>(index);
  return index >= 0 && at < names.size() ? &names[at] : &kUnknown;
}

// Copies one record. `found` is the number that its place has.
OperationReader::Seen OperationReader::copy(std::size_t index, std::uint64_t number, TracedOperation& to,
                                            std::uint64_t& found) const {
  const OperationRecord& from = record(index, number);
  found = from.number.load(std::memory_order_acquire);
  if (found != number) return found > number ? Seen::Overwritten : Seen::NotYet;
  to = {.group_index = index,
        .group = &groups_[index].name,
        .operation = name_of(operations_, from.kind),
        .dtype = name_of(dtypes_, from.dtype),
        .sequence = from.sequence,
        .count = from.count,
        .bytes = from.bytes,
        .issued_ns = from.issued_ns,
        .started_ns = from.started_ns,
        .ended_ns = from.ended_ns,
        .state = from.state};
  found = from.number;
  if (found != number) return Seen::Overwritten;
  const bool is_over = to.state == OperationState::Ended || to.state == OperationState::Failed;
  return is_over && to.ended_ns != 0 ? Seen::Over : Seen::Running;
}

void OperationReader::read_group(std::size_t index, const Take& take, bool is_last) {
  Group& group = groups_[index];
  const std::uint64_t generation = header_->groups[index].generation.load(std::memory_order_acquire);
  if (generation % 2 != 0) return;  // another one is moving in
  if (records_ == 0) records_ = std::clamp<std::uint64_t>(header_->records, 1, rendezvous::kMostRecords);
  if (generation != group.generation) {
    missed_ += group.running.size();
    group = {.generation = generation, .name = text_of(header_->groups[index].name), .next = 1, .running = {}};
    if (operations_.empty()) read_names();
  }
  TracedOperation operation;
  std::uint64_t found = 0;
  for (auto number = group.running.begin(); number != group.running.end();) {
    const Seen seen = copy(index, *number, operation, found);
    if (seen == Seen::Running && !is_last) {
      ++number;
      continue;
    }
    if (seen == Seen::Over || seen == Seen::Running) take(operation);
    if (seen == Seen::Overwritten) ++missed_;
    number = group.running.erase(number);
  }
  // No worker, whatever it writes meanwhile, keeps this from an end.
  for (std::size_t i = 0; i < 2 * records_; ++i) {
    const Seen seen = copy(index, group.next, operation, found);
    if (seen == Seen::NotYet) return;
    if (seen == Seen::Overwritten) {
      const std::uint64_t oldest = found - records_ + 1;
      if (found < records_ || oldest <= group.next) return;  // just being written
      missed_ += oldest - group.next;
      group.next = oldest;
      continue;
    }
    if (seen == Seen::Over || is_last) take(operation);
    if (seen == Seen::Running && !is_last) group.running.insert(group.next);
    if (group.running.size() > kMostRunning) {
      group.running.erase(group.running.begin());
      ++missed_;
    }
    ++group.next;
  }
}

void OperationReader::read(const Take& take) {
  for (std::size_t i = 0; i < groups_.size(); ++i) {
    if (header_->groups[i].generation == 0) return;  // places are taken in order
    read_group(i, take, false);
  }
}

void OperationReader::read_last(const Take& take) {
  for (std::size_t i = 0; i < groups_.size(); ++i) {
    if (header_->groups[i].generation != 0) read_group(i, take, true);
  }
}

}  // namespace ddp::launcher
