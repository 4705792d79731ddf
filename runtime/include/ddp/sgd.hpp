// SPDX-License-Identifier: BSD-3-Clause
/// @file
/// SGD: stochastic gradient descent, with momentum or without.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include "ddp/ddp.h"
#include "ddp/error.hpp"
#include "ddp/optimizer.hpp"

namespace ddp {

/// Options of SGD, with the names and defaults of torch.optim.SGD.
struct SGDOptions {
  double lr = 1e-3;         ///< learning rate
  double momentum = 0;      ///< share of the last direction that is kept; either 0 in all steps or in none
  double dampening = 0;     ///< share of the gradient that is left out when there is momentum
  double weight_decay = 0;  ///< added to the gradient, times the value
  bool nesterov = false;    ///< Nesterov's momentum; needs a momentum, and no dampening
  bool maximize = false;    ///< whether steps go up
};

namespace detail {
struct SGDRule {
  using Options = SGDOptions;
  static constexpr const char* kName = "SGD";
  static constexpr std::array<const char*, 1> kStates = {"momentum_buffer"};
  static std::size_t state_count(const Options& options) { return options.momentum != 0 ? 1 : 0; }
  static void step(const Options& o, std::int64_t step, const StepArrays& a) {
    const ddp_sgd_options numbers = {
        sizeof(ddp_sgd_options), o.lr, o.momentum, o.dampening, o.weight_decay, o.nesterov ? 1 : 0,
        o.maximize ? 1 : 0,      step};
    const ddp_sgd_arrays arrays = {a.value, a.grad, a.states[0], a.updated, a.count, a.dtype};
    check(ddp_sgd_step(&numbers, &arrays));
  }
};
}  // namespace detail

/// SGD: stochastic gradient descent. Its state is "momentum_buffer", if there is momentum. Source:
/// torch.optim.SGD, whose order of operations it keeps.
using SGD = Optimizer<detail::SGDRule>;

}  // namespace ddp
