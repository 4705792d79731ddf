// SPDX-License-Identifier: BSD-3-Clause
#include "runtime/group/monitored_barrier.hpp"

#include <catch2/catch.hpp>
#include <future>
#include <memory>
#include <optional>
#include <string>

#include "rendezvous/store/hash_store.hpp"
#include "rendezvous/store/prefix_store.hpp"

using Catch::Matchers::Contains;
using ddp::rendezvous::ErrorCode;
using ddp::rendezvous::HashStore;
using ddp::rendezvous::PrefixStore;
using ddp::runtime::MonitoredBarrier;
using std::chrono::milliseconds;
using std::chrono::seconds;
using Verdict = std::optional<std::string>;

namespace {

constexpr milliseconds kPatient = seconds(60), kShort{50};

Verdict verdict(MonitoredBarrier& barrier, std::uint64_t sequence, milliseconds timeout, bool all) {
  const auto error = barrier.wait(sequence, timeout, timeout, all);
  if (!error) return std::nullopt;
  return (error->code() == ErrorCode::Timeout ? "timeout: " : "lost: ") + std::string(error->what());
}

std::unique_ptr<PrefixStore> one_more(HashStore& store) { return std::make_unique<PrefixStore>("b", store); }

std::future<Verdict> wait(MonitoredBarrier& barrier, std::uint64_t sequence, milliseconds timeout, bool all = true) {
  return std::async(std::launch::async,
                    [&barrier, sequence, timeout, all] { return verdict(barrier, sequence, timeout, all); });
}

}  // namespace

TEST_CASE("monitored barrier: all ranks pass once all have arrived, repeatedly", "[runtime][unit]") {
  HashStore store(seconds(60));
  MonitoredBarrier a(one_more(store), "b/", {0, 3}), b(one_more(store), "b/", {1, 3}), c(one_more(store), "b/", {2, 3});
  std::int64_t keys = 0;
  for (std::uint64_t sequence = 1; sequence <= 20; ++sequence) {
    auto first = wait(a, sequence, kPatient), second = wait(b, sequence, kPatient);
    CHECK(first.wait_for(milliseconds(1)) == std::future_status::timeout);
    CHECK(verdict(c, sequence, kPatient, true) == std::nullopt);
    CHECK(first.get() == std::nullopt);
    CHECK(second.get() == std::nullopt);
    if (sequence == 2) keys = store.num_keys();
  }
  CHECK(store.num_keys() <= keys);  // the keys of past barriers are deleted
}

TEST_CASE("monitored barrier: at the first deadline every rank that waits learns which are missing",
          "[runtime][unit]") {
  HashStore store(seconds(60));
  MonitoredBarrier a(one_more(store), "b/", {0, 4}), b(one_more(store), "b/", {2, 4}),
      late(one_more(store), "b/", {1, 4});
  auto patient = wait(a, 1, kPatient);
  const Verdict settled = verdict(b, 1, kShort, true);
  CHECK(settled == "timeout: ranks 1, 3 did not call it within 50 ms");
  CHECK(patient.get() == settled);
  CHECK(verdict(late, 1, kPatient, true) == settled);  // a verdict does not change
}

TEST_CASE("monitored barrier: without wait_all_ranks only the first missing rank is named", "[runtime][unit]") {
  HashStore store(seconds(60));
  MonitoredBarrier a(one_more(store), "b/", {1, 4});
  CHECK_THAT(*verdict(a, 1, kShort, false), Contains("rank 0 did not call it within 50 ms (there may be more"));
}

TEST_CASE("monitored barrier: ranks that wait learn when another gives up", "[runtime][unit]") {
  HashStore store(seconds(60));
  MonitoredBarrier a(one_more(store), "b/", {0, 2});
  auto waiting = wait(a, 7, kPatient);
  MonitoredBarrier::give_up(*one_more(store), "b/", 7, "rank 1 was killed");
  CHECK(waiting.get() == "lost: rank 1 was killed");
}
