// SPDX-License-Identifier: BSD-3-Clause
#include "runtime/diagnosis/failure_watch.hpp"

#include <catch2/catch.hpp>
#include <chrono>
#include <future>
#include <memory>
#include <vector>

#include "rendezvous/store/server.hpp"
#include "rendezvous/store/tcp_store.hpp"
#include "tests/support/process.hpp"

using ddp::rendezvous::StoreServer;
using ddp::rendezvous::TcpStore;
using ddp::runtime::FailureWatch;
using ddp::runtime::ReportedFailure;
using ddp::testing::kDeadline;
using std::chrono::milliseconds;

namespace {

struct Fixture {
  StoreServer server{{"127.0.0.1"}, 0};
  std::promise<ReportedFailure> reported;

  std::unique_ptr<FailureWatch> watch() {
    return std::make_unique<FailureWatch>(std::make_unique<TcpStore>("127.0.0.1", server.port(), kDeadline),
                                          [this](const ReportedFailure& failure) { reported.set_value(failure); });
  }
  ReportedFailure wait() {
    auto future = reported.get_future();
    REQUIRE(future.wait_for(kDeadline) == std::future_status::ready);
    return future.get();
  }
};

}  // namespace

TEST_CASE("failure watch: it reports which ranks died, with the launcher's text", "[runtime][unit]") {
  Fixture f;
  const auto watch = f.watch();
  CHECK_FALSE(watch->wait_for_failure(milliseconds(0)));
  f.server.set("/ddprun/failed_ranks", "3,4,11");
  f.server.set("/ddprun/failure", "node b was lost");
  const ReportedFailure failure = f.wait();
  CHECK(failure.text == "node b was lost");
  CHECK(failure.ranks == std::vector<int>{3, 4, 11});
  CHECK(failure.concerns({0, 4}));
  CHECK_FALSE(failure.concerns({0, 1, 5}));
  CHECK(watch->wait_for_failure(milliseconds(0))->text == "node b was lost");
}

TEST_CASE("failure watch: a failure that the launcher wrote before it started is reported too", "[runtime][unit]") {
  Fixture f;
  f.server.set("/ddprun/failed_ranks", "0");
  f.server.set("/ddprun/failure", "rank 0 is gone");
  const auto watch = f.watch();
  CHECK(watch->wait_for_failure(kDeadline)->ranks == std::vector<int>{0});
}

TEST_CASE("failure watch: a launcher that names no ranks is quoted and fails no group", "[runtime][unit]") {
  Fixture f;
  const auto watch = f.watch();
  f.server.set("/ddprun/failure", "somebody died");
  const ReportedFailure failure = f.wait();
  CHECK(failure.text == "somebody died");
  CHECK_FALSE(failure.concerns({0, 1}));
}

TEST_CASE("failure watch: it ends at once while nothing happens, and when the store is gone", "[runtime][unit]") {
  auto f = std::make_unique<Fixture>();
  auto watch = f->watch();
  const auto before = std::chrono::steady_clock::now();
  const bool store_goes_first = GENERATE(false, true);
  if (store_goes_first) {
    f.reset();
    CHECK_FALSE(watch->wait_for_failure(kDeadline));  // no report can come any more, so there is nothing to wait for
  }
  watch.reset();
  CHECK(std::chrono::steady_clock::now() - before < kDeadline);
}
