// SPDX-License-Identifier: BSD-3-Clause
#include "launcher/diagnosis/call_memory.hpp"

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <ctime>
#include <string>

#include "rendezvous/base/error.hpp"
#include "rendezvous/operation_records.hpp"
#include "rendezvous/wire/json_text.hpp"

namespace ddp::launcher {
namespace {

using rendezvous::kOperationRecordsBytes;
using rendezvous::OperationRecord;
using rendezvous::OperationRecordsHeader;
using rendezvous::OperationState;
using rendezvous::RecordedGroup;

constexpr std::size_t kMostWaits = 8;               // in one group; more are left out
constexpr std::size_t kMostTold = 256;              // operations of a group in a flight record
constexpr std::int64_t kLeastTime = 1'000'000'000;  // that records must cover to say which share is in collectives

[[noreturn]] void call_memory_failed(const char* what) {
  rendezvous::system_error(std::string("memory for a worker's calls: ") + what);
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
  calls.operations = std::max(calls.operations, number);
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

bool is_there(const RecordedGroup& group) {
  return group.generation != 0 && group.generation % 2 == 0 && group.is_gone == 0;
}

struct Interval {
  std::int64_t from, to;
};

// Adds when the collectives of a group were called and ended; of those under way, that they go on now.
void add_intervals(const OperationRecordsHeader& header, std::size_t index, std::int64_t now,
                   std::vector<Interval>& intervals) {
  const OperationRecord* const ring = rendezvous::ring_of(&header, index);
  const std::uint64_t records = std::min<std::uint64_t>(header.records, rendezvous::kMostRecords);
  for (std::uint64_t i = 0; i < records; ++i) {
    const std::uint64_t number = ring[i].number;
    const auto kind = static_cast<std::uint32_t>(ring[i].kind.load());
    const bool is_message = kind >= header.operations.size() || ((header.messages >> kind) & 1) != 0;
    const std::int64_t from = ring[i].issued_ns, ended = ring[i].ended_ns;
    if (number == 0 || ring[i].number != number || is_message || from <= 0 || from > now) continue;
    intervals.push_back({from, ended >= from && ended <= now ? ended : now});
  }
}

// Returns the time that at least one of them covers.
std::int64_t time_of(std::vector<Interval>& intervals) {
  std::sort(intervals.begin(), intervals.end(), [](const Interval& a, const Interval& b) { return a.from < b.from; });
  std::int64_t covered = 0, until = 0;
  for (const Interval& interval : intervals) {
    covered += std::max<std::int64_t>(0, interval.to - std::max(interval.from, until));
    until = std::max(until, interval.to);
  }
  return covered;
}

const char* name_of(OperationState state) {
  switch (state) {
    case OperationState::Issued:
      return "issued";
    case OperationState::Started:
      return "started";
    case OperationState::Ended:
      return "ended";
    case OperationState::Failed:
      return "failed";
  }
  return "unknown";
}

std::string operation_json(const OperationRecordsHeader& header, const OperationRecord& record) {
  const auto kind = static_cast<std::uint32_t>(record.kind.load()), dtype = static_cast<std::uint32_t>(record.dtype);
  const bool is_message = kind < header.operations.size() && ((header.messages >> kind) & 1) != 0;
  const auto time = [](std::int64_t ns) { return ns > 0 ? std::optional(ns / 1000) : std::nullopt; };
  rendezvous::JsonObject json;
  json.number("sequence", static_cast<std::int64_t>(record.sequence.load()));
  json.text("operation", kind < header.operations.size() ? text_in(header.operations[kind]) : "unknown");
  json.number("count", static_cast<std::int64_t>(record.count.load()));
  json.text("dtype", dtype < header.dtypes.size() ? text_in(header.dtypes[dtype]) : "unknown");
  json.number("bytes", static_cast<std::int64_t>(record.bytes.load()));
  json.number("peer", is_message ? std::optional<std::int64_t>(record.root.load()) : std::nullopt);
  json.text("state", name_of(record.state));
  json.number("issued_us", time(record.issued_ns)).number("started_us", time(record.started_ns));
  return json.number("ended_us", time(record.ended_ns)).str();
}

std::string operations_json(const OperationRecordsHeader& header, std::size_t index) {
  const OperationRecord* const ring = rendezvous::ring_of(&header, index);
  const std::uint64_t records = std::min<std::uint64_t>(header.records, rendezvous::kMostRecords);
  std::vector<std::pair<std::uint64_t, const OperationRecord*>> found;
  for (std::uint64_t i = 0; i < records; ++i) {
    if (ring[i].number != 0) found.emplace_back(ring[i].number, &ring[i]);
  }
  std::sort(found.begin(), found.end());
  if (found.size() > kMostTold) found.erase(found.begin(), found.end() - kMostTold);
  std::string list;
  for (const auto& [number, record] : found) list += (list.empty() ? "" : ",") + operation_json(header, *record);
  return "[" + list + "]";
}

}  // namespace

CallMemory::CallMemory() : memory_(memfd_create("ddprun_calls", MFD_CLOEXEC | MFD_ALLOW_SEALING)) {
  if (!memory_) call_memory_failed("memfd_create");
  if (ftruncate(memory_.get(), kOperationRecordsBytes) != 0) call_memory_failed("ftruncate");
  if (fcntl(memory_.get(), F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW) != 0) call_memory_failed("sealing its size");
}

std::vector<GroupCalls> CallMemory::read() const {
  std::vector<GroupCalls> groups;
  const Mapped mapped(memory_.get());
  const OperationRecordsHeader* const header = mapped.header();
  if (header == nullptr || header->version != rendezvous::kOperationRecordsVersion) return groups;
  const std::int64_t now = monotonic_ns();
  for (std::size_t i = 0; i < header->groups.size(); ++i) {
    if (is_there(header->groups[i])) groups.push_back(read_group(*header, i, now));
  }
  return groups;
}

CallSummary CallMemory::summary() const {
  CallSummary summary;
  for (const GroupCalls& group : read()) {
    if (group.under_way.empty()) continue;
    const CallUnderWay& call = group.under_way.front();
    if (!summary.now_in.empty() && call.milliseconds <= summary.milliseconds) continue;
    summary.now_in = call.operation + " #" + std::to_string(call.sequence) + " of group " + group.group;
    summary.milliseconds = call.milliseconds;
  }
  const Mapped mapped(memory_.get());
  const OperationRecordsHeader* const header = mapped.header();
  if (header == nullptr || header->version != rendezvous::kOperationRecordsVersion) return summary;
  const std::int64_t now = monotonic_ns();
  std::vector<Interval> intervals;
  for (std::size_t i = 0; i < header->groups.size(); ++i) {
    if (is_there(header->groups[i])) add_intervals(*header, i, now, intervals);
  }
  const std::int64_t covered = time_of(intervals), all = intervals.empty() ? 0 : now - intervals.front().from;
  if (all >= kLeastTime) summary.in_collectives_percent = static_cast<int>(100 * covered / all);
  return summary;
}

std::string CallMemory::flight_record(int rank) const {
  const Mapped mapped(memory_.get());
  const OperationRecordsHeader* const header = mapped.header();
  if (header == nullptr || header->version != rendezvous::kOperationRecordsVersion) return "";
  std::string groups;
  for (std::size_t i = 0; i < header->groups.size(); ++i) {
    const RecordedGroup& group = header->groups[i];
    if (!is_there(group)) continue;
    rendezvous::JsonObject json;
    json.text("name", text_in(group.name)).number("rank", group.rank).number("size", group.size);
    groups += (groups.empty() ? "" : ",") + json.json("operations", operations_json(*header, i)).str();
  }
  if (groups.empty()) return "";
  return rendezvous::JsonObject()
      .number("rank", rank)
      .text("why", "the worker runs")
      .json("groups", "[" + groups + "]")
      .str();
}

}  // namespace ddp::launcher
