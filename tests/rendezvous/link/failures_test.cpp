// SPDX-License-Identifier: BSD-3-Clause
#include "rendezvous/link/failures.hpp"

#include <catch2/catch.hpp>
#include <csignal>

using namespace ddp::rendezvous;

TEST_CASE("link failures: one line says what happened, in Python's traceback the last", "[rendezvous][unit]") {
  WorkerFailure failure;
  failure.rank = 1;
  failure.host = "b";
  failure.status.code = 1;
  CHECK(describe_with_message(failure) == "rank 1 on node b exited with code 1");
  failure.stderr_tail = {"first", "last words"};
  CHECK(describe_with_message(failure) == "rank 1 on node b exited with code 1: last words");
  failure.message = "killed by SIGSEGV\nbacktrace:\n  main";
  CHECK(describe_with_message(failure) == "rank 1 on node b exited with code 1: killed by SIGSEGV");
  failure.message = "Traceback (most recent call last):\n  File\nValueError: no\n";
  CHECK(describe_with_message(failure) == "rank 1 on node b exited with code 1: ValueError: no");
  failure.message = std::string(10000, 'x');
  CHECK(describe_with_message(failure).size() < 300);
  failure.status = {.signal = SIGABRT};
  failure.message = "SIGABRT\nbacktrace:\n  main";
  CHECK(describe_with_message(failure) == "rank 1 on node b was killed by SIGABRT");
}

TEST_CASE("link failures: a long text loses its middle, at whole characters", "[rendezvous][unit]") {
  CHECK(shortened("short", 5) == "short");
  const std::string text = shortened(std::string(500, 'a') + std::string(500, 'z'), 100);
  CHECK(text == std::string(25, 'a') + "\n[900 bytes left out]\n" + std::string(75, 'z'));
  std::string umlauts;
  for (int i = 0; i < 100; ++i) umlauts += "\u00fc";
  const std::string cut = shortened(umlauts, 101);
  CHECK(cut.substr(0, 24) == umlauts.substr(0, 24));
  CHECK(cut[24] == '\n');
  CHECK(cut.substr(cut.rfind('\n') + 1).size() % 2 == 0);
}
