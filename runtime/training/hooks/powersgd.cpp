// SPDX-License-Identifier: BSD-3-Clause
#include "runtime/training/hooks/powersgd.hpp"

#include <string>
#include <utility>

#include "runtime/training/hooks/builtin_comm_hooks.hpp"

namespace ddp::runtime {

using rendezvous::Error;
using rendezvous::ErrorCode;

PowerSgdHook::PowerSgdHook(ProcessGroup& group, const PowerSgdOptions& options, MakeBucket make_bucket)
    : group_(group), options_(options), make_bucket_(std::move(make_bucket)) {
  // The negation also refuses NaN.
  if (!(options.min_compression_rate > 0)) {
    throw Error(ErrorCode::InvalidArgument,
                "PowerSGD: min_compression_rate is " + std::to_string(options.min_compression_rate) + ", not above 0");
  }
}

void PowerSgdHook::start(const ddp_grad_bucket& bucket) {
  if (bucket.index >= buckets_.size()) buckets_.resize(bucket.index + 1);
  Bucket& state = buckets_[bucket.index];
  const bool is_float = bucket.buffer.dtype == DDP_FLOAT32 || bucket.buffer.dtype == DDP_FLOAT64;
  if (step_ < options_.start_iteration || !is_float) {
    state.stage = Stage::Plain;
    state.average = issue_average(group_, bucket.buffer);
  } else {
    if (!state.compressed) state.compressed = make_bucket_(bucket, options_);
    state.stage = Stage::Projecting;
    state.compressed->compress(bucket.buffer.data);
    state.average = issue_average(group_, state.compressed->p());
    state.rest = issue_average(group_, state.compressed->rest());
  }
  if (bucket.is_last != 0) ++step_;
}

// A graph repeats what it has captured, and what it has captured may not allocate.
const char* PowerSgdHook::why_not_captured() const {
  if (step_ > options_.start_iteration) return nullptr;
  return "PowerSGD has not compressed yet: take steps until it has (start_powersgd_iter) before the capture";
}

bool PowerSgdHook::advance(const ddp_grad_bucket& bucket) {
  Bucket& state = buckets_[bucket.index];
  group_.wait(state.average);
  switch (state.stage) {
    case Stage::Plain:
      return false;
    case Stage::Projecting:
      state.compressed->project(bucket.buffer.data);
      state.average = issue_average(group_, state.compressed->q());
      state.stage = Stage::Collecting;
      return true;
    case Stage::Collecting:
      break;
  }
  group_.wait(state.rest);
  state.compressed->decompress(bucket.buffer.data);
  return false;
}

}  // namespace ddp::runtime
