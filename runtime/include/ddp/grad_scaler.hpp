// SPDX-License-Identifier: BSD-3-Clause
/// @file
/// Dynamic loss scaling, for gradients of 16 bits: a loss that is scaled up keeps small gradients from becoming zero;
/// where they overflow the step is left out, and the scale becomes smaller. The rules of torch.amp.GradScaler.
///
///     ddp::GradScaler scaler({}, session.world());
///     for (;;) {
///       backward(scaler.scale(loss));
///       scaler.unscale(optimizer);                        // to clip; else step() does it
///       ddp::clip_grad_norm(optimizer.parameters(), 1);
///       scaler.step(optimizer);                           // unless a gradient has overflowed, on any rank
///       scaler.update();
///     }
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "ddp/buffer.hpp"
#include "ddp/ddp.h"
#include "ddp/error.hpp"
#include "ddp/master_weights.hpp"
#include "ddp/parameter.hpp"
#include "ddp/process_group.hpp"

namespace ddp {

/// How the scale begins, grows and falls. By default as torch.amp.GradScaler's.
struct GradScalerOptions {
  float init_scale = 65536;                                  ///< 2 to the power of 16
  double growth_factor = 2;                                  ///< above 1
  double backoff_factor = 0.5;                               ///< below 1
  int growth_interval = 2000;                                ///< so many steps without overflow, and the scale grows
  float min_scale = 0;                                       ///< it does not fall below
  float max_scale = std::numeric_limits<float>::infinity();  ///< nor grow beyond
  bool enabled = true;                                       ///< false: the scale is 1, every step is taken

  /// As apex's dynamic loss scale of its opt levels O1 and O2: at most 2 to the power of 24.
  static GradScalerOptions apex() {
    GradScalerOptions options;
    options.max_scale = 16777216;
    return options;
  }
};

/// All that a scaler has to remember from one run to the next; the entries of torch.amp.GradScaler.state_dict().
struct GradScalerState {
  float scale = 65536;          ///< the current one
  double growth_factor = 2;     ///< see GradScalerOptions
  double backoff_factor = 0.5;  ///< likewise
  int growth_interval = 2000;   ///< likewise
  int growth_tracker = 0;       ///< steps without overflow since the scale last changed
};

/// Scales a loss, and decides which steps are taken. What it unscales is named by the object that has the gradients: an
/// optimizer (anything with parameters() and step()), MasterWeights, or a vector of Parameters; each has its turn once
/// between two calls of update(). One thread at a time. torch.amp.GradScaler.
class GradScaler {
 public:
  /// With a group, its ranks decide alike: unscaling is a collective then, by which all learn whether one of them found
  /// an overflow. Without one each decides by itself, which is as good where all ranks have the same gradients. Throws
  /// Error with Status::InvalidArgument for factors that could not work.
  explicit GradScaler(const GradScalerOptions& options = {}, ProcessGroup group = {})
      : options_(options), group_(group), scale_(options.init_scale) {
    if (options.growth_factor <= 1) fail("growth_factor must be above 1");
    if (options.backoff_factor >= 1) fail("backoff_factor must be below 1");
    if (options.growth_interval < 1) fail("growth_interval must be at least 1");
  }

  /// The loss, or what else backward begins with, times the scale.
  template <typename T>
  T scale(T loss) const {
    return options_.enabled ? loss * static_cast<T>(scale_) : loss;
  }
  /// The current scale; 1 if not enabled.
  float get_scale() const { return options_.enabled ? scale_ : 1; }
  /// Is any of this done?
  bool is_enabled() const { return options_.enabled; }

  /// Divides gradients by the scale, to look at them or clip them before step(). Of MasterWeights: the masters' become
  /// the model's divided by the scale, while those of the model stay as they are. Once between two calls of update(),
  /// else Error with Status::InvalidArgument; also for gradients of DType::Float16, whose small values that would make
  /// zeros again: give the optimizer MasterWeights. Collective if there is a group.
  template <typename Gradients>
  void unscale(Gradients& gradients) {
    const Stage stage = stage_of(&gradients);
    if (options_.enabled && stage == Stage::Unscaled) fail("unscale() was called twice for the same gradients");
    if (options_.enabled && stage == Stage::Stepped) fail("unscale() was called after step()");
    std::int32_t found_inf = unscale_all(gradients) ? 0 : 1;
    if (options_.enabled && group_) group_.all_reduce({&found_inf, 1}, ReduceOp::Max);
    turns_[&gradients] = {Stage::Unscaled, options_.enabled && found_inf != 0};
  }

  /// Unscales what was not yet, then calls take_step() unless a gradient was infinite or not a number, on any rank of
  /// the group. True: it was called. Once between two calls of update().
  template <typename Gradients, typename Step>
  bool step(Gradients& gradients, Step&& take_step) {
    if (stage_of(&gradients) == Stage::Stepped) fail("step() was called twice for the same gradients: call update()");
    if (stage_of(&gradients) == Stage::Ready) unscale(gradients);
    Turn& turn = turns_[&gradients];
    turn.stage = options_.enabled ? Stage::Stepped : Stage::Ready;
    if (turn.found_inf) return false;
    take_step();
    return true;
  }
  /// The same with optimizer.step().
  template <typename Optimizer>
  bool step(Optimizer& optimizer) {
    return step(optimizer, [&] { optimizer.step(); });
  }

  /// At the end of an iteration: the scale falls if an overflow was found in it, and grows after growth_interval
  /// iterations without one. Throws Error with Status::InvalidArgument if nothing was unscaled.
  void update() {
    const auto turns = std::exchange(turns_, {});
    if (!options_.enabled) return;
    if (turns.empty()) fail("update() was called before anything was unscaled");
    if (std::any_of(turns.begin(), turns.end(), [](const auto& turn) { return turn.second.found_inf; })) {
      set_scale(scale_ * options_.backoff_factor);
      growth_tracker_ = 0;
    } else if (++growth_tracker_ == options_.growth_interval) {
      set_scale(scale_ * options_.growth_factor);
      growth_tracker_ = 0;
    }
  }
  /// Ends the iteration with a scale of the caller's.
  void update(float new_scale) {
    turns_.clear();
    scale_ = new_scale;
  }

  /// For a checkpoint; after update().
  GradScalerState state_dict() const {
    return {scale_, options_.growth_factor, options_.backoff_factor, options_.growth_interval, growth_tracker_};
  }
  /// Goes on from there. Limits stay those of this scaler's options.
  void load_state_dict(const GradScalerState& state) {
    scale_ = state.scale;
    options_.growth_factor = state.growth_factor;
    options_.backoff_factor = state.backoff_factor;
    options_.growth_interval = state.growth_interval;
    growth_tracker_ = state.growth_tracker;
  }

 private:
  enum class Stage {
    Ready,     ///< gradients are times the scale
    Unscaled,  ///< and are not any more
    Stepped    ///< nothing is to be done before update()
  };
  struct Turn {
    Stage stage = Stage::Ready;
    bool found_inf = false;
  };

  [[noreturn]] static void fail(const std::string& what) {
    throw Error(Status::InvalidArgument, "GradScaler: " + what);
  }

  Stage stage_of(const void* gradients) const {
    const auto turn = turns_.find(gradients);
    return turn == turns_.end() ? Stage::Ready : turn->second.stage;
  }

  // These tell whether all gradients are finite.
  template <typename Optimizer>
  bool unscale_all(Optimizer& optimizer) const {
    return unscale_all(optimizer.parameters());
  }
  bool unscale_all(MasterWeights& master) const { return master.read_gradients(inverse()); }
  bool unscale_all(std::vector<Parameter>& parameters) const { return unscale_all(std::as_const(parameters)); }
  bool unscale_all(const std::vector<Parameter>& parameters) const {
    std::int32_t found_inf = 0;
    for (const Parameter& p : parameters) {
      if (p.grad == nullptr || !options_.enabled) continue;
      if (p.dtype == DType::Float16) {
        fail("gradient " + p.name + " is float16, where small values unscaled are zeros: unscale MasterWeights");
      }
      const ddp_buffer grad = detail::gradient_of(p).c();
      detail::check(ddp_buffer_multiply(grad, grad, inverse(), &found_inf));
    }
    return found_inf == 0;
  }

  // In 64 bits, then rounded, as torch does.
  double inverse() const { return static_cast<float>(1 / static_cast<double>(get_scale())); }

  void set_scale(double scale) {
    const auto rounded = static_cast<float>(scale);
    if (std::isfinite(rounded)) scale_ = std::min(std::max(rounded, options_.min_scale), options_.max_scale);
  }

  GradScalerOptions options_;
  ProcessGroup group_;
  float scale_;
  int growth_tracker_ = 0;
  std::map<const void*, Turn> turns_;  // of what was unscaled since the last update(), by its address
};

}  // namespace ddp
