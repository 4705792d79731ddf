// SPDX-License-Identifier: BSD-3-Clause
#include "runtime/src/monitored_barrier.hpp"

#include <atomic>
#include <catch2/catch.hpp>
#include <future>
#include <optional>
#include <string>
#include <vector>

#include "rendezvous/hash_store.hpp"

using Catch::Matchers::Contains;
using ddp::rendezvous::HashStore;
using ddp::runtime::MonitoredBarrier;
using std::chrono::milliseconds;
using std::chrono::seconds;
using Verdict = std::optional<std::string>;

namespace {

constexpr milliseconds kPatient = seconds(60), kShort{50};

std::future<Verdict> wait(MonitoredBarrier& barrier, std::uint64_t sequence, milliseconds timeout, bool all = true) {
  return std::async(std::launch::async,
                    [&barrier, sequence, timeout, all] { return barrier.wait(sequence, timeout, all); });
}

}  // namespace

TEST_CASE("monitored barrier: all pass once all are there, again and again", "[runtime][unit]") {
  HashStore store(seconds(60));
  MonitoredBarrier a(store, {0, 3}), b(store, {1, 3}), c(store, {2, 3});
  std::int64_t keys = 0;
  for (std::uint64_t sequence = 1; sequence <= 20; ++sequence) {
    auto first = wait(a, sequence, kPatient), second = wait(b, sequence, kPatient);
    CHECK(first.wait_for(milliseconds(1)) == std::future_status::timeout);
    CHECK(c.wait(sequence, kPatient, true) == std::nullopt);
    CHECK(first.get() == std::nullopt);
    CHECK(second.get() == std::nullopt);
    if (sequence == 2) keys = store.num_keys();
  }
  CHECK(store.num_keys() <= keys);  // those of the past are gone
}

TEST_CASE("monitored barrier: every rank that waits learns who is missing, at the first one's deadline",
          "[runtime][unit]") {
  HashStore store(seconds(60));
  MonitoredBarrier a(store, {0, 4}), b(store, {2, 4}), late(store, {1, 4});
  auto patient = wait(a, 1, kPatient);
  const Verdict verdict = b.wait(1, kShort, true);
  CHECK(verdict == "ranks 1, 3 did not call it within 50 ms");
  CHECK(patient.get() == verdict);
  CHECK(late.wait(1, kPatient, true) == verdict);  // what is settled stays so
}

TEST_CASE("monitored barrier: one that need not name all names the first", "[runtime][unit]") {
  HashStore store(seconds(60));
  MonitoredBarrier a(store, {1, 4});
  CHECK_THAT(*a.wait(1, kShort, false), Contains("rank 0 did not call it within 50 ms (there may be more"));
}

TEST_CASE("monitored barrier: who waits is told when somebody gives up", "[runtime][unit]") {
  HashStore store(seconds(60));
  MonitoredBarrier a(store, {0, 2});
  auto waiting = wait(a, 7, kPatient);
  MonitoredBarrier::give_up(store, 7, "rank 1 was killed");
  CHECK(waiting.get() == "rank 1 was killed");
}
