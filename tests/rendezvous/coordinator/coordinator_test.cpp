// SPDX-License-Identifier: BSD-3-Clause
// The coordinator with its threads and sockets, over loopback. What it decides is tested at its core.
#include "rendezvous/coordinator/coordinator.hpp"

#include <catch2/catch.hpp>
#include <future>
#include <memory>
#include <string>

#include "rendezvous/link/client.hpp"
#include "tests/rendezvous/link/loop.hpp"

namespace ddp::rendezvous {
namespace {

// Vouches for everything and accepts everything, but examines nothing before it may.
class SlowVoucher : public Voucher {
 public:
  std::string vouch(std::string_view text) override { return std::string(text); }
  std::string why_not(const std::string&, std::string_view) override {
    has_begun.set_value();
    may_end.get_future().wait();
    return "";
  }
  std::promise<void> has_begun, may_end;
};

class QuickVoucher : public Voucher {
 public:
  std::string vouch(std::string_view text) override { return std::string(text); }
  std::string why_not(const std::string&, std::string_view) override { return ""; }
};

TEST_CASE("coordinator: a credential that takes long to examine delays no heartbeat", "[rendezvous][integration]") {
  const auto slow = std::make_shared<SlowVoucher>();
  const JobShape shape{.id = "j", .min_nodes = 2, .max_nodes = 2};
  Coordinator coordinator({.job = shape, .epoch = "e", .own_incarnation = "a"},
                          {.addresses = {"127.0.0.1"}, .membership = std::shared_ptr<Voucher>(slow)});
  LinkLoop loop;
  int ups = 0;
  LinkClient joining(loop.io, {.hosts = {"127.0.0.1"}, .ports = {coordinator.port()}},
                     std::shared_ptr<Voucher>(std::make_shared<QuickVoucher>()),
                     {.on_up = [&ups](const std::string&) { ++ups; },
                      .on_message = [](const Directive&) {},
                      .on_heartbeat = [] {},
                      .on_down = [](const std::string&) {},
                      .on_unreachable = [](const std::string&) {},
                      .on_refused = [](const std::string&) {}});
  joining.start();
  const auto is_ready = [](std::future<void>& of) {
    return of.wait_for(std::chrono::seconds(0)) == std::future_status::ready;
  };
  std::future<void> begun = slow->has_begun.get_future();
  REQUIRE(loop.until([&] { return is_ready(begun); }));

  int heartbeats = 0;
  AgentState state;
  state.job = shape;
  state.incarnation = state.host = "a";
  state.slots = 1;
  LinkClient* agent = nullptr;
  LinkClient own(loop.io, coordinator.connect_agent(),
                 {.on_up =
                      [&](const std::string&) {
                        agent->send(state);
                        agent->send(Heartbeat{});
                      },
                  .on_message = [](const Directive&) {},
                  .on_heartbeat = [&heartbeats] { ++heartbeats; },
                  .on_down = [](const std::string&) {},
                  .on_unreachable = [](const std::string&) {},
                  .on_refused = [](const std::string&) {}});
  agent = &own;
  own.start();
  CHECK(loop.until([&] { return heartbeats == 1; }));
  CHECK(ups == 0);
  slow->may_end.set_value();
  CHECK(loop.until([&] { return ups == 1; }));
}

}  // namespace
}  // namespace ddp::rendezvous
