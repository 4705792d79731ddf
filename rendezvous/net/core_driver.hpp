// SPDX-License-Identifier: BSD-3-Clause
// Runs a core on an event loop: gives it events with the time, has its actions carried out and wakes it when it asks.
#pragma once

#include <chrono>
#include <deque>
#include <functional>
#include <optional>
#include <utility>
#include <vector>

#include "rendezvous/net/asio.hpp"

namespace ddp::rendezvous {

// `Core` has step(now, event, actions) and wake_at(); `Tick` is the event that says that this time has come. All calls
// are made on the loop's thread; the core must outlive the driver. `Timer` decides which clock the core's times are of.
template <typename Core, typename Event, typename Action, typename Tick, typename Timer = asio::steady_timer>
class CoreDriver {
 public:
  CoreDriver(asio::io_context& io, Core& core, std::function<void(const Action&)> carry_out)
      : core_(core), timer_(io), carry_out_(std::move(carry_out)) {}

  // Lets the core decide about the event and carries out its actions in order. An event that an action causes at once
  // comes after the actions that follow it: else a report of theirs would come after a newer one.
  void handle(const Event& event) {
    waiting_.push_back(event);
    if (waiting_.size() > 1) return;  // an action has caused it
    std::vector<Action> actions;
    for (; !waiting_.empty(); waiting_.pop_front()) {
      actions.clear();
      core_.step(Timer::clock_type::now(), waiting_.front(), actions);
      for (const Action& action : actions) carry_out_(action);
    }
    set_timer();
  }

 private:
  void set_timer() {
    const auto wake_at = core_.wake_at();
    if (wake_at == timer_set_to_) return;
    timer_set_to_ = wake_at;
    timer_.cancel();
    if (!wake_at) return;
    timer_.expires_at(*wake_at);
    timer_.async_wait([this](const auto& error) {
      if (error) return;
      timer_set_to_.reset();
      handle(Tick{});
    });
  }

  Core& core_;
  Timer timer_;
  std::deque<Event> waiting_;  // the one that is handled, and those after it
  std::optional<std::chrono::steady_clock::time_point> timer_set_to_;
  std::function<void(const Action&)> carry_out_;
};

}  // namespace ddp::rendezvous
