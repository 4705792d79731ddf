// SPDX-License-Identifier: BSD-3-Clause
// The parts of the backend "ddp" that need no other rank: limits, sizes, seals, reductions.
#include <fcntl.h>
#include <sched.h>
#include <sys/mman.h>
#include <unistd.h>

#include <catch2/catch.hpp>
#include <chrono>
#include <cstring>
#include <filesystem>
#include <numeric>
#include <utility>

#include "collectives/backend_loader.hpp"
#include "collectives/element_types.hpp"
#include "collectives/float16.hpp"
#include "collectives/host/failure.hpp"
#include "collectives/host/memory/copies.hpp"
#include "collectives/host/memory/segment.hpp"
#include "collectives/host/memory/waiting.hpp"
#include "collectives/host/operations/reductions.hpp"
#include "tests/support/hosts.hpp"
#include "tests/support/process.hpp"

using namespace ddp::collectives;
using Catch::Matchers::Contains;

TEST_CASE("CPU quota: version 1 is understood, and no quota is no answer", "[collectives][unit]") {
  const ddp::testing::TemporaryFolder folder;
  const std::filesystem::path at = folder.path();
  folder.write("self", "4:cpu,cpuacct:/x\n7:memory:/x\n0::/\n");
  folder.write("sys/cpu/x/cpu.cfs_quota_us", "150000\n");
  folder.write("sys/cpu/x/cpu.cfs_period_us", "100000\n");
  CHECK(cpu_quota(at / "self", at / "sys") == 1.5);
  CHECK_FALSE(cpu_quota(at / "none", at / "sys"));
}

TEST_CASE("segment: sealed, so that nobody can cut it under a rank that uses it", "[collectives][unit]") {
  const Segment segment = Segment::create(plan_segment(3, 1 << 16, 0));
  CHECK(ftruncate(segment.descriptor(), 4096) == -1);
  CHECK(ftruncate(segment.descriptor(), 1 << 30) == -1);
  CHECK(fcntl(segment.descriptor(), F_ADD_SEALS, F_SEAL_WRITE) == -1);
  segment.allocate_ring(2);
  std::memset(segment.ring(2), 7, segment.plan().ring_bytes);
  const Segment other = Segment::attach(ddp::rendezvous::Descriptor(dup(segment.descriptor())));
  CHECK(other.ring(2)[12345] == 7);
  CHECK(other.ranks() == 3);
}

TEST_CASE("segment: a descriptor of anything else is refused", "[collectives][unit]") {
  ddp::rendezvous::Descriptor file(memfd_create("other", MFD_CLOEXEC));
  REQUIRE(ftruncate(file.get(), 1 << 20) == 0);
  CHECK_THROWS_WITH(Segment::attach(std::move(file)), Contains("not a segment of this version"));
}

TEST_CASE("segment: a group of every pair of 64 ranks takes less than 512 MiB, in whatever order they are formed",
          "[collectives][unit]") {
  const auto bytes_of_pair = [](std::uint32_t live_groups) {
    const SegmentPlan plan = plan_segment(2, 4 << 20, live_groups);  // the largest that usual_ring_bytes() gives
    return 2 * plan.ring_bytes + 2 * plan.channel_bytes + 4096 * 2;
  };
  std::uint64_t rank_by_rank = 0, in_rounds = 0;
  for (std::uint32_t b = 1; b < 64; ++b) {
    // Rank `a` has formed a group of all ranks, and one with each before b; or all ranks form a pair at the same time.
    for (std::uint32_t a = 0; a < b; ++a) rank_by_rank += bytes_of_pair(b);
    in_rounds += 32 * bytes_of_pair(b);
  }
  CHECK(rank_by_rank < (512ULL << 20));
  CHECK(in_rounds < (512ULL << 20));
}

TEST_CASE("segment: the first rank that is lost stays the one that all name", "[collectives][unit]") {
  const Segment segment = Segment::create(plan_segment(3, 4096, 0));
  segment.lose(2, LossReason::Died);
  segment.lose(1, LossReason::GaveUp);
  CHECK(lost_rank(segment.header().lost) == 2);
  CHECK(lost_reason(segment.header().lost) == LossReason::Died);
}

TEST_CASE("waiting: a rank spins only if it has a CPU of its own", "[collectives][unit]") {
  const Segment segment = Segment::create(plan_segment(2, 4096, 0));
  const auto allow = [&](std::uint32_t rank, std::uint64_t cpus) {
    segment.presence(rank).cpus[0] = cpus;
    segment.presence(rank).cpu_words = 1;
  };
  allow(0, 1);
  allow(1, 1);
  CHECK_FALSE(has_own_cpu(segment, 0, 2, std::nullopt));
  allow(1, 2);
  CHECK(has_own_cpu(segment, 0, sysconf(_SC_NPROCESSORS_ONLN) > 1 ? 8 : 0,
                    std::nullopt));  // pinned: the job's other ranks are elsewhere
  CHECK_FALSE(has_own_cpu(segment, 0, 2, 1.5));
  CHECK(has_own_cpu(segment, 0, 2, 2.0));
  allow(0, ~std::uint64_t{0});
  allow(1, ~std::uint64_t{0});
  CHECK(has_own_cpu(segment, 0, 2, std::nullopt));
  CHECK_FALSE(has_own_cpu(segment, 0, 100, std::nullopt));
}

TEST_CASE("waiting: a rank leaves the CPU of the one that it waits for, if another is free", "[collectives][unit]") {
  cpu_set_t allowed;
  REQUIRE(sched_getaffinity(0, sizeof allowed, &allowed) == 0);
  if (CPU_COUNT(&allowed) < 2) ddp::testing::skip("it needs 2 CPUs");
  const Segment segment = Segment::create(plan_segment(3, 4096, 0));
  const auto here = [] { return static_cast<std::uint32_t>(sched_getcpu() + 1); };
  bool moved = false;
  for (int i = 0; i < 1000 && !moved; ++i) {  // the kernel may move this thread before the call, and back within it
    segment.presence(1).last_cpu = here();
    moved = leave_cpu_of(segment, 0, 1) && segment.presence(0).last_cpu != segment.presence(1).last_cpu;
  }
  CHECK(moved);
  CHECK(segment.presence(0).last_cpu != 0);
  cpu_set_t after;
  REQUIRE(sched_getaffinity(0, sizeof after, &after) == 0);
  CHECK(CPU_EQUAL(&allowed, &after));

  CHECK_FALSE(leave_cpu_of(segment, 0, 2));  // where that one is, is not known
  cpu_set_t two;
  CPU_ZERO(&two);
  std::uint32_t found = 0;
  for (std::uint32_t cpu = 0; cpu < CPU_SETSIZE && found < 2; ++cpu) {
    if (!CPU_ISSET(cpu, &allowed)) continue;
    CPU_SET(cpu, &two);
    segment.presence(1 + found++).last_cpu = cpu + 1;
  }
  REQUIRE(sched_setaffinity(0, sizeof two, &two) == 0);
  CHECK_FALSE(leave_cpu_of(segment, 0, 1));  // every CPU has a rank
  CHECK_FALSE(leave_cpu_of(segment, 0, 2));
  REQUIRE(sched_setaffinity(0, sizeof allowed, &allowed) == 0);
}

TEST_CASE("waiting: spins on after a sleep that was shorter than spinning, not after a long one",
          "[collectives][unit]") {
  Patience patience = {.most = 1600};
  patience.after_sleeping(std::chrono::seconds(1));
  CHECK(patience.looks == 100);
  patience.after_sleeping(std::chrono::microseconds(10));
  CHECK(patience.looks == 1600);
  int full = 0;
  for (int i = 0; i < 32; ++i) {
    patience.after_sleeping(std::chrono::seconds(1));
    if (patience.looks == 1600) ++full;
  }
  CHECK(full == 2);
}

TEST_CASE("waiting: a yield that another program made long is followed by a pause of ten times as much",
          "[collectives][unit]") {
  using std::chrono::milliseconds;
  const Yields::Clock::time_point start{};
  Yields yields;
  yields.took(start, start + std::chrono::microseconds(500));  // another rank's work
  CHECK(yields.pay(start));
  const auto back = start + milliseconds(4);
  yields.took(start, back);
  CHECK_FALSE(yields.pay(back + milliseconds(39)));
  CHECK(yields.pay(back + milliseconds(40)));
  yields.took(start, start + std::chrono::hours(1));
  CHECK(yields.pay(start + std::chrono::hours(1) + std::chrono::seconds(1)));
}

TEST_CASE("waiting: ends if the last look before a rank is called lost finds what it waits for",
          "[collectives][unit]") {
  for (const int most_looks : {0, kLooksPerCheck}) {
    int looks = 0;
    bool moved = false;
    const auto ready = [&] {  // yes once, as a message is that has moved
      ++looks;
      return std::exchange(moved, false);
    };
    const auto check = [&] {  // the other rank moves the message and leaves
      REQUIRE(looks < 2 * kLooksPerCheck);
      moved = true;
      return ready();
    };
    Patience patience = {.most = most_looks};
    wait_until(patience, ready, check, [] { FAIL("it sleeps though it has what it waits for"); });
    CHECK(looks == (most_looks == 0 ? 2 : kLooksPerCheck + 1));
  }
}

TEST_CASE("copies: all bytes and no others, of any length and place, as each processor does it",
          "[collectives][unit]") {
  const auto copies = GENERATE(&copy, &copy_by_vectors);
  std::vector<unsigned char> from(9000);
  std::iota(from.begin(), from.end(), static_cast<unsigned char>(7));
  for (const std::size_t bytes : {0U, 1U, 127U, 128U, 2047U, 2048U, 2049U, 4096U, 8191U}) {
    for (const std::size_t at : {0U, 1U, 33U, 64U}) {
      std::vector<unsigned char> to(9000, 1), expected = to;
      std::copy_n(from.begin() + static_cast<std::ptrdiff_t>(2 * at), bytes,
                  expected.begin() + static_cast<std::ptrdiff_t>(at));
      copies(to.data() + at, from.data() + 2 * at, bytes);
      CHECK(to == expected);
    }
  }
}

TEST_CASE("reductions: added in the order of ranks, and 16 bits are rounded once", "[collectives][unit]") {
  constexpr std::size_t kCount = 5000;
  std::vector<std::vector<std::uint16_t>> inputs;
  std::vector<const unsigned char*> sources;
  std::vector<float> expected(kCount);
  for (int r = 0; r < 4; ++r) {
    auto& input = inputs.emplace_back(kCount);
    for (std::size_t i = 0; i < kCount; ++i) {
      input[i] = float_to_bfloat16(1.0F + static_cast<float>(r * 1000 + static_cast<int>(i)) / 8192);
      expected[i] += bfloat16_to_float(input[i]);
    }
  }
  for (auto& input : inputs) sources.push_back(reinterpret_cast<const unsigned char*>(input.data()));
  const Reduction sum(static_cast<std::int32_t>(ElementType::BFloat16), 0);
  REQUIRE(sum.exists());
  sum.run(sources.data(), 4, reinterpret_cast<unsigned char*>(inputs[2].data()), kCount);  // into a source
  for (std::size_t i = 0; i < kCount; ++i) REQUIRE(inputs[2][i] == float_to_bfloat16(expected[i]));
}

TEST_CASE("reductions: bitwise ones of floating point do not exist", "[collectives][unit]") {
  CHECK_FALSE(Reduction(0, 5).exists());
  CHECK_FALSE(Reduction(11, 6).exists());
  CHECK_FALSE(Reduction(99, 0).exists());
  CHECK(Reduction(8, 7).exists());
}

TEST_CASE("backends: libddp has \"ddp\" in itself, which reduces 16 bits and polls messages", "[collectives][unit]") {
  CHECK(std::string(load_backend("ddp").name) == "ddp");
  CHECK(features_of(load_backend("ddp")) == (DDP_BACKEND_REDUCES_16_BIT | DDP_BACKEND_POLLS_MESSAGES));
}
