// SPDX-License-Identifier: BSD-3-Clause
/// @file
/// Adam (Kingma and Ba 2015), whose weight decay goes into the gradients. AdamW (adamw.hpp) decays the weights.
#pragma once

#include "ddp/adamw.hpp"
#include "ddp/ddp.h"
#include "ddp/optimizer.hpp"

namespace ddp {

/// Options of Adam, with the names and defaults of torch.optim.Adam.
struct AdamOptions {
  double lr = 1e-3;         ///< learning rate
  double beta1 = 0.9;       ///< share of the gradients' running mean that is kept
  double beta2 = 0.999;     ///< share of the running mean of their squares that is kept
  double eps = 1e-8;        ///< added to the divisor
  double weight_decay = 0;  ///< added to the gradient, times the value
  bool maximize = false;    ///< whether steps go up
};

namespace detail {
struct AdamRule : AdamLikeRule<AdamOptions, &ddp_adam_step> {
  static constexpr const char* kName = "Adam";
};
}  // namespace detail

/// Adam, without amsgrad. Its state, "exp_avg" and "exp_avg_sq", is twice as large as the
/// parameters. Source: torch.optim.Adam, whose order of operations it keeps.
using Adam = Optimizer<detail::AdamRule>;

}  // namespace ddp
