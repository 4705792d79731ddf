// SPDX-License-Identifier: BSD-3-Clause
#include "runtime/diagnosis/flight_recorder.hpp"

#include <fcntl.h>
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
#include <optional>

#include "rendezvous/base/error.hpp"
#include "rendezvous/base/new_file.hpp"
#include "rendezvous/worker_contract.hpp"
#include "runtime/base/buffer.hpp"
#include "runtime/base/signal_safe_text.hpp"
#include "runtime/collective/describe_operation.hpp"
#include "runtime/diagnosis/shared_records.hpp"

namespace ddp::runtime {

namespace {

using rendezvous::system_error;
using std::memory_order_acquire;
using std::memory_order_relaxed;
using std::memory_order_release;

using Record = rendezvous::OperationRecord;
using State = rendezvous::OperationState;
constexpr const char* kStates[] = {"issued", "started", "ended", "failed"};

constexpr std::size_t kUsuallyKept = 256;
constexpr int kMostKept = 1'000'000;
constexpr std::size_t kNameBytes = 64;
constexpr std::size_t kWhyBytes = 1024;

}  // namespace

struct FlightRecorder::Ring {
  Ring* next = nullptr;
  std::atomic<bool> in_use{false};
  std::size_t capacity = 0;  // records that there is memory for
  std::size_t kept = 0;      // the newest of them that are written to a file
  std::unique_ptr<Record[]> own;
  std::optional<SharedPlace> shared;  // without memory of its own
  Record* records = nullptr;
  std::atomic<std::uint64_t> last{0};
  char group[kNameBytes] = {};
  GroupPlace place;
};

namespace {

// The recorders of this process. Global, since a signal handler has no other access to them.
struct Process {
  std::mutex mutex;  // held by threads that change it
  std::atomic<FlightRecorder::Ring*> rings{nullptr};
  std::atomic<bool> placed{false};
  char path[PATH_MAX] = {};
  int rank = 0;
  int world_size = 1;
};
Process process;

// Takes memory that the agent reads, if there is an agent and some is left; else memory of its own. The place of a past
// group is taken only where no other is left, so that the agent has time to read it.
FlightRecorder::Ring* take_ring(std::size_t kept) {
  const std::optional<SharedPlace> shared = take_shared_place(kept);
  for (FlightRecorder::Ring* ring = process.rings; ring != nullptr && !shared; ring = ring->next) {
    if (!ring->in_use && (ring->shared ? ring->capacity >= kept : ring->capacity == kept)) return ring;
  }
  if (!shared) note_group_left_out();
  auto ring = std::make_unique<FlightRecorder::Ring>();
  ring->capacity = shared ? shared->capacity : kept;
  ring->shared = shared;
  if (!shared) ring->own = std::make_unique<Record[]>(kept);
  ring->records = shared ? shared->records : ring->own.get();
  ring->next = process.rings;
  process.rings = ring.get();
  return ring.release();
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

  void write_group(const FlightRecorder::Ring& ring, bool is_first) {
    char memory[2 * kNameBytes + 128];
    FixedText out(memory, sizeof memory);
    out.add(is_first ? "\n" : ",\n").add("  {\"name\": \"").add_escaped({ring.group, strnlen(ring.group, kNameBytes)});
    out.add("\", \"rank\": ").add_number(static_cast<std::uint64_t>(ring.place.rank));
    out.add(", \"size\": ").add_number(static_cast<std::uint64_t>(ring.place.size)).add(", \"operations\": [");
    write(out);
    const std::uint64_t last = ring.last;
    bool is_first_operation = true;
    for (std::uint64_t number = last >= ring.kept ? last - ring.kept + 1 : 1; number <= last; ++number) {
      if (write_operation(ring.records[number % ring.capacity], number, is_first_operation)) {
        is_first_operation = false;
      }
    }
    char end[8];
    write(FixedText(end, sizeof end).add("]}"));
  }

  // Returns false if the record is being overwritten.
  bool write_operation(const Record& record, std::uint64_t number, bool is_first) {
    if (record.number != number) return false;
    char memory[640];
    FixedText out(memory, sizeof memory);
    const auto kind = static_cast<OperationKind>(record.kind.load());
    out.add(is_first ? "\n" : ",\n").add("   {\"sequence\": ").add_number(record.sequence);
    out.add(", \"operation\": \"").add(operation_name(kind));
    out.add("\", \"count\": ").add_number(record.count).add(", \"dtype\": \"").add(dtype_name(record.dtype));
    out.add("\", \"bytes\": ").add_number(record.bytes);
    add_name_or_null(out, "reduction",
                     Operation{.kind = kind}.reduces()
                         ? collectives::reduce_op_name(static_cast<collectives::ReduceOp>(record.reduce_op.load()))
                         : nullptr);
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
  for (const FlightRecorder::Ring* ring = process.rings; ring != nullptr; ring = ring->next) {
    if (!ring->in_use.load(memory_order_acquire)) continue;
    writer.write_group(*ring, is_first);
    is_first = false;
  }
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
  ring_ = take_ring(capacity);
  ring_->kept = std::min(capacity, ring_->capacity);
  const auto clear = [this] {
    for (std::uint64_t i = 0; ring_->last != 0 && i < ring_->capacity; ++i) ring_->records[i].number = 0;
    ring_->last = 0;
  };
  if (ring_->shared) {
    move_in(*ring_->shared->group, group, place, clear);
  } else {
    clear();
  }
  const std::size_t length = std::min(group.size(), kNameBytes);
  memcpy(ring_->group, group.data(), length);
  memset(ring_->group + length, 0, kNameBytes - length);
  ring_->place = place;
  ring_->in_use.store(true, memory_order_release);
}

FlightRecorder::~FlightRecorder() {
  if (ring_ == nullptr) return;
  const std::lock_guard lock(process.mutex);
  if (ring_->shared) ring_->shared->group->is_gone = 1;
  ring_->in_use = false;
}

std::uint64_t FlightRecorder::issued(std::uint64_t sequence, const Operation& operation, Time now) {
  if (ring_ == nullptr) return 0;
  const std::uint64_t number = ring_->last.load(memory_order_relaxed) + 1;
  Record& record = ring_->records[number % ring_->capacity];
  record.number.exchange(0, memory_order_acquire);  // acquire: the stores below stay after it
  record.sequence.store(sequence, memory_order_relaxed);
  record.kind.store(static_cast<std::int32_t>(operation.kind), memory_order_relaxed);
  record.state.store(State::Issued, memory_order_relaxed);
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
  ring_->last.store(number, memory_order_release);
  return number;
}

rendezvous::OperationRecord* FlightRecorder::find(std::uint64_t number) const {
  if (ring_ == nullptr || number == 0) return nullptr;
  Record& record = ring_->records[number % ring_->capacity];
  return record.number.load(memory_order_relaxed) == number ? &record : nullptr;
}

void FlightRecorder::started(std::uint64_t record, Time now) {
  Record* const found = find(record);
  if (found == nullptr) return;
  found->started_ns.store(nanoseconds(now), memory_order_relaxed);
  found->state.store(State::Started, memory_order_relaxed);
}

void FlightRecorder::ended(std::uint64_t record, Time now) {
  Record* const found = find(record);
  if (found == nullptr) return;
  found->ended_ns.store(nanoseconds(now), memory_order_relaxed);
  found->state.store(State::Ended, memory_order_relaxed);
}

void FlightRecorder::failed(std::uint64_t record, Time now) {
  Record* const found = find(record);
  if (found == nullptr) return;
  found->ended_ns.store(nanoseconds(now), memory_order_relaxed);
  found->state.store(State::Failed, memory_order_relaxed);
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

bool write_flight_recorder(std::string_view why) noexcept {
  return process.placed.load(memory_order_acquire) && put_in_place(process.path, why);
}

void save_flight_recorder(const std::string& path, std::string_view why) {
  if (put_in_place(path.c_str(), why)) return;
  system_error("flight recorder: cannot write " + path);
}

}  // namespace ddp::runtime
