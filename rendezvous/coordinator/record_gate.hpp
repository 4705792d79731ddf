// SPDX-License-Identifier: BSD-3-Clause
// Holds back what the core decided until the journal has kept it, so that a decision is recorded before it is sent. A
// value, which the coordinator's driver and the simulator share.
//
//     Record 1, Send, Send ──▶ [1 is written]  held: Send, Send
//     Send, AnswerBeat     ──▶ AnswerBeat      held: Send, Send, Send
//     kept 1               ──▶ Send, Send, Send
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <utility>
#include <vector>

#include "rendezvous/coordinator/coordinator_core.hpp"

namespace ddp::rendezvous {

class RecordGate {
 public:
  // Takes an action of the core, in order. Appends what may be carried out now: a Record is to be written, which the
  // caller does at once. The answer to a heartbeat tells nothing that was decided, and passes. So does the end of a
  // link, after which an agent only links again: for the core that link is closed.
  void take(CoordinatorAction action, std::vector<CoordinatorAction>& now);
  // The journal has kept this record and those before it. Appends what may be carried out now.
  void kept(std::uint64_t number, std::vector<CoordinatorAction>& now);
  std::size_t held() const { return held_.size(); }

 private:
  std::uint64_t newest_ = 0, kept_ = 0;                           // numbers of records
  std::deque<std::pair<std::uint64_t, CoordinatorAction>> held_;  // with the record that each waits for
};

}  // namespace ddp::rendezvous
