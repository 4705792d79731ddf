// SPDX-License-Identifier: BSD-3-Clause
#include "rendezvous/coordinator/record_gate.hpp"

#include <algorithm>
#include <variant>

namespace ddp::rendezvous {

namespace {

template <typename Queue>
auto taken_from(Queue& queue) {
  auto first = std::move(queue.front());
  queue.pop_front();
  return first;
}

// Whether it tells nobody what was decided. Strangers cause any number of lines, which must not pile up.
bool passes(const CoordinatorAction& action) {
  const auto* line = std::get_if<CoordinatorLogLine>(&action);
  return std::holds_alternative<Record>(action) || std::holds_alternative<CloseLink>(action) ||
         (line && line->is_about_stranger);
}

}  // namespace

void RecordGate::take(CoordinatorAction action) {
  if (const auto* record = std::get_if<Record>(&action)) newest_ = record->number;
  if (std::holds_alternative<AnswerBeat>(action)) {
    beats_.push_back(std::move(action));
  } else if (passes(action)) {
    passing_.push_back(std::move(action));
  } else {
    held_.emplace_back(newest_, std::move(action));
  }
}

void RecordGate::kept(std::uint64_t number) { kept_ = std::max(kept_, number); }

std::optional<CoordinatorAction> RecordGate::next(bool may_tell) {
  if (!passing_.empty()) return taken_from(passing_);
  if (!may_tell) return std::nullopt;
  if (!beats_.empty()) return taken_from(beats_);
  if (held_.empty() || held_.front().first > kept_) return std::nullopt;
  return taken_from(held_).second;
}

}  // namespace ddp::rendezvous
