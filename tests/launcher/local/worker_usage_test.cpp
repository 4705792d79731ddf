// SPDX-License-Identifier: BSD-3-Clause
#include "launcher/local/worker_usage.hpp"

#include <sys/wait.h>
#include <unistd.h>

#include <catch2/catch.hpp>
#include <csignal>

using namespace ddp::launcher;

TEST_CASE("worker usage: this process runs, and has memory, threads and time", "[launcher][unit]") {
  const auto usage = usage_of(getpid());
  REQUIRE(usage);
  CHECK(usage->state == "runs");
  CHECK(usage->rss > 100'000);
  CHECK(usage->threads >= 1);
  CHECK(usage->cpu_ms >= 0);
}

TEST_CASE("worker usage: a child that is stopped, has ended, or is gone", "[launcher][unit]") {
  const pid_t child = fork();
  if (child == 0) {
    raise(SIGSTOP);
    _exit(0);
  }
  int status = 0;
  REQUIRE(waitpid(child, &status, WUNTRACED) == child);
  CHECK(usage_of(child)->state == "stopped");
  kill(child, SIGKILL);
  siginfo_t info = {};
  REQUIRE(waitid(P_PID, static_cast<id_t>(child), &info, WEXITED | WNOWAIT) == 0);
  CHECK(usage_of(child)->state == "has ended");
  REQUIRE(waitpid(child, &status, 0) == child);
  CHECK_FALSE(usage_of(child));
}

TEST_CASE("step rates: the second look has a rate, of the last seconds", "[launcher][unit]") {
  constexpr std::int64_t kSecond = 1'000'000'000;
  StepRates rates;
  CHECK_FALSE(rates.note(0, 10, 0));
  CHECK(rates.note(0, 14, 2 * kSecond) == Approx(2));
  CHECK_FALSE(rates.note(1, 3, 0));
  CHECK(rates.note(0, 30, 10 * kSecond) == Approx(2));
  CHECK(rates.note(0, 130, 20 * kSecond) == Approx(116.0 / 18));  // since the look before the last
  CHECK_FALSE(rates.note(0, 0, 21 * kSecond));                    // it has begun again
}
