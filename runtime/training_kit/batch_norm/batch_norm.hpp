// SPDX-License-Identifier: BSD-3-Clause
// The passes of batch normalisation over a batch in host memory: sums per channel, and the
// arithmetic on each element. Plain functions that know nothing of ranks. Elements are float32,
// float64, float16 or bfloat16; everything is computed in double.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "runtime/training_kit/batch_norm/batch_norm_math.hpp"

namespace ddp::training {

// Layout of a batch: rows x channels x length as in PyTorch, or rows x length x channels.
struct BatchShape {
  std::size_t rows = 0;
  std::size_t channels = 1;
  std::size_t length = 1;
  bool channels_last = false;

  std::size_t per_channel() const { return rows * length; }
  std::size_t count() const { return rows * channels * length; }
};

// Sums of the output's gradient dy over the values of one channel.
struct GradientSums {
  double dy = 0;
  double dy_distance = 0;  // sum of dy * (x - mean)
};

// The passes, and memory that they reuse. Every vector has one element per channel.
class BatchNormPasses {
 public:
  explicit BatchNormPasses(std::size_t channels) : block_(channels) {}

  // Reads the input once from memory: each block is used twice while it is in the cache.
  void moments(std::int32_t dtype, const void* input, const BatchShape& shape,
               std::vector<batch_norm::Moments>& moments);
  // output may be the same memory as input.
  static void normalise(std::int32_t dtype, const void* input, void* output, const BatchShape& shape,
                        const std::vector<batch_norm::Normalisation>& channels);
  static void gradient_sums(std::int32_t dtype, const void* input, const void* grad_output, const BatchShape& shape,
                            const std::vector<batch_norm::Normalisation>& channels, std::vector<GradientSums>& sums);
  // grad_input may be the same memory as grad_output.
  static void input_gradients(std::int32_t dtype, const void* input, const void* grad_output, void* grad_input,
                              const BatchShape& shape, const std::vector<batch_norm::InputGradient>& channels);

 private:
  std::vector<batch_norm::Moments> block_;
};

}  // namespace ddp::training
