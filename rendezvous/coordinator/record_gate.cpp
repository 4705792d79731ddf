// SPDX-License-Identifier: BSD-3-Clause
#include "rendezvous/coordinator/record_gate.hpp"

#include <algorithm>
#include <variant>

namespace ddp::rendezvous {

void RecordGate::take(CoordinatorAction action, std::vector<CoordinatorAction>& now) {
  if (const auto* record = std::get_if<Record>(&action)) newest_ = record->number;
  const bool passes = std::holds_alternative<Record>(action) || std::holds_alternative<AnswerBeat>(action) ||
                      std::holds_alternative<CloseLink>(action);
  if (passes || newest_ <= kept_) {  // mutant: gate
    now.push_back(std::move(action));
  } else {
    held_.emplace_back(newest_, std::move(action));
  }
}

void RecordGate::kept(std::uint64_t number, std::vector<CoordinatorAction>& now) {
  kept_ = std::max(kept_, number);
  for (; !held_.empty() && held_.front().first <= kept_; held_.pop_front()) {
    now.push_back(std::move(held_.front().second));
  }
}

}  // namespace ddp::rendezvous
