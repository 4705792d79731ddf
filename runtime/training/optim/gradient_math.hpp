// SPDX-License-Identifier: BSD-3-Clause
// What is done to gradients between backward and the optimizer's step, multiplying and measuring, and what takes
// weights of 16 bits up and down. Float32, float64, float16 and bfloat16; 16 bits are computed with in 32 and rounded
// once.
//
// Sums are made in 64 bits and in an order that depends on the place of an element only: the same bits on every rank.
#pragma once

#include <cstddef>
#include <cstdint>

#include "collectives/vector_unit.hpp"
#include "ddp/ddp.h"

namespace ddp::runtime {

// These throw rendezvous::Error{InvalidArgument} for what cannot be meant. See their names in ddp.h.
void convert(const ddp_buffer& from, const ddp_buffer& to);
bool multiply(const ddp_buffer& from, const ddp_buffer& to, double factor);  // true: all of `to` is finite
double power_sum(const ddp_buffer& gradient, double norm_type);

// The same on a unit of one's choice, for tests.
bool multiply(const ddp_buffer& from, const ddp_buffer& to, double factor, collectives::VectorUnit unit);
double power_sum(const ddp_buffer& gradient, double norm_type, collectives::VectorUnit unit);

}  // namespace ddp::runtime
