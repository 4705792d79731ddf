// SPDX-License-Identifier: BSD-3-Clause
/// @file
/// GradScaler on a GPU: dynamic loss scaling whose scale, and whether a gradient has overflowed, stay on the device. No
/// step makes the host wait. The rules are those of torch.amp.GradScaler.
///
///     ddp::cuda::GradScaler scaler(device);
///     for (;;) {
///       backward<<<...>>>(scaler.scale_address());        // begins with the loss times *scale_address()
///       scaler.unscale(master);                           // a MasterWeights, or an optimizer of float32
///       norm.clip(1);
///       scaler.step(optimizer);                           // left out on the device if a gradient has overflowed
///       master.write_values();
///       scaler.update();
///     }
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "ddp/buffer.hpp"
#include "ddp/cuda/master_weights.hpp"
#include "ddp/cuda/parameters.hpp"
#include "ddp/ddp.h"
#include "ddp/error.hpp"
#include "ddp/grad_scaler.hpp"
#include "ddp/parameter.hpp"
#include "ddp/process_group.hpp"
#include "ddp/reduction.hpp"
#include "ddp/work.hpp"

namespace ddp::cuda {

/// Scales a loss on a GPU, and leaves out steps there. Gradients are unscaled once, and steps taken after that, between
/// two calls of update(). One thread at a time, on one stream. Source: torch.amp.GradScaler; ddp::GradScaler on the
/// CPU.
class GradScaler {
 public:
  /// Makes a scaler. With a group, ranks share what they found: a step is left out on all of them if one has an
  /// overflow; that takes a reduction of one float. Without a group each rank decides by itself, which is enough where
  /// all have the same gradients. Throws Error: Status::InvalidArgument for factors that cannot work, and for options
  /// that are not enabled; Status::System where libddp has no kernels. The host waits.
  explicit GradScaler(int device, const GradScalerOptions& options = {}, ProcessGroup group = {})
      : device_(device), options_(options), group_(group) {
    if (!options.enabled) fail("enabled must be true: leave out the scaler where there is none");
    const ddp_cuda_scaler_state state = state_of(options.init_scale, 0);
    ddp_cuda_scaler* made = nullptr;
    ddp::detail::check(ddp_cuda_scaler_create(device, &state, &made));
    scaler_.reset(made);
  }

  /// Returns the address of the scale on the GPU, a float, which the program's kernel multiplies the loss by.
  const float* scale_address() const {
    void* scale = nullptr;
    ddp::detail::check(ddp_cuda_scaler_addresses(scaler_.get(), &scale, nullptr));
    return static_cast<const float*>(scale);
  }

  /// Divides the masters' gradients by the scale, reading the model's. Collective if there is a group. Throws Error
  /// with Status::InvalidArgument if called twice between two calls of update().
  void unscale(const MasterWeights& master) {
    begin_turn(&master);
    unscale_pairs(master.gradient_pairs());
  }
  /// Divides an optimizer's gradients by the scale, in place: float32, float64 or bfloat16. The first call for an
  /// optimizer makes the host wait.
  template <typename Optimizer>
  void unscale(const Optimizer& optimizer) {
    begin_turn(&optimizer);
    unscale_pairs(pairs_of(&optimizer, optimizer.parameters()));
  }

  /// Enqueues the optimizer's step, which the device leaves out, and does not count, if a gradient was infinite or not
  /// a number, whichever of those that were unscaled since the last update(). Throws Error with Status::InvalidArgument
  /// if nothing was unscaled since the last update().
  template <typename Optimizer>
  void step(Optimizer& optimizer) {
    if (unscaled_.empty()) fail("step() was called before unscale()");
    optimizer.step_unless_overflow(scaler_.get());
  }

  /// Ends an iteration: the scale falls if an overflow was found in it, and grows after growth_interval iterations
  /// without one. Throws Error with Status::InvalidArgument if nothing was unscaled.
  void update() {
    if (unscaled_.empty()) fail("update() was called before anything was unscaled");
    unscaled_.clear();
    ddp::detail::check(ddp_cuda_scaler_update(scaler_.get()));
  }

  /// Returns the current scale. The host waits for the current stream.
  float get_scale() const { return read().scale; }
  /// Returns the state for a checkpoint; call it after update(). The host waits for the current stream.
  GradScalerState state_dict() const {
    const ddp_cuda_scaler_state s = read();
    return {s.scale, s.growth_factor, s.backoff_factor, s.growth_interval, s.growth_tracker};
  }
  /// Restores a state. The limits stay those of this scaler's options.
  void load_state_dict(const GradScalerState& state) {
    options_.growth_factor = state.growth_factor;
    options_.backoff_factor = state.backoff_factor;
    options_.growth_interval = state.growth_interval;
    const ddp_cuda_scaler_state s = state_of(state.scale, state.growth_tracker);
    ddp::detail::check(ddp_cuda_scaler_write(scaler_.get(), &s));
  }

 private:
  struct Deleter {
    void operator()(ddp_cuda_scaler* scaler) const { ddp_cuda_scaler_destroy(scaler); }
  };
  using Pairs = std::unique_ptr<ddp_cuda_pairs, detail::PairsDeleter>;
  // Pairs of an optimizer's gradients with themselves, and the addresses and sizes that they were made of.
  struct InPlace {
    std::vector<std::pair<void*, std::size_t>> gradients;
    Pairs pairs;
  };

  [[noreturn]] static void fail(const std::string& what) {
    throw Error(Status::InvalidArgument, "GradScaler: " + what);
  }

  ddp_cuda_scaler_state state_of(float scale, int growth_tracker) const {
    return {sizeof(ddp_cuda_scaler_state),
            options_.growth_factor,
            options_.backoff_factor,
            scale,
            options_.min_scale,
            options_.max_scale,
            0,
            options_.growth_interval,
            growth_tracker};
  }
  ddp_cuda_scaler_state read() const {
    ddp_cuda_scaler_state state = {};
    ddp::detail::check(ddp_cuda_scaler_read(scaler_.get(), &state));
    return state;
  }

  void begin_turn(const void* gradients) {
    if (!unscaled_.insert(gradients).second) fail("unscale() was called twice for the same gradients");
  }
  void unscale_pairs(const ddp_cuda_pairs* pairs) {
    ddp::detail::check(ddp_cuda_unscale(pairs, scaler_.get()));
    if (!group_) return;
    void* found_inf = nullptr;
    ddp::detail::check(ddp_cuda_scaler_addresses(scaler_.get(), nullptr, &found_inf));
    group_.all_reduce(Buffer(found_inf, 1, DType::Float32, {DeviceKind::Cuda, device_}), ReduceOp::Max);
  }

  const ddp_cuda_pairs* pairs_of(const void* optimizer, const std::vector<Parameter>& parameters) {
    InPlace& it = in_place_[optimizer];
    std::vector<std::pair<void*, std::size_t>> gradients;
    std::vector<ddp_buffer> buffers;
    for (const Parameter& p : parameters) {
      if (p.grad == nullptr) continue;
      if (p.dtype == DType::Float16) {
        fail("gradient " + p.name + " is float16, where small values unscaled are zeros: unscale MasterWeights");
      }
      gradients.emplace_back(p.grad, p.count * element_size(p.dtype));
      buffers.push_back(ddp::detail::gradient_of(p).c());
    }
    if (it.pairs != nullptr && it.gradients == gradients) return it.pairs.get();
    ddp_cuda_pairs* made = nullptr;
    ddp::detail::check(ddp_cuda_pairs_create(device_, buffers.data(), buffers.data(), buffers.size(), &made));
    it.pairs.reset(made);
    it.gradients = std::move(gradients);
    return made;
  }

  int device_;
  GradScalerOptions options_;
  ProcessGroup group_;
  std::unique_ptr<ddp_cuda_scaler, Deleter> scaler_;
  std::set<const void*> unscaled_;           // addresses, since the last update()
  std::map<const void*, InPlace> in_place_;  // by the address of the optimizer
};

}  // namespace ddp::cuda
