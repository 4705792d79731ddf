// SPDX-License-Identifier: BSD-3-Clause
#include "runtime/diagnosis/flight_recorder.hpp"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <climits>
#include <cstdio>
#include <cstring>
#include <ctime>
#include <memory>
#include <mutex>

#include "rendezvous/agent_client.hpp"
#include "rendezvous/base/error.hpp"
#include "rendezvous/base/new_file.hpp"
#include "rendezvous/worker_contract.hpp"
#include "runtime/base/buffer.hpp"
#include "runtime/base/signal_safe_text.hpp"
#include "runtime/collective/describe_operation.hpp"

namespace ddp::runtime {

namespace {

using rendezvous::CallRecord;
using rendezvous::CallRecordsHeader;
using rendezvous::CallState;
using rendezvous::Error;
using rendezvous::ErrorCode;
using rendezvous::GroupRecords;
using rendezvous::kCallRecordsBytes;
using std::memory_order_acquire;
using std::memory_order_relaxed;
using std::memory_order_release;

constexpr const char* kStates[] = {"issued", "started", "ended", "failed"};
constexpr std::size_t kUsuallyKept = 256;
constexpr int kMostKept = 1'000'000;
constexpr std::size_t kNameBytes = GroupRecords::kNameBytes;
constexpr std::size_t kWhyBytes = 1024;

// Memory with places for groups.
struct Arena {
  Arena* next;  // an older one
  CallRecordsHeader* records;
  std::size_t bytes;
};

// The recorders of this process. Global, since a signal handler has no other access to them.
struct Process {
  std::mutex mutex;  // held by threads that change it
  std::atomic<Arena*> arenas{nullptr};
  std::atomic<bool> placed{false};
  char path[PATH_MAX] = {};
  int rank = 0;
  int world_size = 1;
};
Process process;

// Calls `is_it` with each group's place until it returns true. Returns that place, or null.
template <typename IsIt>
GroupRecords* find_place(IsIt is_it) {
  for (const Arena* arena = process.arenas; arena != nullptr; arena = arena->next) {
    char* const first = reinterpret_cast<char*>(arena->records + 1);
    const char* const end = first + arena->records->used.load(memory_order_acquire);
    for (char* at = first; at < end;) {
      auto* const group = reinterpret_cast<GroupRecords*>(at);
      if (is_it(*group)) return group;
      at += GroupRecords::bytes_for(group->capacity);
    }
  }
  return nullptr;
}

// Takes memory of that size, which is zero: of this descriptor, or of this process's own (-1).
void add_arena(int memory, std::size_t bytes) {
  const int flags = memory >= 0 ? MAP_SHARED : MAP_PRIVATE | MAP_ANONYMOUS;
  void* const mapped = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, flags, memory, 0);
  if (mapped == MAP_FAILED) {
    throw Error(ErrorCode::System, "flight recorder: no memory: " + std::string(std::strerror(errno)));
  }
  auto* const records = static_cast<CallRecordsHeader*>(mapped);
  for (std::size_t i = 0; i <= static_cast<std::size_t>(OperationKind::Mark); ++i) {
    const Operation operation = {.kind = static_cast<OperationKind>(i)};
    const std::string_view name = operation_name(operation.kind);
    name.copy(records->operations[i].data(), records->operations[i].size() - 1);
    if (operation.is_message()) records->messages |= 1U << i;
  }
  records->version = rendezvous::kCallRecordsVersion;
  process.arenas = std::make_unique<Arena>(Arena{process.arenas, records, bytes}).release();
}

GroupRecords* take_place(std::size_t capacity) {
  GroupRecords* const unused =
      find_place([&](const GroupRecords& group) { return group.in_use == 0 && group.capacity == capacity; });
  if (unused != nullptr) return unused;
  const std::size_t needed = GroupRecords::bytes_for(capacity);
  const auto has_room = [&](const Arena* arena) {
    return arena != nullptr && needed <= arena->bytes - sizeof(CallRecordsHeader) - arena->records->used;
  };
  if (!has_room(process.arenas)) add_arena(-1, std::max(kCallRecordsBytes, sizeof(CallRecordsHeader) + needed));
  CallRecordsHeader* const records = process.arenas.load()->records;
  const std::size_t used = records->used;
  auto* const group = reinterpret_cast<GroupRecords*>(reinterpret_cast<char*>(records + 1) + used);
  group->capacity = capacity;
  records->used.store(used + needed, memory_order_release);
  return group;
}

std::int64_t nanoseconds(FlightRecorder::Time time) { return time.time_since_epoch().count(); }

// ---- Writing, which a signal handler may do ----

std::int64_t clock_ns(clockid_t clock) {
  timespec now = {};
  clock_gettime(clock, &now);
  return std::int64_t{now.tv_sec} * 1'000'000'000 + now.tv_nsec;
}

struct Writer {
  int fd;
  std::int64_t since_1970_ns;  // when the steady clock was zero
  bool good = true;

  void write(const FixedText& text) { good = good && write_all(fd, text.text()); }

  void add_time(FixedText& out, const char* name, std::int64_t steady_ns) const {
    out.add(", \"").add(name).add("\": ");
    if (steady_ns == 0) {
      out.add("null");
    } else {
      out.add_number(static_cast<std::uint64_t>((since_1970_ns + steady_ns) / 1000));
    }
  }

  void write_head(std::string_view why) {
    char memory[kWhyBytes + 256];
    FixedText out(memory, kWhyBytes);
    out.add("{\"rank\": ").add_number(static_cast<std::uint64_t>(process.rank));
    out.add(", \"world_size\": ").add_number(static_cast<std::uint64_t>(process.world_size));
    out.add(", \"pid\": ").add_number(static_cast<std::uint64_t>(getpid()));
    add_time(out, "time_us", clock_ns(CLOCK_MONOTONIC));
    out.add(",\n \"why\": \"").add_escaped(why);
    out.grow(sizeof memory - kWhyBytes);
    out.add("\",\n \"groups\": [");
    write(out);
  }

  void write_group(const GroupRecords& group, bool is_first) {
    char memory[2 * kNameBytes + 128];
    FixedText out(memory, sizeof memory);
    out.add(is_first ? "\n" : ",\n").add("  {\"name\": \"");
    out.add_escaped({group.name.data(), strnlen(group.name.data(), kNameBytes)});
    out.add("\", \"rank\": ").add_number(static_cast<std::uint64_t>(group.rank));
    out.add(", \"size\": ").add_number(static_cast<std::uint64_t>(group.size)).add(", \"operations\": [");
    write(out);
    const std::uint64_t last = group.last;
    bool is_first_operation = true;
    for (std::uint64_t number = last >= group.capacity ? last - group.capacity + 1 : 1; number <= last; ++number) {
      if (write_operation(group.records()[number % group.capacity], number, is_first_operation)) {
        is_first_operation = false;
      }
    }
    char end[8];
    write(FixedText(end, sizeof end).add("]}"));
  }

  // Returns false if the record is being overwritten.
  bool write_operation(const CallRecord& record, std::uint64_t number, bool is_first) {
    if (record.number != number) return false;
    char memory[640];
    FixedText out(memory, sizeof memory);
    const auto kind = static_cast<OperationKind>(record.kind.load());
    out.add(is_first ? "\n" : ",\n").add("   {\"sequence\": ").add_number(record.sequence);
    out.add(", \"operation\": \"").add(operation_name(kind));
    out.add("\", \"count\": ").add_number(record.count).add(", \"dtype\": \"").add(dtype_name(record.dtype));
    out.add("\", \"bytes\": ").add_number(record.bytes);
    add_name_or_null(out, "reduction", Operation{.kind = kind}.reduces() ? reduction_of(record) : nullptr);
    const bool is_message = Operation{.kind = kind}.is_message();
    add_number_or_null(out, "root", has_root(kind), record.root);
    add_number_or_null(out, "peer", is_message, record.root);
    add_number_or_null(out, "tag", is_message, record.tag);
    add_name_or_null(out, "state", kStates[static_cast<std::size_t>(record.state.load())]);
    add_time(out, "issued_us", record.issued_ns);
    add_time(out, "started_us", record.started_ns);
    add_time(out, "ended_us", record.ended_ns);
    out.add("}");
    if (record.number != number) return false;
    write(out);
    return true;
  }

  static const char* reduction_of(const CallRecord& record) {
    return collectives::reduce_op_name(static_cast<collectives::ReduceOp>(record.reduce_op.load()));
  }

  static void add_number_or_null(FixedText& out, const char* name, bool has_one, std::int64_t value) {
    out.add(", \"").add(name).add("\": ");
    if (!has_one) {
      out.add("null");
    } else {
      if (value < 0) out.add("-");
      out.add_number(static_cast<std::uint64_t>(value < 0 ? -value : value));
    }
  }

  static void add_name_or_null(FixedText& out, const char* name, const char* value) {
    out.add(", \"").add(name).add("\": ");
    if (value == nullptr) {
      out.add("null");
    } else {
      out.add("\"").add(value).add("\"");
    }
  }
};

bool write_to(int fd, std::string_view why) {
  Writer writer = {fd, clock_ns(CLOCK_REALTIME) - clock_ns(CLOCK_MONOTONIC)};
  writer.write_head(why);
  bool is_first = true;
  find_place([&](const GroupRecords& group) {
    if (group.in_use.load(memory_order_acquire) != 0) writer.write_group(group, std::exchange(is_first, false));
    return false;
  });
  char end[8];
  writer.write(FixedText(end, sizeof end).add("]}\n"));
  return writer.good;
}

// Two threads may write at once. Each has a temporary file of its own, and the file renamed last stays.
bool put_in_place(const char* path, std::string_view why) {
  char temporary[PATH_MAX + 32];
  FixedText name(temporary, sizeof temporary - 1);
  std::uint64_t id = 0;  // as rendezvous::temporary_name(), which allocates memory
  if (getrandom(&id, sizeof id, 0) != sizeof id) return false;
  name.add(path).add(".tmp.").add_number(id, 16);
  temporary[name.text().size()] = '\0';
  rendezvous::Descriptor file = rendezvous::create_file(temporary, 0644);
  if (!file) return false;
  const bool written = write_to(file.get(), why);
  const int why_not = errno;
  file.close();
  if (written && rename(temporary, path) == 0) return true;
  if (!written) errno = why_not;
  unlink(temporary);
  return false;
}

}  // namespace

FlightRecorder::FlightRecorder(std::string_view group, GroupPlace place, std::size_t capacity) {
  if (capacity == 0) return;
  const std::lock_guard lock(process.mutex);
  group_ = take_place(capacity);
  for (std::size_t i = 0; i < capacity; ++i) group_->records()[i].number = 0;
  group_->last = 0;
  group_->name.fill(0);
  group.copy(group_->name.data(), kNameBytes);
  group_->rank = place.rank;
  group_->size = place.size;
  group_->in_use.store(1, memory_order_release);
}

FlightRecorder::~FlightRecorder() {
  if (group_ == nullptr) return;
  const std::lock_guard lock(process.mutex);
  group_->in_use = 0;
}

std::uint64_t FlightRecorder::issued(std::uint64_t sequence, const Operation& operation, Time now) {
  if (group_ == nullptr) return 0;
  const std::uint64_t number = group_->last.load(memory_order_relaxed) + 1;
  CallRecord& record = group_->records()[number % group_->capacity];
  record.number.exchange(0, memory_order_acquire);  // acquire: the stores below stay after it
  record.sequence.store(sequence, memory_order_relaxed);
  record.kind.store(static_cast<std::uint32_t>(operation.kind), memory_order_relaxed);
  record.state.store(CallState::Issued, memory_order_relaxed);
  record.dtype.store(operation.dtype, memory_order_relaxed);
  record.reduce_op.store(static_cast<std::int32_t>(operation.reduce_op), memory_order_relaxed);
  record.root.store(operation.root, memory_order_relaxed);
  record.tag.store(operation.tag, memory_order_relaxed);
  record.count.store(operation.count, memory_order_relaxed);
  record.bytes.store(operation.bytes(), memory_order_relaxed);
  record.issued_ns.store(nanoseconds(now), memory_order_relaxed);
  record.started_ns.store(0, memory_order_relaxed);
  record.ended_ns.store(0, memory_order_relaxed);
  record.number.store(number, memory_order_release);
  group_->last.store(number, memory_order_release);
  return number;
}

CallRecord* FlightRecorder::find(std::uint64_t number) const {
  if (group_ == nullptr || number == 0) return nullptr;
  CallRecord& record = group_->records()[number % group_->capacity];
  return record.number.load(memory_order_relaxed) == number ? &record : nullptr;
}

void FlightRecorder::started(std::uint64_t record, Time now) {
  CallRecord* const found = find(record);
  if (found == nullptr) return;
  found->started_ns.store(nanoseconds(now), memory_order_relaxed);
  found->state.store(CallState::Started, memory_order_relaxed);
}

void FlightRecorder::ended(std::uint64_t record, Time now) {
  CallRecord* const found = find(record);
  if (found == nullptr) return;
  found->ended_ns.store(nanoseconds(now), memory_order_relaxed);
  found->state.store(CallState::Ended, memory_order_relaxed);
}

void FlightRecorder::failed(std::uint64_t record, Time now) {
  CallRecord* const found = find(record);
  if (found == nullptr) return;
  found->ended_ns.store(nanoseconds(now), memory_order_relaxed);
  found->state.store(CallState::Failed, memory_order_relaxed);
}

std::size_t flight_recorder_size(const Environment& environment) {
  const std::optional<Setting> size = setting(environment, rendezvous::contract::kFlightRecorderSize);
  return size ? static_cast<std::size_t>(number(*size, 0, kMostKept)) : kUsuallyKept;
}

void place_flight_recorder(const std::string& path, int rank, int world_size) {
  const std::lock_guard lock(process.mutex);
  process.rank = rank;
  process.world_size = world_size;
  process.placed = false;
  if (path.empty() || path.size() >= sizeof process.path) return;
  memcpy(process.path, path.c_str(), path.size() + 1);
  process.placed.store(true, memory_order_release);
}

void share_flight_recorder(const Environment& environment) {
  const auto socket = environment(rendezvous::contract::kAgentSocket);
  const auto incarnation = environment(rendezvous::contract::kIncarnation);
  const std::lock_guard lock(process.mutex);
  if (!socket || !incarnation || process.arenas != nullptr) return;
  const std::string request = "{\"version\":" + std::to_string(rendezvous::kAgentSocketVersion) +
                              ",\"ask\":\"calls\",\"incarnation\":\"" + *incarnation +
                              "\",\"layout\":" + std::to_string(rendezvous::kCallRecordsVersion) + "}";
  try {
    const rendezvous::DescriptorMessage answer = rendezvous::ask_agent(*socket, request);
    if (answer.descriptors.size() == 1) add_arena(answer.descriptors[0].get(), kCallRecordsBytes);
  } catch (const Error& error) {
    std::fprintf(stderr, "libddp: ddprun does not see this process's collectives: %s\n", error.what());
  }
}

bool write_flight_recorder(std::string_view why) noexcept {
  return process.placed.load(memory_order_acquire) && put_in_place(process.path, why);
}

void save_flight_recorder(const std::string& path, std::string_view why) {
  if (put_in_place(path.c_str(), why)) return;
  throw Error(ErrorCode::System, "flight recorder: cannot write " + path + ": " + std::strerror(errno));
}

}  // namespace ddp::runtime
