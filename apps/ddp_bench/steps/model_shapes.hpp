// SPDX-License-Identifier: BSD-3-Clause
// Parameters of well-known models as data-parallel training sees them: the number of elements, and the part of
// backward's time between the gradient before it and this one.
#pragma once

#include <array>
#include <cstddef>
#include <string>
#include <vector>

namespace ddp::bench {

struct ParameterShape {
  std::string name;
  std::size_t count = 0;  // elements
  double share = 0;       // part of backward's time; the shares of a model sum to 1
};

inline constexpr std::array<const char*, 3> kModelNames = {"resnet18", "gpt2", "mlp"};

// Returns the parameters in the order of the model's constructor, which is the reverse of backward's.
//   resnet18   11.7 million, images of 224 x 224: time goes by multiplications, so evenly over the depth
//   gpt2       124 million, the small one; the output layer shares the embedding's weights, whose gradient comes last
//   mlp        half a million; for a quick try
std::vector<ParameterShape> model_shapes(const std::string& name);

}  // namespace ddp::bench
