// SPDX-License-Identifier: BSD-3-Clause
/// @file
/// AdamW: Adam with decoupled weight decay (Loshchilov and Hutter 2019).
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include "ddp/ddp.h"
#include "ddp/error.hpp"
#include "ddp/optimizer.hpp"

namespace ddp {

/// Options of AdamW, with the names and defaults of torch.optim.AdamW.
struct AdamWOptions {
  double lr = 1e-3;            ///< learning rate
  double beta1 = 0.9;          ///< share of the gradients' running mean that is kept
  double beta2 = 0.999;        ///< share of the running mean of their squares that is kept
  double eps = 1e-8;           ///< added to the divisor
  double weight_decay = 1e-2;  ///< each step multiplies values by 1 - lr * weight_decay
  bool maximize = false;       ///< whether steps go up
};

namespace detail {
// What Adam and AdamW share: all but the name and where the weight decay goes.
template <typename AdamLikeOptions, ddp_status (*kStep)(const ddp_adamw_options*, const ddp_adamw_arrays*)>
struct AdamLikeRule {
  using Options = AdamLikeOptions;
  static constexpr std::array<const char*, 2> kStates = {"exp_avg", "exp_avg_sq"};
  static std::size_t state_count(const Options& /*options*/) { return 2; }
  static void step(const Options& o, std::int64_t step, const StepArrays& a) {
    const ddp_adamw_options numbers = {sizeof(ddp_adamw_options), o.lr, o.beta1, o.beta2, o.eps, o.weight_decay,
                                       o.maximize ? 1 : 0,        step};
    const ddp_adamw_arrays arrays = {a.value, a.grad, a.states[0], a.states[1], a.updated, a.count, a.dtype};
    check(kStep(&numbers, &arrays));
  }
};

struct AdamWRule : AdamLikeRule<AdamWOptions, &ddp_adamw_step> {
  static constexpr const char* kName = "AdamW";
};
}  // namespace detail

/// AdamW, without amsgrad. Its state, "exp_avg" and "exp_avg_sq", is twice as large as the
/// parameters. Source: torch.optim.AdamW, whose order of operations it keeps.
using AdamW = Optimizer<detail::AdamWRule>;

}  // namespace ddp
