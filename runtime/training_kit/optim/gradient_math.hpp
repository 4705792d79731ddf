// SPDX-License-Identifier: BSD-3-Clause
// Arithmetic on gradients between backward and the optimizer's step: multiplying and measuring them. Types are float32,
// float64, float16 and bfloat16; 16-bit elements are computed with in 32 bits and rounded once.
//
// Sums are computed in 64 bits, in an order that depends only on an element's position, so they
// have the same bits on every rank.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "collectives/vector_unit.hpp"
#include "ddp/c/training.h"

namespace ddp::training {

// These throw ddp::Error with Status::InvalidArgument for arguments that make no sense. ddp/c/training.h
// describes the functions that call them. Tests choose a vector unit.
bool multiply(const ddp_buffer& from, const ddp_buffer& to, double factor,
              collectives::VectorUnit unit = collectives::vector_units().back());  // whether all of `to` is finite
double power_sum(const ddp_buffer& gradient, double norm_type,
                 collectives::VectorUnit unit = collectives::vector_units().back());
double combined(std::span<const double> power_sums, double norm_type);
double root_of(double power_sum, double norm_type);
void clip(std::span<const ddp_buffer> gradients, double max_norm, double total_norm, bool error_if_nonfinite);
float updated_scale(float scale, double factor, float min_scale, float max_scale);

}  // namespace ddp::training
