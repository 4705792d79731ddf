// SPDX-License-Identifier: BSD-3-Clause
/// @file
/// Learning-rate schedules: PyTorch's, under their names and with their numbers.
///
///     ddp::AdamW optimizer(parameters, options);
///     ddp::LinearLR warmup(optimizer, 0.1, 1, 100);
///     ddp::CosineAnnealingLR cosine(optimizer, 900);
///     ddp::SequentialLR schedule(optimizer, {&warmup, &cosine}, {100});
///     for (int step = 0; step < 1000; ++step) {
///       ...
///       optimizer.step();
///       schedule.step();                                // the next step's learning rate
///     }
///
/// They compute in 64 bits, one rate from the last as PyTorch does, so that several on one optimizer multiply.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <locale>
#include <sstream>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "ddp/error.hpp"

namespace ddp {

/// A schedule of an optimizer's learning rates: the base of StepLR, LinearLR and the others. Make your own by deriving
/// from it. The optimizer (AdamW, Adam, SGD or ZeroRedundancyOptimizer) must outlive it. One thread at a time. Source:
/// torch.optim.lr_scheduler.LRScheduler.
class LRScheduler {
 public:
  virtual ~LRScheduler() = default;
  LRScheduler(const LRScheduler&) = delete;
  LRScheduler& operator=(const LRScheduler&) = delete;

  /// Sets the next learning rate of each group. Call it after the optimizer's step(), once an epoch or once a step, as
  /// the schedule's numbers are meant; on every rank alike.
  virtual void step() {
    ++last_epoch_;
    set([this](std::size_t group) { return next(group); });
  }
  /// Returns the learning rate of each group.
  std::vector<double> get_last_lr() const {
    std::vector<double> lrs;
    for (const double* lr : lrs_) lrs.push_back(*lr);
    return lrs;
  }
  /// Returns how often step() was called.
  std::int64_t last_epoch() const { return last_epoch_; }

  /// Returns the state as one line of text, for a checkpoint's metadata. It has all bits of the rates.
  virtual std::string state_dict() const {
    std::ostringstream out;
    out.imbue(std::locale::classic());  // not the program's, which may have another decimal point
    out.precision(17);
    out << "epoch " << last_epoch_ << ", base";
    for (const double base : bases_) out << " " << base;
    out << ", lr";
    for (const double* lr : lrs_) out << " " << *lr;
    return out.str();
  }
  /// Goes on from a state, and sets the optimizer's learning rates to what they were. Throws Error with
  /// Status::Corrupt, and changes nothing, if the text is no state of a schedule with as many groups.
  virtual void load_state_dict(const std::string& text) {
    std::istringstream in(text);
    in.imbue(std::locale::classic());
    std::int64_t epoch = 0;
    std::vector<double> bases(bases_.size()), lrs(lrs_.size());
    bool good = word(in, "epoch") && in >> epoch && in.get() == ',' && word(in, "base");
    for (double& base : bases) good = good && number(in, base);
    good = good && in.get() == ',' && word(in, "lr");
    for (double& lr : lrs) good = good && number(in, lr);
    if (!good || (in >> std::ws && !in.eof())) {
      throw Error(Status::Corrupt, "\"" + text + "\" is no state of a learning-rate schedule with " +
                                       std::to_string(lrs.size()) + " groups of parameters");
    }
    last_epoch_ = epoch;
    bases_ = bases;
    set([&](std::size_t group) { return lrs[group]; });
  }

 protected:
  /// Takes the optimizer's groups. Their base rates are what they had before the first schedule changed them.
  template <typename Optimizer>
  explicit LRScheduler(Optimizer& optimizer) {
    for (std::size_t g = 0; g < optimizer.group_count(); ++g) {
      lrs_.push_back(&optimizer.options(g).lr);
      bases_.push_back(optimizer.initial_lr(g));
    }
  }
  /// Begins the schedule: sets the rates of epoch 0. A constructor calls it last.
  void start() {
    last_epoch_ = 0;
    set([this](std::size_t group) { return first(group); });
  }
  /// Returns a group's rate at epoch 0, of a schedule that begins with the current rate.
  virtual double first(std::size_t group) const { return lr(group); }
  /// Returns a group's rate at epoch 0, of a schedule that takes the place of another.
  virtual double restarted(std::size_t group) const { return base(group); }
  /// Returns a group's rate at the current epoch, which is 1 or more, from the rate of the epoch before.
  virtual double next(std::size_t group) const = 0;

  /// Returns a group's current rate.
  double lr(std::size_t group) const { return *lrs_[group]; }
  /// Returns a group's base rate.
  double base(std::size_t group) const { return bases_[group]; }
  /// Sets a group's base rate.
  void set_base(std::size_t group, double base) { bases_[group] = base; }
  /// Returns the number of groups.
  std::size_t group_count() const { return lrs_.size(); }

 private:
  friend class SequentialLR;

  static bool word(std::istream& in, const char* expected) {
    std::string found;
    return in >> found && found == expected;
  }
  static bool number(std::istream& in, double& value) { return static_cast<bool>(in >> value); }

  template <typename Rate>
  void set(const Rate& rate) {
    for (std::size_t g = 0; g < lrs_.size(); ++g) *lrs_[g] = rate(g);
    changed();
  }
  // Called when the rates have changed, for what goes with them.
  virtual void changed() {}
  void restart() {
    last_epoch_ = 0;
    set([this](std::size_t group) { return restarted(group); });
  }

  std::vector<double*> lrs_;   // in the optimizer's options
  std::vector<double> bases_;  // by group
  std::int64_t last_epoch_ = 0;
};

/// Multiplies the rate by gamma after every step_size epochs. Source: torch.optim.lr_scheduler.StepLR.
class StepLR : public LRScheduler {
 public:
  /// Makes the schedule. Throws Error with Status::InvalidArgument if step_size is below 1.
  template <typename Optimizer>
  StepLR(Optimizer& optimizer, std::int64_t step_size, double gamma = 0.1)
      : LRScheduler(optimizer), step_size_(step_size), gamma_(gamma) {
    if (step_size < 1) throw Error(Status::InvalidArgument, "StepLR: step_size must be at least 1");
    start();
  }

 private:
  double next(std::size_t group) const override {
    return last_epoch() % step_size_ == 0 ? lr(group) * gamma_ : lr(group);
  }

  std::int64_t step_size_;
  double gamma_;
};

/// Multiplies the rate by gamma at each of the milestones; at one that is given twice, twice. Source:
/// torch.optim.lr_scheduler.MultiStepLR.
class MultiStepLR : public LRScheduler {
 public:
  /// Makes the schedule.
  template <typename Optimizer>
  MultiStepLR(Optimizer& optimizer, std::vector<std::int64_t> milestones, double gamma = 0.1)
      : LRScheduler(optimizer), milestones_(std::move(milestones)), gamma_(gamma) {
    start();
  }

 private:
  double next(std::size_t group) const override {
    const auto times = std::count(milestones_.begin(), milestones_.end(), last_epoch());
    return times > 0 ? lr(group) * std::pow(gamma_, static_cast<double>(times)) : lr(group);
  }

  std::vector<std::int64_t> milestones_;
  double gamma_;
};

/// Multiplies the rate by gamma in every epoch. Source: torch.optim.lr_scheduler.ExponentialLR.
class ExponentialLR : public LRScheduler {
 public:
  /// Makes the schedule.
  template <typename Optimizer>
  ExponentialLR(Optimizer& optimizer, double gamma) : LRScheduler(optimizer), gamma_(gamma) {
    start();
  }

 private:
  double next(std::size_t group) const override { return lr(group) * gamma_; }

  double gamma_;
};

/// Raises or lowers the rate in a straight line, from the base rate times start_factor to the base rate times
/// end_factor after total_iters epochs: a warmup. Source: torch.optim.lr_scheduler.LinearLR.
class LinearLR : public LRScheduler {
 public:
  /// Makes the schedule. Throws Error with Status::InvalidArgument unless start_factor is above 0 and at most 1,
  /// end_factor is from 0 to 1, and total_iters is at least 1.
  template <typename Optimizer>
  explicit LinearLR(Optimizer& optimizer, double start_factor = 1.0 / 3, double end_factor = 1,
                    std::int64_t total_iters = 5)
      : LRScheduler(optimizer), start_(start_factor), end_(end_factor), iterations_(total_iters) {
    if (!(start_factor > 0 && start_factor <= 1 && end_factor >= 0 && end_factor <= 1 && total_iters >= 1)) {
      throw Error(
          Status::InvalidArgument,
          "LinearLR: start_factor must be above 0 and at most 1, end_factor from 0 to 1, total_iters at least 1");
    }
    start();
  }

 private:
  double first(std::size_t group) const override { return lr(group) * start_; }
  double restarted(std::size_t group) const override { return base(group) * start_; }
  double next(std::size_t group) const override {
    if (last_epoch() > iterations_) return lr(group);
    return lr(group) * (1 + (end_ - start_) / (static_cast<double>(iterations_) * start_ +
                                               static_cast<double>(last_epoch() - 1) * (end_ - start_)));
  }

  double start_;
  double end_;
  std::int64_t iterations_;
};

/// Lowers the rate along half a cosine, from the base rate to eta_min at epoch t_max, and raises it again after that.
/// Source: torch.optim.lr_scheduler.CosineAnnealingLR, whose T_max is t_max here.
class CosineAnnealingLR : public LRScheduler {
 public:
  /// Makes the schedule. Throws Error with Status::InvalidArgument if t_max is below 1.
  template <typename Optimizer>
  CosineAnnealingLR(Optimizer& optimizer, std::int64_t t_max, double eta_min = 0)
      : LRScheduler(optimizer), t_max_(t_max), eta_min_(eta_min) {
    if (t_max < 1) throw Error(Status::InvalidArgument, "CosineAnnealingLR: t_max must be at least 1");
    start();
  }

 private:
  static constexpr double kPi = 3.141592653589793;

  double cosine(std::int64_t epoch) const {
    return std::cos(kPi * static_cast<double>(epoch) / static_cast<double>(t_max_));
  }
  double restarted(std::size_t group) const override {
    return eta_min_ + (base(group) - eta_min_) * (1 + cosine(0)) / 2;
  }
  double next(std::size_t group) const override {
    if ((last_epoch() - 1 - t_max_) % (2 * t_max_) == 0) {  // the rate before is the lowest, so it cannot be a factor
      return lr(group) + (base(group) - eta_min_) * (1 - cosine(1)) / 2;
    }
    return (1 + cosine(last_epoch())) / (1 + cosine(last_epoch() - 1)) * (lr(group) - eta_min_) + eta_min_;
  }

  std::int64_t t_max_;
  double eta_min_;
};

/// Sets the rate to the base rate times a function of the epoch. Source: torch.optim.lr_scheduler.LambdaLR.
class LambdaLR : public LRScheduler {
 public:
  /// Function of the epoch, from 0.
  using Factor = std::function<double(std::int64_t epoch)>;

  /// Makes the schedule, with one function for all groups.
  template <typename Optimizer>
  LambdaLR(Optimizer& optimizer, const Factor& factor)
      : LambdaLR(optimizer, std::vector<Factor>(optimizer.group_count(), factor)) {}
  /// Makes the schedule, with a function for each group. Throws Error with Status::InvalidArgument if there are more or
  /// fewer.
  template <typename Optimizer>
  LambdaLR(Optimizer& optimizer, std::vector<Factor> factors) : LRScheduler(optimizer), factors_(std::move(factors)) {
    if (factors_.size() != group_count()) {
      throw Error(Status::InvalidArgument, "LambdaLR: " + std::to_string(factors_.size()) + " functions for " +
                                               std::to_string(group_count()) + " groups of parameters");
    }
    start();
  }

 private:
  double first(std::size_t group) const override { return next(group); }
  double restarted(std::size_t group) const override { return next(group); }
  double next(std::size_t group) const override { return base(group) * factors_[group](last_epoch()); }

  std::vector<Factor> factors_;
};

/// Runs one schedule after the other on an optimizer: number i from epoch milestones[i - 1] on, where it begins at its
/// epoch 0 and its base rate. Step this one only. Source: torch.optim.lr_scheduler.SequentialLR.
class SequentialLR : public LRScheduler {
 public:
  /// Makes the schedule of these, which must outlive it and were made for the same optimizer. Throws Error with
  /// Status::InvalidArgument unless there is one milestone fewer than schedules, in ascending order.
  template <typename Optimizer>
  SequentialLR(Optimizer& optimizer, std::vector<LRScheduler*> schedulers, std::vector<std::int64_t> milestones)
      : LRScheduler(optimizer), schedulers_(std::move(schedulers)), milestones_(std::move(milestones)) {
    if (schedulers_.size() != milestones_.size() + 1 || !std::is_sorted(milestones_.begin(), milestones_.end())) {
      throw Error(Status::InvalidArgument, "SequentialLR: give one milestone fewer than schedules, in ascending order");
    }
    LRScheduler::set([this](std::size_t group) { return base(group); });
    current().start();
  }

  /// Steps the schedule whose turn it is.
  void step() override {
    ++last_epoch_;
    const bool begins = std::find(milestones_.begin(), milestones_.end(), last_epoch_) != milestones_.end();
    if (begins) {
      current().restart();
    } else {
      current().step();
    }
  }
  /// Returns the states of this schedule and of those in it.
  std::string state_dict() const override {
    std::string text = LRScheduler::state_dict();
    for (const LRScheduler* each : schedulers_) text += " | " + each->state_dict();
    return text;
  }
  /// Goes on from a state, as those in it do. Throws Error with Status::Corrupt for any other text; what it has set by
  /// then stays.
  void load_state_dict(const std::string& text) override {
    std::vector<std::string> parts;
    for (std::size_t at = 0;;) {
      const std::size_t end = text.find(" | ", at);
      parts.push_back(text.substr(at, end == std::string::npos ? end : end - at));
      if (end == std::string::npos) break;
      at = end + 3;
    }
    if (parts.size() != schedulers_.size() + 1) {
      throw Error(Status::Corrupt,
                  "\"" + text + "\" is no state of " + std::to_string(schedulers_.size()) + " learning-rate schedules");
    }
    for (std::size_t i = 0; i < schedulers_.size(); ++i) schedulers_[i]->load_state_dict(parts[i + 1]);
    LRScheduler::load_state_dict(parts[0]);  // last, since all set the optimizer's rates
  }

 private:
  double next(std::size_t group) const override { return lr(group); }
  LRScheduler& current() {
    const auto turn = std::upper_bound(milestones_.begin(), milestones_.end(), last_epoch_) - milestones_.begin();
    return *schedulers_[static_cast<std::size_t>(turn)];
  }

  std::vector<LRScheduler*> schedulers_;
  std::vector<std::int64_t> milestones_;
};

/// How OneCycleLR works; names and defaults are those of PyTorch's arguments.
struct OneCycleOptions {
  double pct_start = 0.3;         ///< part of the cycle in which the rate rises
  bool linear = false;            ///< whether it rises and falls in straight lines; false: along cosines
  bool cycle_momentum = true;     ///< whether SGD's momentum or Adam's beta1 falls and rises against the rate
  double base_momentum = 0.85;    ///< lowest momentum, at the highest rate
  double max_momentum = 0.95;     ///< highest momentum, at the ends
  double div_factor = 25;         ///< the first rate is max_lr divided by it
  double final_div_factor = 1e4;  ///< the last rate is the first one divided by it
  bool three_phase = false;  ///< whether the rate falls to the first one as slowly as it rose, and then to the last
};

/// Raises the rate to max_lr and lowers it to almost nothing, in total_steps steps of the optimizer. Source:
/// torch.optim.lr_scheduler.OneCycleLR.
class OneCycleLR : public LRScheduler {
 public:
  /// Makes the schedule. Throws Error with Status::InvalidArgument for numbers that cannot work, and if the options
  /// ask for a changing momentum but the optimizer is an SGD without momentum.
  template <typename Optimizer>
  OneCycleLR(Optimizer& optimizer, double max_lr, std::int64_t total_steps, const OneCycleOptions& options = {})
      : LRScheduler(optimizer), max_lr_(max_lr), total_(total_steps), options_(options) {
    if (total_steps < 1 || !(options.pct_start >= 0 && options.pct_start <= 1))
      fail("total_steps must be at least 1, pct_start from 0 to 1");
    const double total = static_cast<double>(total_steps), rise = options.pct_start * total;
    if (rise == 1 || total_steps == 1) fail("the rate cannot rise in one step: give a larger total_steps or pct_start");
    if (options.three_phase) {
      phases_ = {{rise - 1, Rate::First, Rate::Highest},
                 {2 * rise - 2, Rate::Highest, Rate::First},
                 {total - 1, Rate::First, Rate::Last}};
    } else {
      phases_ = {{rise - 1, Rate::First, Rate::Highest}, {total - 1, Rate::Highest, Rate::Last}};
    }
    for (std::size_t g = 0; g < group_count(); ++g) set_base(g, max_lr / options.div_factor);
    if (options.cycle_momentum) {
      for (std::size_t g = 0; g < group_count(); ++g) momenta_.push_back(momentum_of(optimizer.options(g)));
    }
    start();
  }

 private:
  enum class Rate {
    First,    ///< at the beginning
    Highest,  ///< max_lr
    Last      ///< at the end
  };
  struct Phase {
    double end;
    Rate from;
    Rate to;
  };

  [[noreturn]] static void fail(const std::string& what) {
    throw Error(Status::InvalidArgument, "OneCycleLR: " + what);
  }

  template <typename Options, typename = void>
  struct HasBeta1 : std::false_type {};
  template <typename Options>
  struct HasBeta1<Options, std::void_t<decltype(std::declval<Options&>().beta1)>> : std::true_type {};

  template <typename Options>
  static double* momentum_of(Options& options) {
    if constexpr (HasBeta1<Options>::value) {
      return &options.beta1;
    } else {
      if (options.momentum == 0) fail("the optimizer has no momentum: give it one, or set cycle_momentum to false");
      return &options.momentum;
    }
  }

  double rate(Rate which) const {
    if (which == Rate::Highest) return max_lr_;
    const double first = max_lr_ / options_.div_factor;
    return which == Rate::First ? first : first / options_.final_div_factor;
  }
  double momentum(Rate which) const { return which == Rate::Highest ? options_.base_momentum : options_.max_momentum; }

  double between(double from, double to, double part) const {
    if (options_.linear) return (to - from) * part + from;
    return to + (from - to) / 2 * (std::cos(3.141592653589793 * part) + 1);
  }
  template <typename Value>
  double at_this_step(const Value& value) const {
    const auto step = static_cast<double>(last_epoch());
    double start = 0;
    std::size_t i = 0;
    for (; i + 1 < phases_.size() && step > phases_[i].end; ++i) start = phases_[i].end;
    const Phase& phase = phases_[i];
    return between(value(phase.from), value(phase.to), (step - start) / (phase.end - start));
  }

  double first(std::size_t group) const override { return next(group); }
  double restarted(std::size_t group) const override { return next(group); }
  double next(std::size_t /*group*/) const override {
    if (last_epoch() > total_) {
      fail("step " + std::to_string(last_epoch()) + " of a cycle of " + std::to_string(total_) + " steps");
    }
    return at_this_step([this](Rate which) { return rate(which); });
  }
  void changed() override {
    for (double* each : momenta_) *each = at_this_step([this](Rate which) { return momentum(which); });
  }

  double max_lr_;
  std::int64_t total_;
  OneCycleOptions options_;
  std::vector<Phase> phases_;
  std::vector<double*> momenta_;  // in the optimizer's options; empty if they stay
};

}  // namespace ddp
