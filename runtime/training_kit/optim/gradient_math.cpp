// SPDX-License-Identifier: BSD-3-Clause
#include "runtime/training_kit/optim/gradient_math.hpp"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstring>
#include <string>
#include <type_traits>

#include "collectives/element_types.hpp"
#include "runtime/training_kit/checks.hpp"

namespace ddp::training {
namespace {

using collectives::run_on;
using collectives::VectorUnit;

constexpr std::size_t kLanes = 16;    // partial sums, updated side by side
constexpr std::size_t kBlock = 4096;  // 16-bit elements widened at a time, few enough for the first-level cache
static_assert(kBlock % kLanes == 0);  // so that splitting into blocks does not change the order of additions
using Block = std::array<float, kBlock>;

enum class Norm { Sum, Squares, Largest, Power };

// Returns the kind of norm that this number stands for.
Norm norm_of(double norm_type) {
  if (norm_type == 1) return Norm::Sum;
  if (norm_type == 2) return Norm::Squares;
  if (std::isinf(norm_type) && norm_type > 0) return Norm::Largest;
  if (norm_type > 0) return Norm::Power;
  refuse("norm: there is no norm of type " + std::to_string(norm_type) + ": give a number above 0, or infinity");
}

void check_floating_point(const char* what, const ddp_buffer& buffer) {
  check_buffer(what, buffer);
  if (!collectives::is_floating_point(buffer.dtype)) {
    refuse(std::string(what) + ": works on floating point, not on " + dtype_name(buffer.dtype));
  }
}

void check_pair(const ddp_buffer& from, const ddp_buffer& to) {
  check_floating_point("multiply", from);
  check_floating_point("multiply", to);
  if (from.count != to.count) {
    refuse("multiply: from " + std::to_string(from.count) + " elements to " + std::to_string(to.count));
  }
  if (from.dtype != to.dtype && from.dtype != DDP_FLOAT32 && to.dtype != DDP_FLOAT32) {
    refuse(std::string("multiply: not from ") + dtype_name(from.dtype) + " to " + dtype_name(to.dtype) +
           ": convert through float32");
  }
}

ddp_buffer part(const ddp_buffer& buffer, std::size_t first, std::size_t count) {
  void* const data = static_cast<std::byte*>(buffer.data) + first * collectives::element_size(buffer.dtype);
  return {data, count, buffer.dtype, buffer.device};
}
ddp_buffer whole(Block& block, std::size_t count) { return {block.data(), count, DDP_FLOAT32, {DDP_CPU, 0}}; }

void convert(const ddp_buffer& from, const ddp_buffer& to) { detail::check(ddp_buffer_convert(from, to)); }

// Calls body(first, count) for each block in turn.
template <typename Body>
void for_each_block(std::size_t count, const Body& body) {
  for (std::size_t first = 0; first < count; first += kBlock) body(first, std::min(kBlock, count - first));
}

// Multiplies in place. Returns whether all results are finite.
struct Multiply {
  template <typename T>
  [[gnu::always_inline]] static bool run(T* values, std::size_t count, T factor) {
    using Bits = std::conditional_t<sizeof(T) == 4, std::uint32_t, std::uint64_t>;
    constexpr Bits kExponent = sizeof(T) == 4 ? Bits{0x7f800000U} : Bits(0x7ff0000000000000U);
    Bits found = 0;
    for (std::size_t i = 0; i < count; ++i) {
      const T value = values[i] * factor;
      found |= static_cast<Bits>((std::bit_cast<Bits>(value) & kExponent) == kExponent);
      values[i] = value;
    }
    return found == 0;
  }
};

// kLanes numbers. The compiler splits them as the vector unit requires, and adds lane by lane on
// each.
template <typename T>
using Vector [[gnu::vector_size(kLanes * sizeof(T))]] = T;
using Lanes = std::array<double, kLanes>;

[[gnu::always_inline]] inline void add_powers(const Vector<double>& value, Norm norm, double exponent,
                                              Vector<double>& sum) {
  const Vector<double> magnitude = value < 0 ? -value : value;
  if (norm == Norm::Sum) {
    sum += magnitude;
  } else if (norm == Norm::Squares) {
    sum += value * value;
  } else if (norm == Norm::Largest) {
    sum = magnitude <= sum ? sum : (sum != sum ? sum : magnitude);  // a NaN fails the comparison, and stays
  } else {
    for (std::size_t lane = 0; lane < kLanes; ++lane) sum[lane] += std::pow(magnitude[lane], exponent);
  }
}

struct AddPowers {
  template <typename T>
  [[gnu::always_inline]] static void run(const T* values, std::size_t count, Norm norm, double exponent, Lanes* lanes) {
    Vector<double> sum;
    std::memcpy(&sum, lanes, sizeof sum);
    Vector<T> some;
    std::size_t i = 0;
    for (; i + kLanes <= count; i += kLanes) {
      std::memcpy(&some, values + i, sizeof some);
      add_powers(__builtin_convertvector(some, Vector<double>), norm, exponent, sum);
    }
    // The last lanes: missing numbers count as zeros.
    if (i < count) {
      some = Vector<T>{};
      std::memcpy(&some, values + i, (count - i) * sizeof(T));
      add_powers(__builtin_convertvector(some, Vector<double>), norm, exponent, sum);
    }
    std::memcpy(lanes, &sum, sizeof sum);
  }
};

// Combines sums one after the other, so that the order is fixed. NaN stays NaN.
double total(std::span<const double> sums, Norm norm) {
  double total = 0;
  for (const double sum : sums) {
    if (norm == Norm::Largest) {
      total = sum <= total ? total : (std::isnan(total) ? total : sum);
    } else {
      total += sum;
    }
  }
  return total;
}

}  // namespace

bool multiply(const ddp_buffer& from, const ddp_buffer& to, double factor, VectorUnit unit) {
  check_pair(from, to);
  bool finite = true;
  Block block;
  for_each_block(from.count, [&](std::size_t first, std::size_t count) {
    const ddp_buffer in = part(from, first, count), out = part(to, first, count);
    if (to.dtype == DDP_FLOAT64) {
      if (in.data != out.data) convert(in, out);
      finite &= run_on<Multiply>(unit, static_cast<double*>(out.data), count, factor);
    } else if (to.dtype == DDP_FLOAT32) {
      if (in.data != out.data) convert(in, out);
      finite &= run_on<Multiply>(unit, static_cast<float*>(out.data), count, static_cast<float>(factor));
    } else {
      const ddp_buffer wide = whole(block, count);
      convert(in, wide);
      run_on<Multiply>(unit, block.data(), count, static_cast<float>(factor));
      convert(wide, out);
      convert(out, wide);  // rounding may have produced infinity
      finite &= run_on<Multiply>(unit, block.data(), count, 1.0F);
    }
  });
  return finite;
}

double power_sum(const ddp_buffer& gradient, double norm_type, VectorUnit unit) {
  check_floating_point("norm", gradient);
  const Norm norm = norm_of(norm_type);
  Lanes lanes = {};
  if (gradient.dtype == DDP_FLOAT64) {
    run_on<AddPowers>(unit, static_cast<const double*>(gradient.data), gradient.count, norm, norm_type, &lanes);
  } else if (gradient.dtype == DDP_FLOAT32) {
    run_on<AddPowers>(unit, static_cast<const float*>(gradient.data), gradient.count, norm, norm_type, &lanes);
  } else {
    Block block;
    for_each_block(gradient.count, [&](std::size_t first, std::size_t count) {
      convert(part(gradient, first, count), whole(block, count));
      run_on<AddPowers>(unit, static_cast<const float*>(block.data()), count, norm, norm_type, &lanes);
    });
  }
  return total(lanes, norm);
}

double combined(std::span<const double> power_sums, double norm_type) { return total(power_sums, norm_of(norm_type)); }

double root_of(double power_sum, double norm_type) {
  const Norm norm = norm_of(norm_type);
  if (norm == Norm::Squares) return std::sqrt(power_sum);
  return norm == Norm::Power ? std::pow(power_sum, 1 / norm_type) : power_sum;
}

void clip(std::span<const ddp_buffer> gradients, double max_norm, double total_norm, bool error_if_nonfinite) {
  if (error_if_nonfinite && !std::isfinite(total_norm)) {
    refuse(std::string("clip_grad_norm: the gradients' norm is ") + (std::isnan(total_norm) ? "nan" : "infinite") +
           ": they cannot be clipped; lower the learning rate, or leave this step out");
  }
  const double factor = max_norm / (total_norm + 1e-6);
  if (factor >= 1) return;
  for (const ddp_buffer& gradient : gradients) multiply(gradient, gradient, factor);
}

float updated_scale(float scale, double factor, float min_scale, float max_scale) {
  const auto rounded = static_cast<float>(scale * factor);
  return std::isfinite(rounded) ? std::min(std::max(rounded, min_scale), max_scale) : scale;
}

}  // namespace ddp::training
