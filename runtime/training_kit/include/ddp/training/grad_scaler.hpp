// SPDX-License-Identifier: BSD-3-Clause
/// @file
/// GradScaler: dynamic loss scaling, for gradients of 16 bits. A loss that is scaled up keeps small
/// gradients from becoming zero; if they overflow, the step is left out and the scale becomes
/// smaller. The rules are those of torch.amp.GradScaler.
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
#include <cstdint>
#include <limits>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "ddp/buffer.hpp"
#include "ddp/c/training.h"
#include "ddp/error.hpp"
#include "ddp/parameter.hpp"
#include "ddp/process_group.hpp"
#include "ddp/training/master_weights.hpp"

namespace ddp {

/// How the scale begins, grows and falls. The defaults are those of torch.amp.GradScaler.
struct GradScalerOptions {
  float init_scale = 65536;     ///< 2 to the power of 16
  double growth_factor = 2;     ///< above 1
  double backoff_factor = 0.5;  ///< below 1
  int growth_interval = 2000;   ///< number of steps without overflow after which the scale grows
  float min_scale = 0;          ///< lower limit of the scale
  float max_scale = std::numeric_limits<float>::infinity();  ///< upper limit of the scale
  bool enabled = true;                                       ///< false: the scale is 1, every step is taken

  /// Returns the options of a scale that never changes, such as 1024. A step whose gradients overflow is still left
  /// out.
  static GradScalerOptions fixed(float scale) {
    GradScalerOptions options;
    options.init_scale = options.min_scale = options.max_scale = scale;
    return options;
  }
  /// Returns the options of apex's dynamic loss scale in opt levels O1 and O2: at most 2 to the power
  /// of 24.
  static GradScalerOptions apex() {
    GradScalerOptions options;
    options.max_scale = 16777216;
    return options;
  }
};

/// State of a scaler for a checkpoint; the entries of torch.amp.GradScaler.state_dict().
struct GradScalerState {
  float scale = 65536;          ///< current scale
  double growth_factor = 2;     ///< as in GradScalerOptions
  double backoff_factor = 0.5;  ///< as in GradScalerOptions
  int growth_interval = 2000;   ///< as in GradScalerOptions
  int growth_tracker = 0;       ///< steps without overflow since the scale last changed
};

/// Scales a loss, and decides which steps are taken. Its functions take the object that has the
/// gradients: an optimizer (anything with parameters() and step()), MasterWeights, or a vector of
/// Parameters; each is used once between two calls of update(). One thread at a time. Source:
/// torch.amp.GradScaler.
class GradScaler {
 public:
  /// Makes a scaler. With a group, its ranks decide alike: unscaling is then a collective by which
  /// all learn whether one of them found an overflow. Without a group each rank decides by itself,
  /// which is enough where all have the same gradients. Throws Error with Status::InvalidArgument
  /// for factors that cannot work.
  explicit GradScaler(const GradScalerOptions& options = {}, ProcessGroup group = {})
      : options_(options), group_(group), scale_(options.init_scale) {
    if (options.growth_factor <= 1) fail("growth_factor must be above 1");
    if (options.backoff_factor >= 1) fail("backoff_factor must be below 1");
    if (options.growth_interval < 1) fail("growth_interval must be at least 1");
  }

  /// Returns the loss, or whatever backward begins with, times the scale.
  template <typename T>
  T scale(T loss) const {
    return options_.enabled ? loss * static_cast<T>(scale_) : loss;
  }
  /// Returns the current scale; 1 if not enabled.
  float get_scale() const { return options_.enabled ? scale_ : 1; }
  /// Returns whether scaling is enabled.
  bool is_enabled() const { return options_.enabled; }

  /// Divides gradients by the scale, to inspect or clip them before step(). For MasterWeights, the
  /// masters' gradients become the model's divided by the scale, and the model's stay as they are.
  /// Collective if there is a group. Throws Error with Status::InvalidArgument if called twice
  /// between two calls of update(), and for gradients of DType::Float16, whose small values would
  /// become zeros again: give the optimizer MasterWeights.
  template <typename Gradients>
  void unscale(Gradients& gradients) {
    unscale_by(&gradients, [&] {
      std::int32_t found_inf = unscale_all(gradients) ? 0 : 1;
      if (options_.enabled && group_) group_.all_reduce({&found_inf, 1}, ReduceOp::Max);
      return found_inf == 0;
    });
  }

  /// Unscales the gradients if unscale() was not called, then calls take_step() unless a gradient was
  /// infinite or not a number on any rank of the group. Returns whether it was called. Once between
  /// two calls of update().
  template <typename Gradients, typename Step>
  bool step(Gradients& gradients, Step&& take_step) {
    return step_by(
        &gradients, [&] { unscale(gradients); }, take_step);
  }
  /// Calls optimizer.step() as the overload above calls take_step().
  template <typename Optimizer>
  bool step(Optimizer& optimizer) {
    return step(optimizer, [&] { optimizer.step(); });
  }

  /// Ends an iteration: the scale falls if an overflow was found in it, and grows after
  /// growth_interval iterations without one. Throws Error with Status::InvalidArgument if nothing
  /// was unscaled.
  void update() {
    const auto turns = std::exchange(turns_, {});
    if (!options_.enabled) return;
    if (turns.empty()) fail("update() was called before anything was unscaled");
    if (std::any_of(turns.begin(), turns.end(), [](const auto& turn) { return turn.second.found_inf; })) {
      multiply_scale(options_.backoff_factor);
      growth_tracker_ = 0;
    } else if (++growth_tracker_ == options_.growth_interval) {
      multiply_scale(options_.growth_factor);
      growth_tracker_ = 0;
    }
  }
  /// Ends an iteration and sets the scale.
  void update(float new_scale) {
    turns_.clear();
    scale_ = new_scale;
  }

  /// Returns the state for a checkpoint; call it after update().
  GradScalerState state_dict() const {
    return {scale_, options_.growth_factor, options_.backoff_factor, options_.growth_interval, growth_tracker_};
  }
  /// Restores a state. The limits stay those of this scaler's options.
  void load_state_dict(const GradScalerState& state) {
    scale_ = state.scale;
    options_.growth_factor = state.growth_factor;
    options_.backoff_factor = state.backoff_factor;
    options_.growth_interval = state.growth_interval;
    growth_tracker_ = state.growth_tracker;
  }

 protected:
  /// Unscales the gradients at an address, as unscale() does. divide() divides them, and returns whether all of them
  /// are finite on every rank.
  template <typename Divide>
  void unscale_by(const void* gradients, Divide&& divide) {
    const Stage stage = stage_of(gradients);
    if (options_.enabled && stage == Stage::Unscaled) fail("unscale() was called twice for the same gradients");
    if (options_.enabled && stage == Stage::Stepped) fail("unscale() was called after step()");
    const bool are_finite = divide();
    turns_[gradients] = {Stage::Unscaled, options_.enabled && !are_finite};
  }
  /// Steps with the gradients at an address, as step() does: calls unscale() if it was not called, and take_step()
  /// unless a gradient was not finite.
  template <typename Unscale, typename Step>
  bool step_by(const void* gradients, Unscale&& unscale, Step&& take_step) {
    if (stage_of(gradients) == Stage::Stepped) fail("step() was called twice for the same gradients: call update()");
    if (stage_of(gradients) == Stage::Ready) unscale();
    Turn& turn = turns_[gradients];
    turn.stage = options_.enabled ? Stage::Stepped : Stage::Ready;
    if (turn.found_inf) return false;
    take_step();
    return true;
  }
  /// Throws Error with Status::InvalidArgument.
  [[noreturn]] static void fail(const std::string& what) {
    throw Error(Status::InvalidArgument, "GradScaler: " + what);
  }
  /// Returns 1 / scale, computed in 64 bits, then rounded, as torch does.
  double inverse() const { return static_cast<float>(1 / static_cast<double>(get_scale())); }

 private:
  enum class Stage {
    Ready,     ///< gradients are times the scale
    Unscaled,  ///< gradients are divided by the scale
    Stepped    ///< step() was called
  };
  struct Turn {
    Stage stage = Stage::Ready;
    bool found_inf = false;
  };

  Stage stage_of(const void* gradients) const {
    const auto turn = turns_.find(gradients);
    return turn == turns_.end() ? Stage::Ready : turn->second.stage;
  }

  // Unscale, and return whether all gradients are finite.
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

  void multiply_scale(double factor) {
    detail::check(ddp_loss_scale_update(scale_, factor, options_.min_scale, options_.max_scale, &scale_));
  }

  GradScalerOptions options_;
  ProcessGroup group_;
  float scale_;
  int growth_tracker_ = 0;
  std::map<const void*, Turn> turns_;  // by the address of what was unscaled since the last update()
};

}  // namespace ddp
