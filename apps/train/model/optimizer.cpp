// SPDX-License-Identifier: BSD-3-Clause
#include "apps/train/model/optimizer.hpp"

namespace train {
namespace {
constexpr double kBeta2 = 0.99;  // runs are short: with 0.999 the first steps would count until the end
}  // namespace

std::vector<ddp::Parameter> ddp_parameters(Parameters& parameters) {
  std::vector<ddp::Parameter> result;
  for (Parameter& p : parameters) {
    result.emplace_back(p.name, p.value.data(), p.gradient.data(), p.value.size(), p.shape);
  }
  return result;
}

ddp::AdamW make_optimizer(Parameters& parameters, double weight_decay) {
  ddp::AdamW::Group matrices = {{}, {.beta2 = kBeta2, .weight_decay = weight_decay}};
  ddp::AdamW::Group others = {{}, {.beta2 = kBeta2, .weight_decay = 0}};
  for (ddp::Parameter& p : ddp_parameters(parameters)) {
    (p.shape.size() > 1 ? matrices : others).parameters.push_back(std::move(p));
  }
  return ddp::AdamW({matrices, others});
}

}  // namespace train
