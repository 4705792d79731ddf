// SPDX-License-Identifier: BSD-3-Clause
#include "runtime/training/reducer_core.hpp"

#include <utility>

#include "rendezvous/error.hpp"

namespace ddp::runtime {

using rendezvous::Error;
using rendezvous::ErrorCode;

ReducerCore::ReducerCore(std::vector<std::string> names, const std::vector<PlannedBucket>& plan)
    : names_(std::move(names)), bucket_of_(names_.size()), marked_(names_.size(), false) {
  for (std::size_t b = 0; b < plan.size(); ++b) {
    for (const std::size_t i : plan[b]) bucket_of_[i] = b;
    bucket_sizes_.push_back(plan[b].size());
  }
  missing_ = bucket_sizes_;
}

bool ReducerCore::mark_ready(std::size_t i, std::vector<std::size_t>& launch) {
  throw_if_failed();
  if (i >= names_.size()) {
    fail("there is no parameter " + std::to_string(i) + ": the model has " + std::to_string(names_.size()));
  }
  if (no_sync_) return false;
  if (marked_[i]) {
    fail(name(i) +
         " was marked ready twice in one step: mark it once, after the last use that adds to its gradient, "
         "and call synchronize() before the next backward (or accumulate under no_sync())");
  }
  marked_[i] = true;
  ++marked_count_;
  --missing_[bucket_of_[i]];
  while (next_bucket_ < missing_.size() && missing_[next_bucket_] == 0) launch.push_back(next_bucket_++);
  return true;
}

bool ReducerCore::synchronize() {
  throw_if_failed();
  if (no_sync_) return false;
  if (marked_count_ < names_.size()) {
    constexpr std::size_t kShown = 5;
    std::string list;
    std::size_t found = 0;
    for (std::size_t i = 0; i < names_.size(); ++i) {
      if (!marked_[i] && ++found <= kShown) list += (found > 1 ? ", " : "") + name(i);
    }
    if (found > kShown) list += " and " + std::to_string(found - kShown) + " more";
    fail(list + (found == 1 ? " was" : " were") +
         " never marked ready in this step: every parameter must be marked in every step, one that was not used with "
         "a gradient of zero");
  }
  marked_.assign(marked_.size(), false);
  missing_ = bucket_sizes_;
  marked_count_ = 0;
  next_bucket_ = 0;
  return true;
}

void ReducerCore::set_no_sync(bool enabled) {
  throw_if_failed();
  if (enabled != no_sync_ && in_step()) {
    fail("no_sync changed in the middle of a step: " + std::to_string(marked_count_) + " of " +
         std::to_string(names_.size()) + " parameters are marked ready; call synchronize() first");
  }
  no_sync_ = enabled;
}

void ReducerCore::fail(const std::string& why) {
  failure_ = why;
  throw_if_failed();
  std::abort();  // not reached
}

void ReducerCore::throw_if_failed() const {
  if (failure_) throw Error(ErrorCode::InvalidArgument, "DistributedDataParallel: " + *failure_);
}

std::string ReducerCore::name(std::size_t i) const {
  return "parameter " + std::to_string(i) + (names_[i].empty() ? "" : " (" + names_[i] + ")");
}

}  // namespace ddp::runtime
