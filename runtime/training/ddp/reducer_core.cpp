// SPDX-License-Identifier: BSD-3-Clause
#include "runtime/training/ddp/reducer_core.hpp"

#include <algorithm>
#include <utility>

#include "rendezvous/base/text.hpp"

namespace ddp::runtime {

using rendezvous::Error;
using rendezvous::ErrorCode;

namespace {

constexpr char kStaticGraph[] = ": static_graph promises that all steps are alike";

std::string times(std::uint32_t count) {
  if (count == 0) return "never";
  return count == 1 ? "once" : std::to_string(count) + " times";
}

}  // namespace

void ReducerActions::clear() {
  fill.clear();
  launch.clear();
}

ReducerCore::ReducerCore(std::vector<std::string> names, const std::vector<PlannedBucket>& plan, StepShape shape)
    : shape_(shape),
      names_(std::move(names)),
      bucket_of_(names_.size()),
      used_(names_.size()),
      used_anywhere_(names_.size()),
      expected_(names_.size()),
      marks_(names_.size()),
      last_mark_(names_.size()),
      ready_(names_.size()),
      marked_unused_(names_.size()) {
  replan(plan);
}

void ReducerCore::replan(const std::vector<PlannedBucket>& plan) {
  bucket_sizes_.clear();
  order_.clear();
  for (std::size_t b = 0; b < plan.size(); ++b) {
    for (const std::size_t i : plan[b]) bucket_of_[i] = b;
    bucket_sizes_.push_back(plan[b].size());
    order_.insert(order_.end(), plan[b].begin(), plan[b].end());
  }
  missing_ = bucket_sizes_;
}

bool ReducerCore::before_forward() {
  throw_if_failed();
  if (in_step_ || forward_open_) {
    fail("before_forward() was called in the middle of a step: call synchronize() after each backward first" +
         std::string(in_step_ ? "" : ", or wrap forward and backward in no_sync() to leave it out"));
  }
  forward_open_ = joining_ && !no_sync_;
  return shadow_forward(!no_sync_);
}

bool ReducerCore::shadow_forward(bool synchronizes) { return std::exchange(buffers_due_, synchronizes); }

void ReducerCore::set_joining(bool joining) {
  throw_if_failed();
  if (in_step_ || forward_open_) {
    fail(std::string("join ") + (joining ? "begins" : "ends") +
         " in the middle of a step: call synchronize() after each backward");
  }
  joining_ = joining;
}

void ReducerCore::cancel_joining() { joining_ = forward_open_ = false; }

void ReducerCore::mark_ready(std::size_t i, ReducerActions& actions) {
  throw_if_failed();
  check_number(i);
  if (shape_ == StepShape::AsFirst && knows_used_ && used_anywhere_[i] == 0) {
    fail(names_[i] + " was marked ready, but no rank used it in the first step" + kStaticGraph);
  }
  has_begun_ = true;
  used_[i] = 1;
  if (no_sync_) return;
  begin_step(actions);
  count_mark(i, actions);
}

void ReducerCore::mark_unused(std::size_t i, ReducerActions& actions) {
  throw_if_failed();
  check_number(i);
  if (shape_ == StepShape::All) {
    fail(names_[i] +
         " was marked unused, but find_unused_parameters is off: set it when DistributedDataParallel is "
         "constructed");
  }
  if (no_sync_ || shape_ == StepShape::AsFirst || marked_unused_[i]) return;  // being unmarked says as much
  begin_step(actions);
  if (ready_[i]) fail(names_[i] + " was marked unused, but it was marked ready in the same step");
  marked_unused_[i] = true;
  become_ready(i, actions);
}

void ReducerCore::begin_step(ReducerActions& actions) {
  if (in_step_) return;
  if (joining_ && !forward_open_) {
    fail(
        "a step began without before_forward(): inside join call it before each forward, ranks without input wait "
        "for it");
  }
  in_step_ = has_begun_ = true;
  if (!knows_first_) return;
  for (std::size_t i = 0; i < names_.size(); ++i) {
    if (expected_[i] == 0) become_ready(i, actions);
  }
}

void ReducerCore::count_mark(std::size_t i, ReducerActions& actions) {
  ++marks_[i];
  last_mark_[i] = ++mark_count_;
  if (shape_ == StepShape::AsFirst) {
    if (!knows_first_) return;
    if (marks_[i] > expected_[i]) fail_unlike_first(i);
    if (marks_[i] == expected_[i]) become_ready(i, actions);
    return;
  }
  if (marked_unused_[i]) fail(names_[i] + " was marked ready, but it was marked unused in the same step");
  if (ready_[i]) {
    fail(names_[i] +
         " was marked ready twice in one step: mark it once, after the last use that adds to its gradient, "
         "and call synchronize() before the next backward (or accumulate under no_sync())");
  }
  become_ready(i, actions);
}

void ReducerCore::become_ready(std::size_t i, ReducerActions& actions) {
  ready_[i] = true;
  actions.fill.push_back(i);
  --missing_[bucket_of_[i]];
  while (next_bucket_ < missing_.size() && missing_[next_bucket_] == 0) actions.launch.push_back(next_bucket_++);
}

bool ReducerCore::synchronize(ReducerActions& actions) {
  throw_if_failed();
  if (no_sync_) return false;
  begin_step(actions);
  if (shape_ == StepShape::All) check_all_marked();
  if (knows_first_) check_as_first();
  for (const std::size_t i : order_) {
    if (!ready_[i]) become_ready(i, actions);
  }
  if (shape_ == StepShape::AsFirst && !knows_first_) {
    expected_ = marks_;
    knows_first_ = true;
  }
  return true;
}

void ReducerCore::shadow_step(ReducerActions& actions) {
  throw_if_failed();
  in_step_ = true;
  for (std::size_t b = 0; b < bucket_sizes_.size(); ++b) actions.launch.push_back(b);
}

void ReducerCore::end_step() {
  if (shape_ == StepShape::AsFirst) knows_used_ = true;
  in_step_ = forward_open_ = false;
  std::fill(used_.begin(), used_.end(), std::uint8_t{0});
  std::fill(marks_.begin(), marks_.end(), 0U);
  ready_.assign(ready_.size(), false);
  marked_unused_.assign(marked_unused_.size(), false);
  missing_ = bucket_sizes_;
  next_bucket_ = 0;
}

bool ReducerCore::asks_who_used() const {
  return shape_ == StepShape::Any || (shape_ == StepShape::AsFirst && !knows_used_);
}

std::vector<std::size_t> ReducerCore::ready_order() const {
  std::vector<std::size_t> order = order_;
  const auto came = [&](std::size_t i) { return last_mark_[i] != 0 ? last_mark_[i] : UINT64_MAX; };
  std::stable_sort(order.begin(), order.end(), [&](std::size_t a, std::size_t b) { return came(a) < came(b); });
  return order;
}

void ReducerCore::set_no_sync(bool enabled) {
  throw_if_failed();
  if (enabled != no_sync_ && in_step_) {
    const auto marked = std::count_if(marks_.begin(), marks_.end(), [](std::uint32_t n) { return n > 0; });
    fail("no_sync changed in the middle of a step: " + std::to_string(marked) + " of " + std::to_string(names_.size()) +
         " parameters are marked ready; call synchronize() first");
  }
  if (enabled != no_sync_ && forward_open_) {
    fail(
        "no_sync changed between before_forward() and synchronize(): inside join, ranks without input expect that "
        "this step synchronizes");
  }
  no_sync_ = enabled;
}

void ReducerCore::check_number(std::size_t i) {
  if (i < names_.size()) return;
  fail("there is no parameter " + std::to_string(i) + ": the model has " + std::to_string(names_.size()));
}

void ReducerCore::check_all_marked() {
  std::vector<std::string> unmarked;
  for (std::size_t i = 0; i < names_.size(); ++i) {
    if (!ready_[i]) unmarked.push_back(names_[i]);
  }
  if (unmarked.empty()) return;
  fail(rendezvous::list_of(unmarked, 5) + (unmarked.size() == 1 ? " was" : " were") +
       " never marked ready in this step: every parameter must be marked in every step, one that was not used with "
       "a gradient of zero, or set find_unused_parameters");
}

void ReducerCore::check_as_first() {
  for (std::size_t i = 0; i < names_.size(); ++i) {
    if (marks_[i] != expected_[i]) fail_unlike_first(i);
  }
}

void ReducerCore::fail_unlike_first(std::size_t i) {
  fail(names_[i] + (marks_[i] == 0 ? " was never marked ready" : " was marked ready " + times(marks_[i])) +
       " in this step, but " + times(expected_[i]) + " in the first" + kStaticGraph);
}

void ReducerCore::fail(const std::string& why) {
  give_up(Error(ErrorCode::InvalidArgument, "DistributedDataParallel: " + why));
  throw_if_failed();
  std::abort();  // not reached
}

void ReducerCore::give_up(const Error& error) {
  if (!failure_) failure_ = error;
}

void ReducerCore::throw_if_failed() const {
  if (failure_) throw *failure_;
}

}  // namespace ddp::runtime
