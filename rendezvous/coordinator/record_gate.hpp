// SPDX-License-Identifier: BSD-3-Clause
// Holds back what the core decided until the journal has kept it, so that a decision is recorded before it is sent, and
// sends nothing while another life of the coordinator may have begun. A value, which the coordinator's driver and the
// simulator share.
//
//     take Record 1, Send, Send     next ──▶ Record 1       [1 is written]     held: Send, Send
//     take Send, AnswerBeat         next ──▶ AnswerBeat                        held: Send, Send, Send
//     kept 1                        next ──▶ Send, Send, Send
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <optional>
#include <utility>

#include "rendezvous/coordinator/core/coordinator_events.hpp"

namespace ddp::rendezvous {

class RecordGate {
 public:
  // Takes an action of the core, in order.
  void take(CoordinatorAction action);
  // The journal has kept this record and those before it.
  void kept(std::uint64_t number);
  // Returns the next action that is to be carried out now; nothing: none is. `may_tell` is what the journal's
  // may_tell() says at this moment; ask it again for each action.
  //
  // A Record passes at once. So does the end of a link, after which an agent only links again: for the core that link
  // is closed; and a line about a stranger. The answer to a heartbeat tells nothing that was decided, and need not wait
  // for a record.
  std::optional<CoordinatorAction> next(bool may_tell);
  // Returns how many actions wait.
  std::size_t held() const { return passing_.size() + beats_.size() + held_.size(); }

 private:
  std::uint64_t newest_ = 0, kept_ = 0;  // numbers of records
  std::deque<CoordinatorAction> passing_, beats_;
  std::deque<std::pair<std::uint64_t, CoordinatorAction>> held_;  // with the record that each waits for
};

}  // namespace ddp::rendezvous
