// SPDX-License-Identifier: BSD-3-Clause
// Communication hooks written by a user.
#include <algorithm>
#include <memory>
#include <stdexcept>
#include <string>
#include <vector>

#include "tests/runtime/training/ddp/ddp_scenarios.hpp"

namespace ddp::test {
namespace {

struct HookFault : std::runtime_error {
  using std::runtime_error::runtime_error;
};

// Sums up, then in a second stage sums up the sums. All buckets pass their first stage before any
// bucket passes its second.
class TwoStages final : public CommHook {
 public:
  explicit TwoStages(ProcessGroup group) : group_(std::move(group)) {}

  void start(const GradBucket& bucket) override {
    stage_.resize(std::max(stage_.size(), bucket.index() + 1));
    stage_[bucket.index()] = 1;
    sum(bucket);
  }
  bool advance(const GradBucket& bucket) override {
    work_[bucket.index()].wait();
    if (stage_[bucket.index()]++ == 2) return false;
    expect(bucket.index() == 0 || stage_[bucket.index() - 1] == 2, "all buckets are in a stage before the next begins");
    // Passes on only every other gradient of the bucket, to show that their places are right.
    for (std::size_t k = 0; k < bucket.size(); ++k) {
      const Buffer gradient = bucket.gradient(k);
      const std::vector<std::int64_t> shape = bucket.shape(k);
      expect(shape.size() == 2 && static_cast<std::size_t>(shape[0] * shape[1]) == gradient.count, "shapes come along");
      if (bucket.parameter(k) % 2 == 0) std::fill_n(static_cast<float*>(gradient.data), gradient.count, 0.0F);
    }
    sum(bucket);
    return true;
  }

 private:
  void sum(const GradBucket& bucket) {
    work_.resize(std::max(work_.size(), bucket.index() + 1));
    work_[bucket.index()] = group_.all_reduce_async(bucket.buffer(), ReduceOp::Sum);
  }

  ProcessGroup group_;
  std::vector<Work> work_;
  std::vector<int> stage_;
};

void two_stages(Session& session) {
  const auto n = static_cast<float>(session.world_size());
  Tensors t({6, 6, 6, 6, 6});
  std::vector<Parameter> parameters = t.parameters();
  for (Parameter& p : parameters) p.shape = {2, 3};
  DistributedDataParallelOptions options;
  options.first_bucket_bytes = options.bucket_bytes = 48;
  DistributedDataParallel model(session.world(), parameters, options);
  model.register_comm_hook(std::make_shared<TwoStages>(session.world()));
  for (int step = 1; step <= 2; ++step) {
    for (std::size_t i = 5; i-- > 0;) {
      t.fill(i, static_cast<float>(step));  // no one divides it
      model.mark_ready(i);
    }
    model.synchronize();
    for (std::size_t i = 0; i < 5; ++i) {
      expect(t.grad_is(i, i % 2 == 0 ? 0 : static_cast<float>(step) * n * n), "the hook's result is the gradient");
    }
  }
}

// Throws on rank 1 only.
class Failing final : public CommHook {
 public:
  Failing(ProcessGroup group, bool in_start) : average_(group), rank_(group.rank()), in_start_(in_start) {}
  void start(const GradBucket& bucket) override {
    if (rank_ == 1 && in_start_) throw HookFault("no space for error feedback");
    average_.start(bucket);
  }
  bool advance(const GradBucket& bucket) override {
    if (rank_ == 1) throw HookFault("no space for error feedback");
    return average_.advance(bucket);
  }

 private:
  AveragingHook average_;
  int rank_;
  bool in_start_;
};

void failing(Session& session, bool in_start) {
  Tensors t({6});
  DistributedDataParallel model(session.world(), t.parameters());
  model.register_comm_hook(std::make_shared<Failing>(session.world(), in_start));
  t.fill(0, 3);
  const auto step = [&] {
    model.mark_ready(0);
    // Rank 1 fails in advance() when the others already have their averages; they fail in the next
    // step.
    model.synchronize();
    model.mark_ready(0);
    model.synchronize();
  };
  if (session.rank() == 1) {
    try {
      step();
      expect(false, "the hook's exception comes out");
    } catch (const HookFault& fault) {
      say(std::string("the user's own: ") + fault.what());
    }
    expect(t.grad_is(0, 3), "the gradient is what it was");
  } else {
    report_failure("step", step);
  }
  report_failure("again", [&] { model.mark_ready(0); });
}

void hook_mistakes(Session& session) {
  Tensors t({6});
  const auto hook = std::make_shared<AveragingHook>(session.world());
  DistributedDataParallel twice(session.world(), t.parameters());
  twice.register_comm_hook(hook);
  report_failure("twice", [&] { twice.register_comm_hook(hook); });
  twice.mark_ready(0);
  twice.synchronize();  // the reducer is still usable

  DistributedDataParallel late(session.world(), t.parameters());
  late.mark_ready(0);
  late.synchronize();
  report_failure("late", [&] { late.register_comm_hook(hook); });

  DistributedDataParallel half(session.world(), t.parameters());
  const ddp_comm_hook nothing = {nullptr, nullptr, nullptr, nullptr};
  expect(ddp_reducer_register_comm_hook(half.c(), &nothing) == DDP_INVALID_ARGUMENT, "a hook without functions");
  expect(ddp_reducer_register_comm_hook(half.c(), nullptr) == DDP_INVALID_ARGUMENT, "no hook at all");
}

}  // namespace

Scenarios hook_scenarios() {
  return {{"two stages", two_stages},
          {"hook fails in start", [](Session& s) { failing(s, true); }},
          {"hook fails in advance", [](Session& s) { failing(s, false); }},
          {"hook mistakes", hook_mistakes}};
}

}  // namespace ddp::test
