// SPDX-License-Identifier: BSD-3-Clause
// Batch normalisation's passes over a batch in the host's memory: sums by channel and what is done to each element.
// Plain functions, no ranks. Elements are float32, float64, float16 or bfloat16; everything is computed in double.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "ddp/batch_norm_math.hpp"

namespace ddp::runtime {

// Where the values of a channel lie: rows x channels x length as PyTorch has it, or rows x length x channels.
struct BatchShape {
  std::size_t rows = 0;
  std::size_t channels = 1;
  std::size_t length = 1;
  bool channels_last = false;

  std::size_t per_channel() const { return rows * length; }
  std::size_t count() const { return rows * channels * length; }
};

// Sums of the output's gradient over the values of one channel.
struct GradientSums {
  double dy = 0;
  double dy_distance = 0;  // of dy * (x - mean)
};

// The passes, and memory that they reuse. Every vector has an element for each channel.
class BatchNormPasses {
 public:
  explicit BatchNormPasses(std::size_t channels) : block_(channels) {}

  // One pass over the memory: a block is looked at twice while it is in the cache.
  void moments(std::int32_t dtype, const void* input, const BatchShape& shape,
               std::vector<batch_norm::Moments>& moments);
  // output may be input.
  static void normalise(std::int32_t dtype, const void* input, void* output, const BatchShape& shape,
                        const std::vector<batch_norm::Normalisation>& channels);
  static void gradient_sums(std::int32_t dtype, const void* input, const void* grad_output, const BatchShape& shape,
                            const std::vector<batch_norm::Normalisation>& channels, std::vector<GradientSums>& sums);
  // grad_input may be grad_output.
  static void input_gradients(std::int32_t dtype, const void* input, const void* grad_output, void* grad_input,
                              const BatchShape& shape, const std::vector<batch_norm::InputGradient>& channels);

 private:
  std::vector<batch_norm::Moments> block_;
};

}  // namespace ddp::runtime
