// SPDX-License-Identifier: BSD-3-Clause
#include "runtime/training_kit/batch_norm/batch_norm.hpp"

#include <algorithm>

#include "collectives/float16.hpp"
#include "ddp/c/training.h"

namespace ddp::training {
namespace {

using batch_norm::InputGradient;
using batch_norm::Moments;
using batch_norm::Normalisation;

// For each element type: how it is stored, and conversions from and to double.
struct Float32 {
  using Stored = float;
  static double get(float x) { return static_cast<double>(x); }
  static float put(double x) { return static_cast<float>(x); }
};
struct Float64 {
  using Stored = double;
  static double get(double x) { return x; }
  static double put(double x) { return x; }
};
struct Float16 {
  using Stored = std::uint16_t;
  static double get(std::uint16_t x) { return static_cast<double>(collectives::float16_to_float(x)); }
  static std::uint16_t put(double x) { return collectives::float_to_float16(static_cast<float>(x)); }
};
struct BFloat16 {
  using Stored = std::uint16_t;
  static double get(std::uint16_t x) { return static_cast<double>(collectives::bfloat16_to_float(x)); }
  static std::uint16_t put(double x) { return collectives::float_to_bfloat16(static_cast<float>(x)); }
};

template <typename Body>
void with_element(std::int32_t dtype, Body&& body) {
  switch (dtype) {
    case DDP_FLOAT32:
      return body(Float32{});
    case DDP_FLOAT64:
      return body(Float64{});
    case DDP_FLOAT16:
      return body(Float16{});
    default:
      return body(BFloat16{});
  }
}

template <typename Element>
const typename Element::Stored* stored(const void* data) {
  return static_cast<const typename Element::Stored*>(data);
}
template <typename Element>
typename Element::Stored* stored(void* data) {
  return static_cast<typename Element::Stored*>(data);
}

// A batch as contiguous lines. A line holds values of one channel, or one value of every channel.
struct Lines {
  explicit Lines(const BatchShape& shape)
      : across(shape.channels_last || shape.length == 1),
        count(across ? shape.rows * shape.length : shape.rows * shape.channels),
        length(across ? shape.channels : shape.length),
        channels(shape.channels) {}
  bool across;  // a line has one value of every channel
  std::size_t count;
  std::size_t length;
  std::size_t channels;
};

// Adds up terms in several lanes, so that one addition does not wait for the one before. The order
// is always the same.
constexpr std::size_t kLanes = 8;
template <typename Term>
double sum(std::size_t count, Term&& term) {
  double lanes[kLanes] = {};
  std::size_t i = 0;
  for (; i + kLanes <= count; i += kLanes) {
    for (std::size_t k = 0; k < kLanes; ++k) lanes[k] += term(i + k);
  }
  for (; i < count; ++i) lanes[0] += term(i);
  return ((lanes[0] + lanes[1]) + (lanes[2] + lanes[3])) + ((lanes[4] + lanes[5]) + (lanes[6] + lanes[7]));
}

template <typename Element>
Moments moments_of(const typename Element::Stored* x, std::size_t count) {
  const double n = static_cast<double>(count);
  const double mean = sum(count, [x](std::size_t i) { return Element::get(x[i]); }) / n;
  const double deviations = sum(count, [x, mean](std::size_t i) {
    const double distance = Element::get(x[i]) - mean;
    return distance * distance;
  });
  return {n, mean, deviations};
}

constexpr std::size_t kBlockElements = 4096;  // as float32, half of a small first-level cache

template <typename Element>
void moments_along(const typename Element::Stored* x, const Lines& lines, std::vector<Moments>& moments) {
  for (std::size_t i = 0; i < lines.count; ++i) {
    Moments& channel = moments[i % lines.channels];
    for (std::size_t at = 0; at < lines.length; at += kBlockElements) {
      channel =
          merge(channel, moments_of<Element>(x + i * lines.length + at, std::min(kBlockElements, lines.length - at)));
    }
  }
}

template <typename Element>
void moments_across(const typename Element::Stored* x, const Lines& lines, std::vector<Moments>& block,
                    std::vector<Moments>& moments) {
  const std::size_t rows_in_block = std::clamp<std::size_t>(kBlockElements / lines.length, 4, 512);
  for (std::size_t first = 0; first < lines.count; first += rows_in_block) {
    const std::size_t rows = std::min(rows_in_block, lines.count - first);
    std::fill(block.begin(), block.end(), Moments{static_cast<double>(rows), 0, 0});
    for (std::size_t r = 0; r < rows; ++r) {
      const auto* line = x + (first + r) * lines.length;
      for (std::size_t c = 0; c < lines.length; ++c) block[c].mean += Element::get(line[c]);
    }
    // Second pass, while the block is in the cache: squared deviations from the block's mean.
    for (Moments& channel : block) channel.mean /= channel.count;
    for (std::size_t r = 0; r < rows; ++r) {
      const auto* line = x + (first + r) * lines.length;
      for (std::size_t c = 0; c < lines.length; ++c) {
        const double distance = Element::get(line[c]) - block[c].mean;
        block[c].deviations += distance * distance;
      }
    }
    // Merge the block into the moments of the lines before it.
    for (std::size_t c = 0; c < lines.length; ++c) moments[c] = merge(moments[c], block[c]);
  }
}

}  // namespace

void BatchNormPasses::moments(std::int32_t dtype, const void* input, const BatchShape& shape,
                              std::vector<Moments>& moments) {
  std::fill(moments.begin(), moments.end(), Moments{});
  const Lines lines(shape);
  with_element(dtype, [&]<typename Element>(Element) {
    const auto* x = stored<Element>(input);
    if (lines.across) {
      moments_across<Element>(x, lines, block_, moments);
    } else {
      moments_along<Element>(x, lines, moments);
    }
  });
}

void BatchNormPasses::normalise(std::int32_t dtype, const void* input, void* output, const BatchShape& shape,
                                const std::vector<Normalisation>& channels) {
  const Lines lines(shape);
  with_element(dtype, [&]<typename Element>(Element) {
    for (std::size_t i = 0; i < lines.count; ++i) {
      const auto* x = stored<Element>(input) + i * lines.length;
      auto* y = stored<Element>(output) + i * lines.length;
      if (lines.across) {
        for (std::size_t c = 0; c < lines.length; ++c) y[c] = Element::put(channels[c](Element::get(x[c])));
        continue;
      }
      const Normalisation channel = channels[i % lines.channels];
      for (std::size_t l = 0; l < lines.length; ++l) y[l] = Element::put(channel(Element::get(x[l])));
    }
  });
}

void BatchNormPasses::gradient_sums(std::int32_t dtype, const void* input, const void* grad_output,
                                    const BatchShape& shape, const std::vector<Normalisation>& channels,
                                    std::vector<GradientSums>& sums) {
  std::fill(sums.begin(), sums.end(), GradientSums{});
  const Lines lines(shape);
  with_element(dtype, [&]<typename Element>(Element) {
    for (std::size_t i = 0; i < lines.count; ++i) {
      const auto* x = stored<Element>(input) + i * lines.length;
      const auto* dy = stored<Element>(grad_output) + i * lines.length;
      if (lines.across) {
        for (std::size_t c = 0; c < lines.length; ++c) {
          const double gradient = Element::get(dy[c]);
          sums[c].dy += gradient;
          sums[c].dy_distance += gradient * (Element::get(x[c]) - channels[c].mean);
        }
        continue;
      }
      const double mean = channels[i % lines.channels].mean;
      GradientSums& channel = sums[i % lines.channels];
      channel.dy += sum(lines.length, [dy](std::size_t l) { return Element::get(dy[l]); });
      channel.dy_distance +=
          sum(lines.length, [x, dy, mean](std::size_t l) { return Element::get(dy[l]) * (Element::get(x[l]) - mean); });
    }
  });
}

void BatchNormPasses::input_gradients(std::int32_t dtype, const void* input, const void* grad_output, void* grad_input,
                                      const BatchShape& shape, const std::vector<InputGradient>& channels) {
  const Lines lines(shape);
  with_element(dtype, [&]<typename Element>(Element) {
    for (std::size_t i = 0; i < lines.count; ++i) {
      const auto* x = stored<Element>(input) + i * lines.length;
      const auto* dy = stored<Element>(grad_output) + i * lines.length;
      auto* dx = stored<Element>(grad_input) + i * lines.length;
      if (lines.across) {
        for (std::size_t c = 0; c < lines.length; ++c) {
          dx[c] = Element::put(channels[c](Element::get(x[c]), Element::get(dy[c])));
        }
        continue;
      }
      const InputGradient channel = channels[i % lines.channels];
      for (std::size_t l = 0; l < lines.length; ++l) {
        dx[l] = Element::put(channel(Element::get(x[l]), Element::get(dy[l])));
      }
    }
  });
}

}  // namespace ddp::training
