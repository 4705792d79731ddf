// SPDX-License-Identifier: BSD-3-Clause
#include "launcher/diagnosis/store_search_core.hpp"

#include <catch2/catch.hpp>

using ddp::launcher::StoreSearchCore;
using std::chrono::seconds;
using Time = StoreSearchCore::Time;

namespace {

constexpr pid_t kPython = 7, kDataLoader = 8;

StoreSearchCore::Sample unconnected(pid_t pid, std::vector<ino_t> sockets) {
  return {false, {{pid, std::move(sockets)}}};
}

}  // namespace

TEST_CASE("store search: a process whose connections are refused one after the other searches in vain",
          "[launcher][unit]") {
  StoreSearchCore core{Time()};
  for (int s = 1; s <= 5; ++s) CHECK_FALSE(core.examine(unconnected(kPython, {ino_t(s / 2)}), Time(seconds(s))));
  CHECK(core.examine(unconnected(kPython, {3}), Time(seconds(6))) == kPython);
  CHECK(core.over());
  CHECK_FALSE(core.examine(unconnected(kPython, {4}), Time(seconds(7))));
}

TEST_CASE("store search: one socket that stays unconnected says nothing", "[launcher][unit]") {
  StoreSearchCore core{Time()};
  for (int s = 1; s <= 100; ++s) CHECK_FALSE(core.examine(unconnected(kPython, {5}), Time(seconds(s))));
  CHECK_FALSE(core.over());
}

TEST_CASE("store search: a process that is connected in between, or has no socket, starts again", "[launcher][unit]") {
  StoreSearchCore core{Time()};
  for (int s = 1; s <= 100; ++s) {
    const bool pause = s % 4 == 0;
    CHECK_FALSE(core.examine(unconnected(kPython, pause ? std::vector<ino_t>() : std::vector<ino_t>{ino_t(s)}),
                             Time(seconds(s))));
  }
}

TEST_CASE("store search: the sockets of one process do not count for another", "[launcher][unit]") {
  StoreSearchCore core{Time()};
  for (int s = 1; s <= 100; ++s) {
    CHECK_FALSE(core.examine(unconnected(s % 2 == 0 ? kPython : kDataLoader, {ino_t(s)}), Time(seconds(s))));
  }
}

TEST_CASE("store search: it ends when a process has reached the store", "[launcher][unit]") {
  StoreSearchCore core{Time()};
  core.examine(unconnected(kPython, {1}), Time(seconds(1)));
  CHECK_FALSE(core.examine({true, {{kPython, {2}}}}, Time(seconds(9))));
  CHECK(core.over());
}

TEST_CASE("store search: samples become rare after the first minute", "[launcher][unit]") {
  const StoreSearchCore core{Time()};
  CHECK(core.next(Time(seconds(3))) == Time(seconds(4)));
  CHECK(core.next(Time(seconds(60))) == Time(seconds(70)));
}
