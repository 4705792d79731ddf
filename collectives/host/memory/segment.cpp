// SPDX-License-Identifier: BSD-3-Clause
#include "collectives/host/memory/segment.hpp"

#include <fcntl.h>
#include <linux/futex.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <bit>
#include <cerrno>
#include <climits>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <utility>

#include "collectives/host/failure.hpp"
#include "rendezvous/base/text.hpp"
#include "rendezvous/machine/memory_left.hpp"
#include "rendezvous/worker_contract.hpp"

namespace ddp::collectives {
namespace {

constexpr std::uint64_t kVersion = 0x6464707365670006;  // "ddpseg", and the number of the layout
constexpr std::size_t kPage = 4096;
constexpr std::uint64_t kLeastRing = 64;          // bytes for each rank, of which an exchange uses half
constexpr std::uint64_t kHeapBytes = 1ULL << 45;  // used once each, so more than a job ever allocates
constexpr int kSeals = F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL;

constexpr std::size_t page_up(std::size_t bytes) { return (bytes + kPage - 1) / kPage * kPage; }

[[noreturn]] void refuse(const std::string& what, int error) {
  throw Failure(DDP_BACKEND_ERROR, "shared memory: " + what + ": " + std::strerror(error));
}

}  // namespace

std::uint64_t usual_ring_bytes() {
  const char* name = rendezvous::contract::kRingBytes;
  if (const char* given = std::getenv(name); given != nullptr && *given != '\0') {
    char* end = nullptr;
    const unsigned long long bytes = std::strtoull(given, &end, 10);
    if (*end == '\0' && bytes >= kPage && bytes <= (1ULL << 30) && std::has_single_bit(bytes)) return bytes;
    throw Failure(DDP_BACKEND_ERROR, std::string(name) + "=" + given +
                                         ": give the bytes of a rank's ring, a power of 2 from 4096 to 1073741824");
  }
  const long l2 = sysconf(_SC_LEVEL2_CACHE_SIZE);  // 0 or -1 where the C library does not know
  const auto bytes = std::bit_ceil(2 * static_cast<std::uint64_t>(l2 > 0 ? l2 : 1 << 20));
  return std::clamp<std::uint64_t>(bytes, 1 << 20, 4 << 20);
}

// Returns the address space for buffers of the program: none where files are limited in size.
static std::uint64_t heap_bytes() {
  rlimit limit = {};
  const bool is_limited = getrlimit(RLIMIT_FSIZE, &limit) == 0 && limit.rlim_cur < 2 * kHeapBytes;
  return is_limited ? 0 : kHeapBytes;
}

SegmentPlan plan_segment(std::uint32_t ranks, std::uint64_t ring_bytes, std::uint32_t live_groups) {
  if (live_groups >= 1) ring_bytes = std::min<std::uint64_t>(ring_bytes, 2 << 20);
  if (live_groups >= 2) ring_bytes = std::min<std::uint64_t>(ring_bytes / 4, 512 << 10);
  if (live_groups >= 4) ring_bytes = std::min<std::uint64_t>(ring_bytes / 16, 32 << 10);
  SegmentPlan plan;
  plan.ranks = ranks;
  plan.ring_bytes = std::max<std::uint64_t>({ring_bytes, kPage, std::bit_ceil(kLeastRing * std::uint64_t{ranks})});
  const std::uint64_t share = std::bit_floor(plan.ring_bytes / (4ULL * std::max<std::uint32_t>(ranks - 1, 1)));
  plan.channel_bytes = std::clamp<std::uint64_t>(share, kPage, 256 << 10);
  plan.heap_bytes = heap_bytes();
  return plan;
}

Segment::Segment(rendezvous::Descriptor descriptor, const SegmentPlan& plan)
    : descriptor_(std::move(descriptor)), plan_(plan) {
  const std::size_t ranks = plan.ranks;
  counters_at_ = kPage;
  presence_at_ = counters_at_ + ranks * sizeof(Counters);
  liveness_at_ = presence_at_ + ranks * sizeof(Presence);
  bells_at_ = liveness_at_ + ranks * sizeof(LivenessWord);
  ends_at_ = bells_at_ + ranks * sizeof(Bell);
  rings_at_ = page_up(ends_at_ + ranks * ranks * sizeof(ChannelEnds));
  channels_at_ = rings_at_ + ranks * plan.ring_bytes;
  bytes_ = page_up(channels_at_ + ranks * ranks * plan.channel_bytes);
}

Segment::Segment(Segment&& other) noexcept
    : descriptor_(std::move(other.descriptor_)),
      plan_(other.plan_),
      counters_at_(other.counters_at_),
      presence_at_(other.presence_at_),
      liveness_at_(other.liveness_at_),
      bells_at_(other.bells_at_),
      ends_at_(other.ends_at_),
      rings_at_(other.rings_at_),
      channels_at_(other.channels_at_),
      bytes_(other.bytes_),
      base_(std::exchange(other.base_, nullptr)) {}

Segment::~Segment() {
  if (base_ != nullptr) munmap(base_, bytes_);
}

namespace {

unsigned char* map(int descriptor, std::size_t bytes) {
  void* base = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_NORESERVE, descriptor, 0);
  if (base == MAP_FAILED) refuse("mapping " + std::to_string(bytes) + " bytes", errno);
  // A child that the program forks is no rank: it would only keep the memory alive.
  madvise(base, bytes, MADV_DONTFORK);
  return static_cast<unsigned char*>(base);
}

}  // namespace

Segment Segment::create(const SegmentPlan& plan) {
  rendezvous::Descriptor descriptor(memfd_create("ddp_group", MFD_CLOEXEC | MFD_ALLOW_SEALING));
  if (!descriptor) refuse("memfd_create", errno);
  Segment segment(std::move(descriptor), plan);
  const int fd = segment.descriptor();
  if (ftruncate(fd, static_cast<off_t>(segment.bytes_ + plan.heap_bytes)) != 0) {
    refuse("laying out " + std::to_string(segment.bytes_) + " bytes (is there a limit, ulimit -f?)", errno);
  }
  if (fcntl(fd, F_ADD_SEALS, kSeals) != 0) refuse("sealing", errno);
  segment.allocate(0, segment.rings_at_, "the counters of " + std::to_string(plan.ranks) + " ranks");
  segment.base_ = map(fd, segment.bytes_);
  segment.header().plan = plan;
  segment.header().version = kVersion;
  return segment;
}

Segment Segment::attach(rendezvous::Descriptor descriptor) {
  SegmentHeader header = {};
  struct stat facts = {};
  const int seals = fcntl(descriptor.get(), F_GET_SEALS);
  if (pread(descriptor.get(), static_cast<void*>(&header), sizeof header, 0) != ssize_t{sizeof header} ||
      fstat(descriptor.get(), &facts) != 0 || header.version != kVersion || (seals & kSeals) != kSeals) {
    throw Failure(DDP_BACKEND_ERROR,
                  "shared memory: what the other rank passed is not a segment of this version of libddp (do all ranks "
                  "use the same libddp?)");
  }
  Segment segment(std::move(descriptor), header.plan);
  if (segment.bytes_ + segment.plan_.heap_bytes != static_cast<std::size_t>(facts.st_size))
    refuse("a segment of another size", EPROTO);
  segment.base_ = map(segment.descriptor(), segment.bytes_);
  return segment;
}

void Segment::allocate(std::size_t offset, std::size_t bytes, const std::string& purpose) const {
  // Beyond the limit of a control group fallocate does not fail: the kernel kills a process. So compare first.
  if (const auto left = rendezvous::least_memory_left(); left && left->bytes < bytes) {
    throw Failure(DDP_BACKEND_ERROR, "shared memory for " + purpose + ": " + std::to_string(bytes) +
                                         " bytes are needed, and control group " + left->group + " has " +
                                         std::to_string(left->bytes) + " of its " + std::to_string(left->limit) +
                                         " left (raise its memory limit, set " + rendezvous::contract::kRingBytes +
                                         " lower, or use the backend \"gloo\")");
  }
  // Without memory behind it, the first write would be a SIGBUS.
  int result = 0;
  do {
    result = fallocate(descriptor_.get(), 0, static_cast<off_t>(offset), static_cast<off_t>(bytes));
  } while (result != 0 && errno == EINTR);
  if (result != 0) refuse(std::to_string(bytes) + " bytes for " + purpose, errno);
}

void Segment::allocate_ring(std::uint32_t rank) const {
  allocate(rings_at_ + rank * plan_.ring_bytes, plan_.ring_bytes, "the ring of rank " + std::to_string(rank));
}

void Segment::allocate_channel(std::uint32_t from, std::uint32_t to) const {
  allocate(channels_at_ + (std::size_t{from} * plan_.ranks + to) * plan_.channel_bytes, plan_.channel_bytes,
           "messages from rank " + std::to_string(from) + " to rank " + std::to_string(to));
}

std::size_t Segment::whole_pages(std::size_t bytes) { return page_up(bytes); }

unsigned char* Segment::allocate_heap(std::uint64_t offset, std::size_t bytes, std::uint32_t rank) const {
  if (bytes > plan_.heap_bytes || bytes * plan_.ranks > plan_.heap_bytes - offset)
    refuse(std::to_string(bytes) + " bytes for a buffer (is there a limit, ulimit -f?)", EFBIG);
  const std::size_t part = bytes_ + offset + rank * bytes;
  allocate(part, bytes, "a buffer");
  void* const view = mmap(nullptr, bytes * plan_.ranks, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_NORESERVE,
                          descriptor_.get(), static_cast<off_t>(bytes_ + offset));
  if (view != MAP_FAILED) return static_cast<unsigned char*>(view);
  const int error = errno;
  fallocate(descriptor_.get(), FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, static_cast<off_t>(part),
            static_cast<off_t>(bytes));
  refuse("mapping a buffer of " + std::to_string(bytes) + " bytes", error);
}

void Segment::free_heap(unsigned char* view, std::uint64_t offset, std::size_t bytes, std::uint32_t rank) const {
  munmap(view, bytes * plan_.ranks);
  fallocate(descriptor_.get(), FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE,
            static_cast<off_t>(bytes_ + offset + rank * bytes), static_cast<off_t>(bytes));
}

void Segment::lose(std::uint32_t rank, LossReason reason) const {
  std::uint64_t none = 0;
  header().lost.compare_exchange_strong(none, lost_value(rank, reason));
  wake_all();
}

void Segment::wake_all() const {
  for (std::uint32_t rank = 0; rank < plan_.ranks; ++rank) {
    wake_sleepers(low_half(counters(rank).published));
    bell(rank).rings.fetch_add(1);
    wake_sleepers(bell(rank).rings);
  }
}

void wake_sleepers(const std::atomic<std::uint32_t>& word) {
  syscall(SYS_futex, &word, FUTEX_WAKE, INT_MAX, nullptr, nullptr, 0);
}

void sleep_on(const std::atomic<std::uint32_t>& word, std::uint32_t seen, long nanoseconds) {
  const timespec most = {nanoseconds / 1'000'000'000, nanoseconds % 1'000'000'000};
  syscall(SYS_futex, &word, FUTEX_WAIT, seen, &most, nullptr, 0);
}

const std::atomic<std::uint32_t>& low_half(const std::atomic<std::uint64_t>& counter) {
  const auto* halves = reinterpret_cast<const std::atomic<std::uint32_t>*>(&counter);
  return halves[std::endian::native == std::endian::little ? 0 : 1];
}

}  // namespace ddp::collectives
