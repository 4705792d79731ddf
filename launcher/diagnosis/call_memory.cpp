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
#include "rendezvous/call_records.hpp"

namespace ddp::launcher {
namespace {

using rendezvous::CallRecord;
using rendezvous::CallRecordsHeader;
using rendezvous::CallState;
using rendezvous::GroupRecords;
using rendezvous::kCallRecordsBytes;

constexpr std::size_t kMostGroups = 256, kMostWaits = 8;  // more are left out

[[noreturn]] void memory_failed(const char* what) {
  throw rendezvous::Error(rendezvous::ErrorCode::System,
                          std::string("memory for a worker's calls: ") + what + ": " + strerror(errno));
}

// The memory, mapped for reading while this object lives.
class Mapped {
 public:
  explicit Mapped(int memory) : place_(mmap(nullptr, kCallRecordsBytes, PROT_READ, MAP_SHARED, memory, 0)) {}
  ~Mapped() {
    if (place_ != MAP_FAILED) munmap(place_, kCallRecordsBytes);
  }
  Mapped(const Mapped&) = delete;
  Mapped& operator=(const Mapped&) = delete;
  const CallRecordsHeader* header() const {
    return place_ != MAP_FAILED ? static_cast<const CallRecordsHeader*>(place_) : nullptr;
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

std::int64_t monotonic_ns() {
  timespec now = {};
  clock_gettime(CLOCK_MONOTONIC, &now);
  return now.tv_sec * 1'000'000'000LL + now.tv_nsec;
}

class Reader {
 public:
  explicit Reader(const CallRecordsHeader& header) : header_(header), now_(monotonic_ns()) {}

  GroupCalls read(const GroupRecords& group, std::uint64_t capacity) const {
    GroupCalls calls = {.group = text_in(group.name), .rank = group.rank, .size = group.size};
    const std::uint64_t last = group.last, first = last >= capacity ? last - capacity + 1 : 1;
    for (std::uint64_t number = first; number <= last && number >= first; ++number) {
      const CallRecord& record = group.records()[number % capacity];
      if (record.number == number) add(calls, record, number);
    }
    return calls;
  }

 private:
  void add(GroupCalls& calls, const CallRecord& record, std::uint64_t number) const {
    const std::uint32_t kind = record.kind;
    if (kind >= CallRecordsHeader::kOperations) return;
    const bool is_message = ((header_.messages >> kind) & 1) != 0;
    const CallState state = record.state;
    CallUnderWay call = {.operation = text_in(header_.operations[kind]),
                         .sequence = record.sequence,
                         .bytes = record.bytes,
                         .peer = is_message ? record.root.load() : CallUnderWay::kNoPeer,
                         .milliseconds = std::max<std::int64_t>(0, now_ - record.issued_ns) / 1'000'000};
    if (record.number != number) return;  // it was overwritten meanwhile
    if (!is_message && call.sequence >= calls.collectives) {
      calls.collectives = call.sequence;
      calls.newest = call.operation;
    }
    const bool is_under_way = state == CallState::Issued || state == CallState::Started;
    if (is_under_way && calls.under_way.size() < kMostWaits) calls.under_way.push_back(std::move(call));
  }

  const CallRecordsHeader& header_;
  const std::int64_t now_;
};

}  // namespace

CallMemory::CallMemory() : memory_(memfd_create("ddprun_calls", MFD_CLOEXEC | MFD_ALLOW_SEALING)) {
  if (!memory_) memory_failed("memfd_create");
  if (ftruncate(memory_.get(), kCallRecordsBytes) != 0) memory_failed("ftruncate");
  if (fcntl(memory_.get(), F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW) != 0) memory_failed("sealing its size");
}

std::vector<GroupCalls> CallMemory::read() const {
  std::vector<GroupCalls> groups;
  const Mapped mapped(memory_.get());
  const CallRecordsHeader* const header = mapped.header();
  if (header == nullptr || header->version != rendezvous::kCallRecordsVersion) return groups;
  const auto* at = reinterpret_cast<const char*>(header + 1);
  const auto* const end = at + std::min<std::size_t>(header->used, kCallRecordsBytes - sizeof *header);
  const Reader reader(*header);
  while (groups.size() < kMostGroups && static_cast<std::size_t>(end - at) >= sizeof(GroupRecords)) {
    const auto* const group = reinterpret_cast<const GroupRecords*>(at);
    const std::uint64_t capacity = group->capacity;  // read once: it may be written meanwhile
    const std::size_t room = static_cast<std::size_t>(end - at) - sizeof *group;
    if (capacity == 0 || capacity > room / sizeof(CallRecord)) break;
    if (group->in_use != 0) groups.push_back(reader.read(*group, capacity));
    at += GroupRecords::bytes_for(capacity);
  }
  return groups;
}

}  // namespace ddp::launcher
