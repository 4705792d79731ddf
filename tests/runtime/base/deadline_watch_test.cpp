// SPDX-License-Identifier: BSD-3-Clause
#include "runtime/base/deadline_watch.hpp"

#include <algorithm>
#include <catch2/catch.hpp>
#include <chrono>
#include <condition_variable>
#include <mutex>
#include <set>
#include <vector>

#include "tests/support/process.hpp"

using ddp::runtime::DeadlineWatch;
using ddp::testing::kDeadline;
using namespace std::chrono_literals;

namespace {

// Has numbered deadlines and notes those that passed, in their order.
class Clockwork final : public DeadlineWatch::Watched {
 public:
  explicit Clockwork(DeadlineWatch& watch) : watch_(watch) { watch_.attach(*this); }
  ~Clockwork() { watch_.detach(*this); }
  Clockwork(const Clockwork&) = delete;
  Clockwork& operator=(const Clockwork&) = delete;

  void add(int number, std::chrono::milliseconds time) {
    const DeadlineWatch::Time at = std::chrono::steady_clock::now() + time;
    {
      const std::lock_guard lock(mutex_);
      deadlines_.emplace(at, number);
    }
    watch_.expect(at);
  }
  void forget_all() {
    const std::lock_guard lock(mutex_);
    deadlines_.clear();
  }
  bool wait_for(std::size_t count) {
    std::unique_lock lock(mutex_);
    return changed_.wait_for(lock, kDeadline, [&] { return passed_.size() >= count; });
  }
  std::vector<int> passed() {
    const std::lock_guard lock(mutex_);
    return passed_;
  }

  DeadlineWatch::Time check_deadlines(DeadlineWatch::Time now) override {
    const std::lock_guard lock(mutex_);
    while (!deadlines_.empty() && deadlines_.begin()->first <= now) {
      passed_.push_back(deadlines_.begin()->second);
      deadlines_.erase(deadlines_.begin());
    }
    changed_.notify_all();
    return deadlines_.empty() ? DeadlineWatch::Time::max() : deadlines_.begin()->first;
  }

 private:
  DeadlineWatch& watch_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::set<std::pair<DeadlineWatch::Time, int>> deadlines_;
  std::vector<int> passed_;
};

}  // namespace

TEST_CASE("deadline watch: each passed deadline is reported once, in order", "[runtime][unit]") {
  DeadlineWatch watch;
  Clockwork clockwork(watch);
  clockwork.add(2, 400ms);
  clockwork.add(1, 200ms);
  REQUIRE(clockwork.wait_for(2));
  CHECK(clockwork.passed() == std::vector{1, 2});
}

TEST_CASE("deadline watch: a deadline added while it sleeps for a later one is reported in time", "[runtime][unit]") {
  DeadlineWatch watch;
  Clockwork clockwork(watch);
  Clockwork other(watch);
  clockwork.add(1, 1h);
  other.add(2, 30min);
  clockwork.add(3, 1ms);
  REQUIRE(clockwork.wait_for(1));
  other.add(4, 1ms);
  REQUIRE(other.wait_for(1));
  CHECK(clockwork.passed() == std::vector{3});
  CHECK(other.passed() == std::vector{4});
}

TEST_CASE("deadline watch: a deadline that was withdrawn is not reported and delays none after it", "[runtime][unit]") {
  DeadlineWatch watch;
  Clockwork clockwork(watch);
  for (int i = 0; i < 100; ++i) {
    clockwork.add(1, 500ms);
    clockwork.forget_all();
  }
  clockwork.add(2, 1ms);
  REQUIRE(clockwork.wait_for(1));
  CHECK(clockwork.passed() == std::vector{2});
}

TEST_CASE("deadline watch: it continues after there was nothing to watch", "[runtime][unit]") {
  DeadlineWatch watch;
  for (int i = 0; i < 50; ++i) {
    Clockwork clockwork(watch);
    clockwork.add(i, 2ms);
    REQUIRE(clockwork.wait_for(1));
  }
}
