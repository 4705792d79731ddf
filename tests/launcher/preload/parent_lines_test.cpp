// SPDX-License-Identifier: BSD-3-Clause
#include "launcher/preload/parent_lines.hpp"

#include <catch2/catch.hpp>

using namespace ddp::launcher;

namespace {

std::string nonsense(const std::string& line) {
  ParentLines lines;
  lines.feed(line);
  ParentLine said;
  if (!lines.next(said)) return "no line";
  const auto* what = std::get_if<ParentTalksNonsense>(&said);
  return what ? what->what : "a line";
}

}  // namespace

TEST_CASE("warm parent: its lines are read, however they arrive", "[launcher][unit]") {
  ParentLines lines;
  for (const char byte : std::string("ready 2.5 torch,numpy\nspawned 71 72\nfailed x\x1b[2J is y\n"))
    lines.feed({&byte, 1});
  ParentLine line;
  REQUIRE(lines.next(line));
  CHECK(std::get<ParentReady>(line).took == std::chrono::milliseconds(2500));
  CHECK(std::get<ParentReady>(line).modules == "torch,numpy");
  REQUIRE(lines.next(line));
  CHECK(std::get<ParentForked>(line).pids == std::vector<pid_t>{71, 72});
  REQUIRE(lines.next(line));
  CHECK(std::get<ParentGivesUp>(line).why == "x is y");
  CHECK_FALSE(lines.next(line));
}

TEST_CASE("warm parent: pids that would signal others, times that are none and endless lines are nonsense",
          "[launcher][unit]") {
  CHECK(nonsense("spawned 5 -1\n") == "it said 'spawned 5 -1'");
  CHECK(nonsense("spawned 0\n") == "it said 'spawned 0'");
  CHECK(nonsense("spawned 5 5\n") == "it said 'spawned 5 5'");
  CHECK(nonsense("spawned 5 x\n") == "it said 'spawned 5 x'");
  CHECK(nonsense("spawned 99999999999\n") == "it said 'spawned 99999999999'");
  CHECK(nonsense("ready nan torch\n") == "it said 'ready nan torch'");
  CHECK(nonsense("ready 1e300 torch\n") == "it said 'ready 1e300 torch'");
  CHECK(nonsense("ready\n") == "it said 'ready'");
  CHECK(nonsense("\x1b[2Jhello\n") == "it said 'hello'");
  CHECK(nonsense("spawned 5") == "no line");
  CHECK(nonsense(std::string(kMaxParentLine + 1, 'x')) ==
        "it said '" + std::string(200, 'x') + " [...]', and no line is that long");
}
