// SPDX-License-Identifier: BSD-3-Clause
#include "rendezvous/net/core_driver.hpp"

#include <catch2/catch.hpp>
#include <string>

namespace ddp::rendezvous {
namespace {

// Answers an event with two actions: its name twice.
struct TwiceCore {
  void step(std::chrono::steady_clock::time_point, const std::string& event, std::vector<std::string>& actions) {
    actions.insert(actions.end(), {event, event});
  }
  std::optional<std::chrono::steady_clock::time_point> wake_at() const { return {}; }
};

TEST_CASE("core driver: an event that an action causes comes after the actions beside it", "[rendezvous][unit]") {
  asio::io_context io;
  TwiceCore core;
  std::string done;
  CoreDriver<TwiceCore, std::string, std::string, std::string>* self = nullptr;
  CoreDriver<TwiceCore, std::string, std::string, std::string> driver(io, core, [&](const std::string& action) {
    done += action;
    if (done == "a") self->handle("b");
    if (done == "aab") self->handle("c");
  });
  self = &driver;
  driver.handle("a");
  CHECK(done == "aabbcc");
  driver.handle("d");
  CHECK(done == "aabbccdd");
}

}  // namespace
}  // namespace ddp::rendezvous
