// SPDX-License-Identifier: BSD-3-Clause
// The deadman of the agent: a timer that the agent sets again while it runs, and for which the keeper waits. If it
// expires, the agent does not run (it is stopped, or hangs) and can no longer kill its workers in time, so the keeper
// does.
//
//     agent ── set(), at each answer of the coordinator ──▶ timerfd ── expires ──▶ keeper kills the workers
//
// The timer is the kernel's, so nobody polls, and its clock goes on while the machine sleeps: it has expired when a
// machine wakes that slept for too long.
//
// An agent that goes on while its keeper kills must not start the next round's workers before the keeper is done, which
// would kill those, too. So the keeper holds a lock meanwhile, of the kind that ends with its process. The agent only
// looks at it: an agent that is stopped holds nothing.
#pragma once

#include <chrono>
#include <functional>
#include <optional>

#include "rendezvous/base/descriptor.hpp"

namespace ddp::launcher {

class Deadman {
 public:
  // Makes it for processes that are forked after this. Where the kernel gives no timer, every call does nothing.
  Deadman();

  // In the agent: lets the timer expire at this time of BootClock; nothing: never.
  void set(std::optional<std::chrono::steady_clock::time_point> at) const;
  // In the agent: returns once the keeper is not killing.
  void await_keeper() const;

  // In the keeper: readable once the timer has expired; -1: there is none.
  int fd() const { return timer_.get(); }
  // In the keeper: calls `kill` if the timer has expired and was not set again.
  void if_expired(const std::function<void()>& kill) const;

 private:
  rendezvous::Descriptor timer_;
  rendezvous::Descriptor lock_;
};

}  // namespace ddp::launcher
