// SPDX-License-Identifier: BSD-3-Clause
#include "launcher/diagnosis/call_memory.hpp"

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <ctime>
#include <string>

#include "rendezvous/base/error.hpp"
#include "rendezvous/operation_records.hpp"

namespace ddp::launcher {
namespace {

using rendezvous::kOperationRecordsBytes;
using rendezvous::OperationRecord;
using rendezvous::OperationRecordsHeader;
using rendezvous::OperationState;
using rendezvous::RecordedGroup;

constexpr std::size_t kMostWaits = 8;  // in one group; more are left out

[[noreturn]] void memory_failed(const char* what) {
  throw rendezvous::Error(rendezvous::ErrorCode::System,
                          std::string("memory for a worker's calls: ") + what + ": " + strerror(errno));
}

// The memory, mapped for reading while this object lives.
class Mapped {
 public:
  explicit Mapped(int memory) : place_(mmap(nullptr, kOperationRecordsBytes, PROT_READ, MAP_SHARED, memory, 0)) {}
  ~Mapped() {
    if (place_ != MAP_FAILED) munmap(place_, kOperationRecordsBytes);
  }
  Mapped(const Mapped&) = delete;
  Mapped& operator=(const Mapped&) = delete;
  const OperationRecordsHeader* header() const {
    return place_ != MAP_FAILED ? static_cast<const OperationRecordsHeader*>(place_) : nullptr;
  }

 private:
  void* place_;
};

// Returns the text up to its NUL, without what would do something to a terminal.
template <std::size_t N>
std::string text_in(const std::array<char, N>& memory) {
  std::string text(memory.data(), strnlen(memory.data(), N));
  std::replace_if(
      text.begin(), text.end(), [](unsigned char c) { return c < ' ' || c > '~'; }, '?');
  return text;
}

// Returns 0 for a time that a worker cannot have written, too.
std::int64_t milliseconds_since(std::int64_t then, std::int64_t now) {
  return then > 0 && then < now ? (now - then) / 1'000'000 : 0;
}

std::int64_t monotonic_ns() {
  timespec now = {};
  clock_gettime(CLOCK_MONOTONIC, &now);
  return now.tv_sec * 1'000'000'000LL + now.tv_nsec;
}

void add(GroupCalls& calls, const OperationRecordsHeader& header, const OperationRecord& record, std::int64_t now) {
  const std::uint64_t number = record.number;
  const auto kind = static_cast<std::uint32_t>(record.kind.load());
  if (number == 0 || kind >= header.operations.size()) return;
  const bool is_message = ((header.messages >> kind) & 1) != 0;
  const OperationState state = record.state;
  CallUnderWay call = {.operation = text_in(header.operations[kind]),
                       .sequence = record.sequence,
                       .bytes = record.bytes,
                       .peer = is_message ? record.root.load() : CallUnderWay::kNoPeer,
                       .milliseconds = milliseconds_since(record.issued_ns, now)};
  if (record.number != number) return;  // it was overwritten meanwhile
  if (!is_message && call.sequence >= calls.collectives) {
    calls.collectives = call.sequence;
    calls.newest = call.operation;
  }
  const bool is_under_way = state == OperationState::Issued || state == OperationState::Started;
  if (is_under_way) calls.under_way.push_back(std::move(call));
}

GroupCalls read_group(const OperationRecordsHeader& header, std::size_t index, std::int64_t now) {
  const RecordedGroup& group = header.groups[index];
  GroupCalls calls = {.group = text_in(group.name), .rank = group.rank, .size = group.size};
  const OperationRecord* const ring = rendezvous::ring_of(&header, index);
  const std::uint64_t records = std::min<std::uint64_t>(header.records, rendezvous::kMostRecords);
  for (std::uint64_t i = 0; i < records; ++i) add(calls, header, ring[i], now);
  std::stable_sort(calls.under_way.begin(), calls.under_way.end(),
                   [](const auto& a, const auto& b) { return a.milliseconds > b.milliseconds; });
  if (calls.under_way.size() > kMostWaits) calls.under_way.resize(kMostWaits);
  return calls;
}

}  // namespace

CallMemory::CallMemory() : memory_(memfd_create("ddprun_calls", MFD_CLOEXEC | MFD_ALLOW_SEALING)) {
  if (!memory_) memory_failed("memfd_create");
  if (ftruncate(memory_.get(), kOperationRecordsBytes) != 0) memory_failed("ftruncate");
  if (fcntl(memory_.get(), F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW) != 0) memory_failed("sealing its size");
}

std::vector<GroupCalls> CallMemory::read() const {
  std::vector<GroupCalls> groups;
  const Mapped mapped(memory_.get());
  const OperationRecordsHeader* const header = mapped.header();
  if (header == nullptr || header->version != rendezvous::kOperationRecordsVersion) return groups;
  const std::int64_t now = monotonic_ns();
  for (std::size_t i = 0; i < header->groups.size(); ++i) {
    const RecordedGroup& group = header->groups[i];
    const bool is_there = group.generation != 0 && group.generation % 2 == 0 && group.is_gone == 0;
    if (is_there) groups.push_back(read_group(*header, i, now));
  }
  return groups;
}

}  // namespace ddp::launcher
