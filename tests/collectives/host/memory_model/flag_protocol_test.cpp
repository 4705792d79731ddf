// SPDX-License-Identifier: BSD-3-Clause
// The protocol that ranks of a node follow in shared memory, in all orders and with all old values that the C++ memory
// model allows, within bounds (explorer.hpp): those of each test, and DDPRUN_MEMORY_MODEL_MORE switches and old values
// more. The tests first run the code as it is, then with each memory order that matters made weaker, which must be
// found.
#include <linux/futex.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <catch2/catch.hpp>
#include <chrono>
#include <cstdio>
#include <cstring>
#include <memory>
#include <numeric>
#include <optional>

#include "collectives/host/failure.hpp"
#include "collectives/host/memory/liveness.hpp"
#include "collectives/host/memory/membership.hpp"
#include "collectives/host/memory/segment.hpp"
#include "collectives/host/operations/messages.hpp"
#include "collectives/host/operations/numa_collectives.hpp"
#include "collectives/host/operations/shared_collectives.hpp"
#include "collectives/host/operations/steps.hpp"
#include "rendezvous/machine/memory_left.hpp"
#include "tests/collectives/host/memory_model/explorer.hpp"
#include "tests/support/environment.hpp"

using namespace ddp::collectives;
using namespace ddp::collectives::test;

// Each run gives memory to rings. The files that say how much there is take longer to read than the run.
std::optional<ddp::rendezvous::MemoryLeft> ddp::rendezvous::least_memory_left(const std::string&, const std::string&) {
  return {};
}

namespace {

constexpr std::int64_t kTimeoutMs = 3'600'000;
constexpr std::uint32_t kWhat = 7;  // what the ranks call; any number

Bounds with_more(Bounds bounds) {
  const int more = ddp::testing::number_from("DDPRUN_MEMORY_MODEL_MORE", 0);
  return {.switches = bounds.switches + more, .old_values = bounds.old_values + more};
}

// Some ranks and their segment, with rings so small that they are used again after a few steps.
class World {
 public:
  World(std::uint32_t ranks, std::uint64_t ring_bytes, std::uint64_t channel_bytes = 64)
      : segment(Segment::create({ranks, ring_bytes, channel_bytes, 0})) {
    program.memory = reinterpret_cast<unsigned char*>(&segment.header());
    program.bytes = static_cast<std::size_t>(segment.channel(ranks, 0) - program.memory);
    program.name_of = [this](std::size_t offset) { return name_of(offset); };
  }

  // All ranks do the same, each with a Membership of its own.
  template <typename Body>
  void each_rank(Body body) {
    for (std::uint32_t r = 0; r < segment.ranks(); ++r) {
      program.ranks.emplace_back([this, r, body] {
        std::vector<std::uint32_t> places(segment.ranks());
        std::iota(places.begin(), places.end(), 0U);
        Membership membership(segment, r, places, {places.begin(), places.end()});
        body(membership);
      });
    }
  }

  Outcome run() const { return explore(program, with_more(bounds)); }

  // Returns the first line of what is wrong if operations on a word that have one memory order have another.
  std::string with(Operation operation, const void* word, std::memory_order written, std::memory_order instead) {
    program.orders = [=](Operation which, const void* where, std::memory_order order) {
      return which == operation && where == word && order == written ? instead : order;
    };
    const std::string wrong = run().wrong;
    program.orders = {};
    return wrong.substr(0, wrong.find('\n'));
  }

  Segment segment;
  Program program;
  Bounds bounds;

 private:
  std::string name_of(std::size_t offset) const {
    const unsigned char* const place = program.memory + offset;
    const auto is = [&](const auto& word) { return reinterpret_cast<const unsigned char*>(&word) == place; };
    if (is(segment.header().lost)) return "the rank lost first";
    for (std::uint32_t r = 0; r < segment.ranks(); ++r) {
      const std::string of = " of rank " + std::to_string(r);
      if (is(segment.counters(r).published)) return "published" + of;
      for (const auto& call : segment.counters(r).calls) {
        if (is(call)) return "call" + of;
      }
      if (is(segment.counters(r).sleepers)) return "sleepers" + of;
      if (is(segment.presence(r).state)) return "presence" + of;
      if (is(segment.liveness(r).holder)) return "liveness" + of;
      if (is(segment.bell(r).rings)) return "bell" + of;
      if (is(segment.bell(r).sleepers)) return "sleepers on the bell" + of;
      if (place >= segment.ring(r) && place < segment.ring(r) + segment.plan().ring_bytes) return "ring" + of;
      for (std::uint32_t to = 0; to < segment.ranks(); ++to) {
        const std::string between = of + " to rank " + std::to_string(to);
        if (is(segment.channel_ends(r, to).written)) return "written" + between;
        if (is(segment.channel_ends(r, to).read)) return "read" + between;
        const unsigned char* const channel = segment.channel(r, to);
        if (place >= channel && place < channel + segment.plan().channel_bytes) return "channel" + between;
      }
    }
    return "";
  }
};

constexpr auto kRelaxed = std::memory_order_relaxed, kAcquire = std::memory_order_acquire,
               kRelease = std::memory_order_release, kBoth = std::memory_order_acq_rel,
               kSequential = std::memory_order_seq_cst;
const auto kRace = Catch::Matchers::StartsWith("data race");
const auto kLostWakeUp = Catch::Matchers::StartsWith("a wake-up is lost");

// Checks that nothing is wrong in any run.
void check_all_runs(const char* what, const World& world) {
  const auto begin = std::chrono::steady_clock::now();
  const Outcome outcome = world.run();
  const std::chrono::duration<double> took = std::chrono::steady_clock::now() - begin;
  std::printf("%s: %llu runs in %.1f s\n", what, static_cast<unsigned long long>(outcome.runs), took.count());
  INFO(outcome.wrong);
  CHECK(outcome.wrong.empty());
  CHECK(outcome.runs > 50);
}

std::uint64_t& number_at(unsigned char* place) { return *reinterpret_cast<std::uint64_t*>(place); }

void expect(std::uint64_t found, std::uint64_t expected) {
  if (found != expected) throw std::runtime_error(std::to_string(found) + " is there, not " + std::to_string(expected));
}

void expect_bytes(const unsigned char* place, std::size_t count, std::uint64_t expected) {
  std::vector<unsigned char> bytes(count);
  std::memcpy(bytes.data(), place, count);
  for (const unsigned char byte : bytes) expect(byte, expected);
}

// Writes a number of its own into each of some steps, and reads those of all ranks.
void exchange_numbers(const Membership& membership, std::uint64_t count) {
  Steps steps(membership);
  for (std::uint64_t i = 1; i <= count; ++i) {
    steps.start(kWhat, kTimeoutMs, 0);
    const Step step = steps.begin(sizeof i);
    number_at(steps.own(step)) = 100 * i + membership.rank();
    steps.publish(step);
    steps.await_all(step);
    for (std::uint32_t r = 0; r < membership.size(); ++r) expect(number_at(steps.of(r, step)), 100 * i + r);
  }
}

// Sends bytes from the first ranks, which wait only if they need memory again, to all others. The third step needs
// memory of the one just before.
enum class Reads { BeforeNextStep, TooLate };
constexpr std::uint64_t kRingToSend = 8 * kLine;
void send_bytes(const Membership& membership, std::uint32_t senders, Reads reads) {
  Steps steps(membership);
  const std::uint32_t rank = membership.rank();
  const unsigned char* unread = nullptr;
  for (std::uint64_t i = 1; i <= 5; ++i) {
    const std::size_t bytes = (i % 3 == 0 ? 4 : 3) * kLine;
    steps.start(kWhat, kTimeoutMs, 0);
    const Step step = steps.begin(bytes);
    if (rank < senders) std::memset(steps.own(step), static_cast<int>(i), bytes);
    steps.publish(step);
    if (senders == membership.size()) steps.await_all(step);
    for (std::uint32_t r = 0; r < senders; ++r) {
      if (r == rank) continue;
      steps.await(r, step);
      if (reads == Reads::BeforeNextStep) expect_bytes(steps.of(r, step), bytes, i);
      if (unread != nullptr) expect_bytes(unread, 3 * kLine, i - 1);
      if (reads == Reads::TooLate) unread = steps.of(r, step);
    }
  }
}

// Sums 32-bit numbers of all ranks. Returns nothing, but throws if a sum is wrong.
void sum_numbers(Collectives& collectives, const Membership& membership, std::size_t count) {
  std::vector<std::int32_t> values(count);
  for (std::size_t i = 0; i < count; ++i) values[i] = static_cast<std::int32_t>((i + 1) << (8 * membership.rank()));
  collectives.start(kWhat, kTimeoutMs, 0);
  const Reduction sum(2, 0);
  collectives.reduce(reinterpret_cast<unsigned char*>(values.data()), count, sizeof(std::int32_t), sum, std::nullopt);
  const std::uint32_t ones = membership.size() == 2 ? 0x101 : 0x10101;
  for (std::size_t i = 0; i < count; ++i) expect(static_cast<std::uint32_t>(values[i]), (i + 1) * ones);
}

}  // namespace

TEST_CASE("flag protocol: a contribution is there once its step is published, and no wake-up is lost",
          "[collectives][unit]") {
  World world(2, 2 * kLine);
  world.each_rank([](const Membership& membership) { exchange_numbers(membership, 3); });
  check_all_runs("steps of 2 ranks", world);

  const Counters& counters = world.segment.counters(0);
  CHECK_THAT(world.with(Operation::Store, &counters.published, kSequential, kRelaxed), kRace);
  CHECK_THAT(world.with(Operation::Load, &counters.published, kAcquire, kRelaxed), kRace);
  // A wake-up needs all four.
  CHECK_THAT(world.with(Operation::Store, &counters.published, kSequential, kRelease), kLostWakeUp);
  CHECK_THAT(world.with(Operation::Load, &counters.sleepers, kSequential, kAcquire), kLostWakeUp);
  CHECK_THAT(world.with(Operation::Modify, &counters.sleepers, kSequential, kBoth), kLostWakeUp);
  CHECK_THAT(world.with(Operation::Load, &counters.published, kSequential, kAcquire), kLostWakeUp);
}

TEST_CASE("flag protocol: three ranks exchange", "[collectives][unit]") {
  World world(3, 2 * kLine);
  world.bounds = {.switches = 1, .old_values = 1};
  world.each_rank([](const Membership& membership) { exchange_numbers(membership, 2); });
  check_all_runs("steps of 3 ranks", world);
}

TEST_CASE("flag protocol: a range is used again once all have read it, and not before", "[collectives][unit]") {
  World world(2, kRingToSend);
  world.bounds = {.switches = 2, .old_values = 1};
  world.each_rank([](const Membership& membership) { send_bytes(membership, 1, Reads::BeforeNextStep); });
  check_all_runs("memory used again", world);
  CHECK_THAT(world.with(Operation::Load, &world.segment.counters(1).published, kAcquire, kRelaxed), kRace);

  World both(2, kRingToSend);
  both.bounds = {.switches = 1, .old_values = 1};
  both.each_rank([](const Membership& membership) { send_bytes(membership, 2, Reads::BeforeNextStep); });
  check_all_runs("memory used again by both", both);

  World late(2, kRingToSend);  // breaks the rule: publishes a step before it has read the one before
  late.each_rank([](const Membership& membership) { send_bytes(membership, 1, Reads::TooLate); });
  CHECK_FALSE(late.run().wrong.empty());
}

TEST_CASE("flag protocol: reductions in one step and in two", "[collectives][unit]") {
  World world(2, 8 * kLine);
  world.bounds = {.switches = 1, .old_values = 1};
  world.each_rank([](const Membership& membership) {
    SharedCollectives collectives(membership);
    sum_numbers(collectives, membership, 150);  // two chunks of two steps
    sum_numbers(collectives, membership, 3);
  });
  check_all_runs("reductions of 2 ranks", world);
  CHECK_THAT(world.with(Operation::Store, &world.segment.counters(1).published, kSequential, kRelaxed), kRace);
  CHECK_THAT(world.with(Operation::Load, &world.segment.counters(1).published, kAcquire, kRelaxed), kRace);
}

TEST_CASE("flag protocol: both steps of a reduction have their memory before the first is published",
          "[collectives][unit]") {
  World world(2, 16 * kLine);
  world.bounds = {.switches = 1, .old_values = 0};
  world.each_rank([](const Membership& membership) {
    SharedCollectives collectives(membership);
    // The results do not fit behind the contributions, and where the ring begins is the broadcast just before.
    std::vector<unsigned char> bytes(8 * kLine);
    for (const std::size_t lines : {2U, 8U}) {
      collectives.start(kWhat, kTimeoutMs, 0);
      collectives.broadcast(bytes.data(), lines * kLine, 0);
    }
    sum_numbers(collectives, membership, 384);
  });
  check_all_runs("two steps at the end of a ring", world);
}

TEST_CASE("flag protocol: a large reduction of three ranks", "[collectives][unit]") {
  World world(3, 16 * kLine);
  world.bounds = {.switches = 1, .old_values = 0};
  world.each_rank([](const Membership& membership) {
    SharedCollectives collectives(membership);
    sum_numbers(collectives, membership, 300);
  });
  check_all_runs("a reduction of 3 ranks", world);
}

TEST_CASE("flag protocol: a reduction, a broadcast and a gathering along two NUMA nodes", "[collectives][unit]") {
  const auto run = [](const char* what, auto&& collective) {
    World world(4, 32 * kLine);
    world.bounds = {.switches = 1, .old_values = 0};
    world.each_rank([&](const Membership& membership) {
      NumaCollectives collectives(membership, Layout({0, 0, 2, 2}, membership.rank()));
      collectives.start(kWhat, kTimeoutMs, 0);
      collective(collectives, membership.rank());
    });
    check_all_runs(what, world);
    CHECK_THAT(world.with(Operation::Store, &world.segment.counters(0).published, kSequential, kRelaxed), kRace);
  };
  run("a reduction of 2 NUMA nodes", [](NumaCollectives& collectives, std::uint32_t rank) {
    std::vector<std::int32_t> values(100);
    for (std::size_t i = 0; i < values.size(); ++i) values[i] = static_cast<std::int32_t>((i + 1) << (6 * rank));
    const Reduction sum(2, 0);
    collectives.reduce_chunks(reinterpret_cast<unsigned char*>(values.data()), values.size(), 4, sum, std::nullopt);
    for (std::size_t i = 0; i < values.size(); ++i) expect(static_cast<std::uint32_t>(values[i]), (i + 1) * 0x41041);
  });
  run("a broadcast to 2 NUMA nodes", [](NumaCollectives& collectives, std::uint32_t rank) {
    std::vector<unsigned char> bytes(15 * kLine, rank == 0 ? 7 : 0);
    collectives.broadcast_chunks(bytes.data(), bytes.size(), 0);
    expect_bytes(bytes.data(), bytes.size(), 7);
  });
  run("a gathering of 2 NUMA nodes", [](NumaCollectives& collectives, std::uint32_t rank) {
    std::vector<unsigned char> all(4 * kLine);
    std::fill_n(all.begin() + static_cast<std::ptrdiff_t>(rank * kLine), kLine, rank + 1);
    collectives.all_gather_chunks(all.data() + rank * kLine, all.data(), {kLine, kLine, kLine, kLine},
                                  {0, kLine, 2 * kLine, 3 * kLine});
    for (std::uint32_t r = 0; r < 4; ++r) expect_bytes(all.data() + r * kLine, kLine, r + 1);
  });
}

TEST_CASE("flag protocol: messages arrive whole, also those larger than their channel", "[collectives][unit]") {
  World world(2, 2 * kLine, 32);
  world.each_rank([](const Membership& membership) {
    Messages messages(membership, nullptr);
    std::array<std::uint64_t, 3> numbers = {};
    const bool sends = membership.rank() == 0;
    if (sends) numbers = {1, 2, 3};
    const auto message = sends ? messages.send(numbers.data(), sizeof numbers, 1, 5)
                               : messages.receive(numbers.data(), sizeof numbers, 0U, 5);
    messages.wait(*message, kTimeoutMs, 0);
    for (std::size_t i = 0; i < numbers.size(); ++i) expect(numbers[i], i + 1);
  });
  check_all_runs("a message", world);

  const ChannelEnds& ends = world.segment.channel_ends(0, 1);
  CHECK_THAT(world.with(Operation::Store, &ends.written, kRelease, kRelaxed), kRace);
  CHECK_THAT(world.with(Operation::Load, &ends.written, kAcquire, kRelaxed), kRace);
  CHECK_THAT(world.with(Operation::Store, &ends.read, kRelease, kRelaxed), kRace);
  CHECK_THAT(world.with(Operation::Load, &ends.read, kAcquire, kRelaxed), kRace);
  const Bell& bell = world.segment.bell(1);
  CHECK_THAT(world.with(Operation::Modify, &bell.rings, kSequential, kRelaxed), kLostWakeUp);
  CHECK_THAT(world.with(Operation::Load, &bell.sleepers, kSequential, kAcquire), kLostWakeUp);
  CHECK_THAT(world.with(Operation::Modify, &bell.sleepers, kSequential, kBoth), kLostWakeUp);
}

TEST_CASE("flag protocol: a rank may leave right after its last step, which the others still complete",
          "[collectives][unit]") {
  World world(2, 2 * kLine);
  world.each_rank([](const Membership& membership) {
    membership.enter();
    exchange_numbers(membership, 1);
    membership.leave();
  });
  check_all_runs("leaving", world);
}

TEST_CASE("flag protocol: a wait for a rank that gives up ends", "[collectives][unit]") {
  World world(2, 2 * kLine);
  int lost = 0;
  world.each_rank([&lost](Membership& membership) {
    membership.enter();
    if (membership.rank() == 1) return membership.give_up();
    try {
      exchange_numbers(membership, 1);
    } catch (const Failure& failure) {
      if (failure.status() == DDP_BACKEND_PEER_LOST) ++lost;
    }
  });
  world.program.verdict = [&lost] { return std::exchange(lost, 0) == 1 ? "" : "the rank was not called lost"; };
  const Bounds all = std::exchange(world.bounds, {.switches = 0, .old_values = 0});
  CHECK(world.run().wrong.empty());  // a rank that sleeps is woken up
  // Between a last look at whether the group has ended and the sleep, the wake-up may be missed: the sleep is short.
  world.bounds = all;
  world.program.most_timeouts = 1;
  check_all_runs("giving up", world);
}

TEST_CASE("flag protocol: a wait ends when the kernel marks the liveness word of another rank", "[collectives][unit]") {
  World world(3, 2 * kLine);
  int lost = 0;
  world.each_rank([&](const Membership& membership) {
    membership.enter();
    if (membership.rank() == 2) return;
    std::atomic<std::uint32_t>& holder = world.segment.liveness(1).holder;
    if (membership.rank() == 1) {
      holder = 1234 | FUTEX_WAITERS;
      holder |= FUTEX_OWNER_DIED;  // what the kernel does when this rank dies
      syscall(SYS_futex, &holder, FUTEX_WAKE, 1, nullptr, nullptr, 0);
      return;
    }
    try {
      Steps steps(membership);
      steps.start(kWhat, kTimeoutMs, 0);
      steps.await(2, steps.begin(0));  // and not for the one that dies
    } catch (const Failure& failure) {
      if (failure.status() == DDP_BACKEND_PEER_LOST) ++lost;
    }
  });
  world.program.verdict = [&lost] { return std::exchange(lost, 0) == 1 ? "" : "the rank was not called lost"; };
  world.program.most_timeouts = 1;  // the first sleep is on one word only, and short
  check_all_runs("a death", world);
}
