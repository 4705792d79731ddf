// SPDX-License-Identifier: BSD-3-Clause
#include "tests/collectives/host/successions.hpp"

#include <sched.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <catch2/catch.hpp>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <numeric>
#include <random>
#include <stdexcept>

#include "collectives/backend_error.hpp"
#include "tests/collectives/host/job.hpp"
#include "tests/collectives/host/program.hpp"

namespace ddp::collectives::test {
namespace {

using rendezvous::Descriptor;

SegmentPlan plan_of(std::uint32_t ranks, std::uint64_t log_bytes) {
  SegmentPlan plan = plan_segment(ranks, 256 << 10, 0);
  plan.log_bytes = log_bytes;
  return plan;
}

std::vector<std::int32_t> numbers(std::uint32_t ranks) {
  std::vector<std::int32_t> all(ranks);
  std::iota(all.begin(), all.end(), 0);
  return all;
}

// One rank's collectives. What each one is given depends on the results of those before.
class Calls {
 public:
  Calls(ddp_backend_group* group, std::uint32_t rank, std::uint64_t digest)
      : group_(group), rank_(rank), size_(group->size()), digest_(digest) {}

  std::uint64_t digest() const { return digest_; }

  void step(std::uint64_t number) {
    const auto root = static_cast<std::int32_t>(number % size_);
    reduce(3, root);
    all_reduce(7);
    all_reduce(20'000);
    if (number % 8 == 0) all_reduce(150'000);
    broadcast(number % 5 == 0 ? 200'000 : 100, root);
    reduce_scatter(900);
    all_gather(2'000);
    gather_and_scatter(500, root);
    all_to_all(number);
    check(table_.barrier(group_, 0, kTimeoutMs, &error_));
    all_reduce(40);
  }

 private:
  std::vector<float> values(std::size_t count) {
    std::vector<float> drawn(count);
    std::uint64_t state = mix(digest_ + rank_ * 77 + count);
    for (float& value : drawn) {
      state = state * 6364136223846793005ULL + 1442695040888963407ULL;
      value = static_cast<float>(static_cast<std::int32_t>(state >> 32)) * 0x1p-30F;
    }
    return drawn;
  }
  void check(ddp_backend_status status) const {
    if (status != DDP_BACKEND_OK) throw std::runtime_error("rank " + std::to_string(rank_) + ": " + error_.text);
  }
  void add(const std::vector<float>& results) {
    for (const float value : results) {
      std::uint32_t bits = 0;
      std::memcpy(&bits, &value, sizeof bits);
      digest_ = mix(digest_ * 31 + bits);
    }
  }

  void all_reduce(std::size_t count) {
    std::vector<float> data = values(count);
    check(table_.all_reduce(group_, data.data(), count, 0, 0, 0, kTimeoutMs, &error_));
    add(data);
  }
  void reduce(std::size_t count, std::int32_t root) {
    std::vector<float> data = values(count);
    check(table_.reduce(group_, data.data(), count, 0, 0, root, 0, kTimeoutMs, &error_));
    if (rank_ == static_cast<std::uint32_t>(root)) add(data);
  }
  void broadcast(std::size_t count, std::int32_t root) {
    std::vector<float> data = values(count);
    check(table_.broadcast(group_, data.data(), count, 0, root, 0, kTimeoutMs, &error_));
    add(data);
  }
  void reduce_scatter(std::size_t count) {
    const std::vector<float> input = values(count * size_);
    std::vector<float> output(count);
    check(table_.reduce_scatter(group_, input.data(), output.data(), count, 0, 0, 0, kTimeoutMs, &error_));
    add(output);
  }
  void all_gather(std::size_t count) {
    const std::vector<float> input = values(count);
    std::vector<float> output(count * size_);
    check(table_.all_gather(group_, input.data(), output.data(), count, 0, 0, kTimeoutMs, &error_));
    add(output);
  }
  void gather_and_scatter(std::size_t count, std::int32_t root) {
    std::vector<float> part = values(count), all(count * size_);
    check(table_.gather(group_, part.data(), all.data(), count, 0, root, 0, kTimeoutMs, &error_));
    if (rank_ == static_cast<std::uint32_t>(root)) add(all);
    check(table_.scatter(group_, all.data(), part.data(), count, 0, root, 0, kTimeoutMs, &error_));
    add(part);
  }
  void all_to_all(std::uint64_t number) {
    const auto count = [number](std::uint32_t from, std::uint32_t to) {
      return std::size_t{mix(number * 64 + from * 8 + to) % 300};
    };
    std::vector<std::size_t> sent, received;
    for (std::uint32_t r = 0; r < size_; ++r) {
      sent.push_back(count(rank_, r));
      received.push_back(count(r, rank_));
    }
    const std::vector<float> input = values(std::accumulate(sent.begin(), sent.end(), std::size_t{0}));
    std::vector<float> output(std::accumulate(received.begin(), received.end(), std::size_t{0}));
    check(table_.all_to_all(group_, input.data(), sent.data(), output.data(), received.data(), 0, 0, kTimeoutMs,
                            &error_));
    add(output);
  }

  const ddp_backend_table& table_ = host_backend();
  ddp_backend_group* group_;
  const std::uint32_t rank_, size_;
  std::uint64_t digest_;
  BackendError error_;
};

}  // namespace

Succession::Succession(std::uint32_t ranks, std::uint64_t log_bytes)
    : segment_(Segment::create(plan_of(ranks, log_bytes))) {
  void* const memory = mmap(nullptr, ranks * sizeof(Kept), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED) throw std::runtime_error("no shared memory");
  kept_ = static_cast<Kept*>(memory);
}

Succession::~Succession() { munmap(kept_, ranks() * sizeof(Kept)); }

ddp_backend_group* Succession::enter(std::uint32_t rank) const {
  const auto own = std::make_shared<const Segment>(Segment::attach(Descriptor(dup(segment_.descriptor()))));
  auto group = std::make_unique<ddp_backend_group>(own, rank, numbers(ranks()), 0);
  group->watch({}, {});
  return group.release();
}

ddp_backend_group* Succession::succeed(std::uint32_t rank, const Position& position) const {
  return make_successor(Descriptor(dup(segment_.descriptor())), rank, position, numbers(ranks()));
}

int Succession::work(std::uint32_t rank, std::uint64_t steps, bool is_first) const {
  Kept& own = kept(rank);
  const std::uint64_t complete = own.complete;
  const Kept::Record begin = complete > 0 ? own.records[(complete - 1) % 2] : Kept::Record{0, {}, 1};
  // A successor goes on at its record at once, or repeats the start, as a program does that sets up its objects again.
  const bool repeats_start = getpid() % 2 == 0;
  const Position from = repeats_start ? Position{} : begin.position;
  ddp_backend_group* const group = is_first ? enter(rank) : succeed(rank, from);
  const std::size_t descriptors = open_descriptors();
  BackendError error;
  if (complete > 0 && repeats_start) {
    Calls start(group, rank, 1);
    start.step(1000);
    if (catch_up(group, begin.position, &error) != DDP_BACKEND_OK) throw std::runtime_error(error.text);
  }
  Calls calls(group, rank, begin.digest);
  if (complete == 0) calls.step(1000);  // before the first mark
  for (std::uint64_t step = begin.step;; ++step) {
    if (step + 1 > complete) {
      own.records[step % 2] = {step, position(*group), calls.digest()};
      own.complete = step + 1;
    }
    if (mark(group, kTimeoutMs, &error) != DDP_BACKEND_OK) throw std::runtime_error(error.text);
    if (step == steps) break;
    calls.step(step);
  }
  if (open_descriptors() != descriptors) throw std::runtime_error("a descriptor is left open");
  own.result = calls.digest();
  host_backend().group_destroy(group);
  return 0;
}

namespace {

// The processes of a world's ranks, by rank.
class Processes {
 public:
  Processes(const Succession& world, std::uint64_t steps) : world_(world), steps_(steps) {
    for (std::uint32_t r = 0; r < world.ranks(); ++r) start(r, true);
  }
  void start(std::uint32_t rank, bool is_first) {
    pids_.resize(world_.ranks());
    pids_[rank] = fork_rank([this, rank, is_first] { return world_.work(rank, steps_, is_first); });
  }
  void kill(std::uint32_t rank) { ::kill(pids_[rank], SIGKILL); }
  // Waits for the end of a process that was killed. Returns whether it died of that and its rank has more to do.
  bool reap_killed(std::uint32_t rank) {
    const int code = reap(pids_[rank]);
    CHECK((code == -1 - SIGKILL || code == 0));
    pids_[rank] = 0;
    return code == -1 - SIGKILL && world_.kept(rank).result == 0;
  }
  void reap_all() {
    for (const pid_t pid : pids_) {
      if (pid != 0) CHECK(reap(pid) == 0);
    }
  }
  bool is_there(std::uint32_t rank) const { return pids_[rank] != 0; }

 private:
  const Succession& world_;
  const std::uint64_t steps_;
  std::vector<pid_t> pids_;
};

std::vector<std::uint64_t> results_of(const Succession& world) {
  std::vector<std::uint64_t> results;
  for (std::uint32_t r = 0; r < world.ranks(); ++r) results.push_back(world.kept(r).result);
  return results;
}

std::int64_t kib_of(const Segment& segment) {
  struct stat facts = {};
  REQUIRE(fstat(segment.descriptor(), &facts) == 0);
  return facts.st_blocks / 2;
}

// Kills one rank, or two at once, after a random time, and starts their successors. Returns how many had more to do.
int kill_some(Processes& processes, std::uint32_t ranks, std::mt19937& random) {
  const auto below = [&](std::uint32_t n) { return static_cast<std::uint32_t>(random() % n); };
  const std::uint32_t first = below(ranks);
  const std::uint32_t second = below(4) == 0 ? (first + 1 + below(ranks - 1)) % ranks : first;
  // Often so early that the successor of the kill before still repeats calls.
  const auto until = std::chrono::steady_clock::now() + std::chrono::microseconds(below(6000));
  while (std::chrono::steady_clock::now() < until) sched_yield();
  int succeeded = 0;
  std::vector<std::uint32_t> victims = {first};
  if (second != first) victims.push_back(second);
  std::erase_if(victims, [&](std::uint32_t rank) { return !processes.is_there(rank); });
  for (const std::uint32_t rank : victims) processes.kill(rank);
  std::erase_if(victims, [&](std::uint32_t rank) { return !processes.reap_killed(rank); });
  for (const std::uint32_t rank : victims) {
    processes.start(rank, false);
    ++succeeded;
  }
  return succeeded;
}

}  // namespace

void kill_and_succeed(std::uint32_t ranks, int kills) {
  const std::uint64_t steps = 3 * static_cast<std::uint64_t>(kills);
  const std::size_t descriptors = open_descriptors();
  {
    const Succession undisturbed(ranks), world(ranks);
    Processes(undisturbed, steps).reap_all();
    Processes processes(world, steps);
    std::mt19937 random{std::random_device()()};
    int killed = 0;
    for (int tries = 0; killed < kills && tries < 4 * kills; ++tries) killed += kill_some(processes, ranks, random);
    processes.reap_all();
    CHECK(results_of(world) == results_of(undisturbed));
    CHECK(results_of(world)[0] != 0);
    CHECK(kib_of(world.segment()) == kib_of(undisturbed.segment()));
    CHECK(world.segment().header().lost == 0);
    CHECK(killed >= kills / 4);
    if (std::getenv("DDPRUN_HOST_SUCCESSIONS") != nullptr) std::printf("%u ranks: %d were killed\n", ranks, killed);
  }
  CHECK(open_descriptors() == descriptors);
}

}  // namespace ddp::collectives::test
