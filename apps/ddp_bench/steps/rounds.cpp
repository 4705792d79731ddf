// SPDX-License-Identifier: BSD-3-Clause
#include "apps/ddp_bench/steps/rounds.hpp"

#include <chrono>
#include <cmath>
#include <cstring>
#include <memory>
#include <stdexcept>

namespace ddp::bench {
namespace {

using Clock = std::chrono::steady_clock;

constexpr int kWarmUpSteps = 3;  // buckets are reordered after the first step

class Step {
 public:
  explicit Step(const SyntheticBackward& backward) : backward_(backward) {}
  virtual ~Step() = default;
  Step(const Step&) = delete;
  Step& operator=(const Step&) = delete;

  virtual void run() = 0;
  virtual float* gradient(std::size_t i) = 0;
  virtual std::size_t buckets() const { return 0; }

 protected:
  const SyntheticBackward& backward_;
};

// The gradients of every kind of step but ddp_view: one buffer, parameter after parameter.
class Gradients {
 public:
  explicit Gradients(const SyntheticBackward& backward) : memory_(backward.elements()) {
    float* next = memory_.data();
    for (const ParameterShape& shape : backward.shapes()) {
      at_.push_back(next);
      next += shape.count;
    }
  }
  float* at(std::size_t i) { return at_[i]; }
  Buffer all() { return {memory_.data(), memory_.size()}; }

 private:
  std::vector<float> memory_;
  std::vector<float*> at_;
};

class BackwardAlone : public Step {
 public:
  BackwardAlone(const SyntheticBackward& backward, Gradients& gradients) : Step(backward), gradients_(gradients) {}
  void run() override {
    backward_.run([this](std::size_t i) { return gradients_.at(i); }, [](std::size_t) {});
  }
  float* gradient(std::size_t i) override { return gradients_.at(i); }

 protected:
  Gradients& gradients_;
};

class Plain : public BackwardAlone {
 public:
  Plain(const SyntheticBackward& backward, Gradients& gradients, ProcessGroup group)
      : BackwardAlone(backward, gradients), group_(group) {}
  void run() override {
    BackwardAlone::run();
    group_.all_reduce(gradients_.all());
  }

 private:
  ProcessGroup group_;
};

class Ddp : public Step {
 public:
  // `gradients` is null if they are in the buckets.
  Ddp(const SyntheticBackward& backward, std::vector<float>& values, Gradients* gradients, const ProcessGroup& group,
      const DistributedDataParallelOptions& options)
      : Step(backward), model_(group, parameters(backward, values, gradients), options) {}
  void run() override {
    backward_.run([this](std::size_t i) { return model_.gradient<float>(i); },
                  [this](std::size_t i) { model_.mark_ready(i); });
    model_.synchronize();
  }
  float* gradient(std::size_t i) override { return model_.gradient<float>(i); }
  std::size_t buckets() const override { return model_.bucket_count(); }

 private:
  static std::vector<Parameter> parameters(const SyntheticBackward& backward, std::vector<float>& values,
                                           Gradients* gradients) {
    std::vector<Parameter> all;
    float* value = values.data();
    for (std::size_t i = 0; i < backward.shapes().size(); ++i) {
      const ParameterShape& shape = backward.shapes()[i];
      all.emplace_back(shape.name, value, gradients != nullptr ? gradients->at(i) : nullptr, shape.count);
      value += shape.count;
    }
    return all;
  }

  DistributedDataParallel model_;
};

struct Kind {
  std::unique_ptr<Step> step;
  float expected = 0;  // every element of every gradient
  StepFigures figures;
};

void warm_up(const Kind& kind, const SyntheticBackward& backward) {
  for (int i = 0; i < kWarmUpSteps; ++i) kind.step->run();
  for (std::size_t i = 0; i < backward.shapes().size(); ++i) {
    const float* gradient = kind.step->gradient(i);
    for (std::size_t k = 0; k < backward.shapes()[i].count; ++k) {
      if (std::abs(gradient[k] - kind.expected) <= 1e-5F * kind.expected) continue;
      throw std::runtime_error(kind.figures.step + ": element " + std::to_string(k) + " of the gradient of " +
                               backward.shapes()[i].name + " is " + std::to_string(gradient[k]) + ", not " +
                               std::to_string(kind.expected));
    }
  }
}

double milliseconds_on_slowest(ProcessGroup group, Step& step) {
  group.barrier();
  const Clock::time_point start = Clock::now();
  step.run();
  double took = std::chrono::duration<double, std::milli>(Clock::now() - start).count();
  group.all_reduce({&took, 1}, ReduceOp::Max);
  return took;
}

}  // namespace

std::vector<StepFigures> measure_steps(const ProcessGroup& group, const StepPlan& plan) {
  const auto ranks = static_cast<float>(group.size());
  const SyntheticBackward backward(plan.backward, static_cast<float>(group.rank() + 1));
  const float average = (ranks + 1) / 2;
  Gradients gradients(backward);
  std::vector<float> values(backward.elements());
  std::vector<Kind> kinds;
  kinds.push_back({std::make_unique<BackwardAlone>(backward, gradients), backward.value(), {"backward", 0, 0, {}}});
  kinds.push_back({std::make_unique<Plain>(backward, gradients, group), average * ranks, {"plain", 0, 0, {}}});
  for (const double mib : plan.bucket_mib) {
    const auto bytes = [](double size) { return static_cast<std::size_t>(size * (1 << 20)); };
    DistributedDataParallelOptions options;
    options.first_bucket_bytes = bytes(std::min(plan.first_bucket_mib, mib));
    options.bucket_bytes = bytes(mib);
    const auto add = [&](const char* name, Gradients* where) {
      kinds.push_back({std::make_unique<Ddp>(backward, values, where, group, options), average, {name, mib, 0, {}}});
    };
    add("ddp", &gradients);
    add("ddp_view", nullptr);
  }
  for (Kind& kind : kinds) {
    warm_up(kind, backward);
    kind.figures.buckets = kind.step->buckets();
  }
  for (int round = 0; round < plan.rounds; ++round) {
    for (std::size_t turn = 0; turn < kinds.size(); ++turn) {
      Kind& kind = kinds[(turn + static_cast<std::size_t>(round)) % kinds.size()];
      kind.figures.round_ms.push_back(milliseconds_on_slowest(group, *kind.step));
    }
  }
  std::vector<StepFigures> figures;
  for (Kind& kind : kinds) figures.push_back(std::move(kind.figures));
  return figures;
}

}  // namespace ddp::bench
