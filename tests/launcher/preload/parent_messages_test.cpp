// SPDX-License-Identifier: BSD-3-Clause
#include "launcher/preload/parent_messages.hpp"

#include <catch2/catch.hpp>

using namespace ddp::launcher;
using ddp::rendezvous::FrameKind;

namespace {

template <typename Message>
Message read(FrameKind kind, const std::string& payload) {
  return std::get<Message>(parent_message({kind, payload}));
}

}  // namespace

TEST_CASE("warm parent: its messages are read", "[launcher][unit]") {
  const auto ready = read<ParentReady>(FrameKind::ParentReady, "2.5 torch,numpy");
  CHECK(ready.took == std::chrono::milliseconds(2500));
  CHECK(ready.modules == "torch,numpy");
  CHECK(read<ParentForked>(FrameKind::ParentForked, "71 72").pids == std::vector<pid_t>{71, 72});
  CHECK(read<ParentGivesUp>(FrameKind::ParentGivesUp, "x\x1b[2J is y").why == "x is y");
}

TEST_CASE("warm parent: pids that would signal others and times that are none are nonsense", "[launcher][unit]") {
  for (const std::string pids : {"5 -1", "0", "5 5", "5 x", "99999999999"}) {
    CHECK(read<ParentGivesUp>(FrameKind::ParentForked, pids).why == "it said '" + pids + "'");
  }
  for (const std::string time : {"nan torch", "1e300 torch", ""}) {
    CHECK(read<ParentGivesUp>(FrameKind::ParentReady, time).why == "it said '" + time + "'");
  }
  CHECK(read<ParentGivesUp>(FrameKind::ParentReady, "\x1b[2Jhello").why == "it said 'hello'");
  CHECK(read<ParentGivesUp>(FrameKind::ParentReady, std::string(kMostFromParent, 'x')).why ==
        "it said '" + std::string(200, 'x') + " [...]'");
}
