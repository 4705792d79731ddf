// SPDX-License-Identifier: BSD-3-Clause
/// @file
/// Master weights: float32 copies of 16-bit weights, for the optimizer. The change of one step is
/// often too small for 16 bits; in the copies it adds up.
///
///     ddp::MasterWeights master(parameters);           // float16 or bfloat16 ones, and their gradients
///     ddp::AdamW optimizer(master.parameters());
///     for (;;) {
///       backward();                                     // gradients of 16 bits, averaged over the ranks
///       master.read_gradients();                        // or GradScaler::unscale(master)
///       optimizer.step();
///       master.write_values();                          // into the model, rounded to the nearest
///     }
#pragma once

#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

#include "ddp/buffer.hpp"
#include "ddp/c/training.h"
#include "ddp/error.hpp"
#include "ddp/parameter.hpp"

namespace ddp {

/// Float32 copies of 16-bit parameters, and of their gradients. Other parameters are in
/// parameters() as they were given: the optimizer works on them in place. One thread at a time.
/// Source: apex's master parameters (opt level O2).
class MasterWeights {
 public:
  /// Copies the values. The parameters' memory must stay; the list need not. Throws Error with Status::InvalidArgument
  /// for a parameter that is not of floating point or has no gradient.
  explicit MasterWeights(const std::vector<Parameter>& parameters) : model_(parameters), masters_(parameters) {
    std::size_t count = 0;
    for (const Parameter& p : model_) {
      if (p.grad == nullptr) throw Error(Status::InvalidArgument, "MasterWeights: " + p.name + " has no gradient");
      if (is_copied(p)) count += p.count;
    }
    values_.resize(count);
    gradients_.resize(count);
    std::size_t first = 0;
    for (Parameter& p : masters_) {
      if (!is_copied(p)) continue;
      p.value = values_.data() + first;
      p.grad = gradients_.data() + first;
      p.dtype = DType::Float32;
      first += p.count;
    }
    read_values();
  }
  MasterWeights(MasterWeights&&) = default;             ///< parameters() stay where they are
  MasterWeights& operator=(MasterWeights&&) = default;  ///< parameters() stay where they are

  /// Returns the parameters for the optimizer, in the order and with the names of the model's.
  const std::vector<Parameter>& parameters() const { return masters_; }

  /// Sets where the gradient of the model's parameter i is from now on: for DistributedDataParallel's
  /// own memory, which moves once with gradient_as_bucket_view. A parameter that is not copied moves
  /// in parameters() too; tell its optimizer.
  void set_gradient(std::size_t i, void* grad) {
    model_.at(i).grad = grad;
    if (!is_copied(model_[i])) masters_[i].grad = grad;
  }
  /// Sets where the model's parameter i itself is from now on, as set_gradient() does.
  void set_value(std::size_t i, void* value) {
    model_.at(i).value = value;
    if (!is_copied(model_[i])) masters_[i].value = value;
  }

  /// Copies the model's gradients, times factor, to those of parameters(). Returns false if one of
  /// them is infinite or not a number.
  bool read_gradients(double factor = 1) {
    std::int32_t found_inf = 0;
    for (std::size_t i = 0; i < model_.size(); ++i) {
      detail::check(ddp_buffer_multiply(gradient(model_[i]), gradient(masters_[i]), factor, &found_inf));
    }
    return found_inf == 0;
  }

  /// Copies the masters' values, rounded to the nearest, to the model.
  void write_values() {
    for_each_copy([](const Parameter& model, const Parameter& master) {
      detail::check(ddp_buffer_convert(value(master), value(model)));
    });
  }

  /// Copies the model's values to the masters, for example after a checkpoint of the model alone was
  /// read.
  void read_values() {
    for_each_copy([](const Parameter& model, const Parameter& master) {
      detail::check(ddp_buffer_convert(value(model), value(master)));
    });
  }

 private:
  static bool is_copied(const Parameter& p) { return p.dtype == DType::Float16 || p.dtype == DType::BFloat16; }
  static ddp_buffer value(const Parameter& p) { return detail::value_of(p).c(); }
  static ddp_buffer gradient(const Parameter& p) { return detail::gradient_of(p).c(); }

  template <typename Copy>
  void for_each_copy(const Copy& copy) const {
    for (std::size_t i = 0; i < model_.size(); ++i) {
      if (is_copied(model_[i])) copy(model_[i], masters_[i]);
    }
  }

  std::vector<Parameter> model_;
  std::vector<Parameter> masters_;
  std::vector<float> values_;
  std::vector<float> gradients_;
};

}  // namespace ddp
