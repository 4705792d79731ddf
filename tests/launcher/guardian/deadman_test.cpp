// SPDX-License-Identifier: BSD-3-Clause
#include "launcher/guardian/deadman.hpp"

#include <poll.h>
#include <sys/wait.h>
#include <unistd.h>

#include <catch2/catch.hpp>
#include <chrono>

#include "rendezvous/base/boot_clock.hpp"
#include "rendezvous/base/pipe.hpp"

using ddp::launcher::Deadman;
using ddp::rendezvous::BootClock;
using std::chrono::seconds;

namespace {

bool is_readable(int fd, int timeout_ms) {
  pollfd event = {fd, POLLIN, 0};
  return poll(&event, 1, timeout_ms) == 1;
}

int calls_of(const Deadman& deadman) {
  int calls = 0;
  deadman.if_expired([&] { ++calls; });
  return calls;
}

}  // namespace

TEST_CASE("deadman: it expires once at its time, and not if it was set again before", "[launcher][integration]") {
  const Deadman deadman;
  CHECK(calls_of(deadman) == 0);
  deadman.set(BootClock::now());
  REQUIRE(is_readable(deadman.fd(), 20'000));
  CHECK(calls_of(deadman) == 1);
  CHECK(calls_of(deadman) == 0);
  deadman.set(BootClock::now());
  REQUIRE(is_readable(deadman.fd(), 20'000));
  deadman.set(BootClock::now() + seconds(1000));  // the agent goes on before the keeper has looked
  CHECK(calls_of(deadman) == 0);
  deadman.set(BootClock::now());
  REQUIRE(is_readable(deadman.fd(), 20'000));
  deadman.set(std::nullopt);
  CHECK(calls_of(deadman) == 0);
}

TEST_CASE("deadman: an agent that goes on waits until its keeper has killed", "[launcher][integration]") {
  const Deadman deadman;
  ddp::rendezvous::Pipe done = ddp::rendezvous::make_pipe("to a child");
  deadman.set(BootClock::now());
  REQUIRE(is_readable(deadman.fd(), 20'000));
  pid_t agent = -1;
  deadman.if_expired([&] {
    agent = fork();
    if (agent == 0) {
      deadman.await_keeper();
      _exit(write(done.write_end.get(), "x", 1) == 1 ? 0 : 1);
    }
    CHECK_FALSE(is_readable(done.read_end.get(), 100));
  });
  CHECK(is_readable(done.read_end.get(), 20'000));
  int status = -1;
  CHECK(waitpid(agent, &status, 0) == agent);
  CHECK(status == 0);
}
