// SPDX-License-Identifier: BSD-3-Clause
// Checks of what the kit's functions are given. Each throws ddp::Error with Status::InvalidArgument.
#pragma once

#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <string>

#include "collectives/element_types.hpp"
#include "ddp/error.hpp"

namespace ddp::training {

[[noreturn]] inline void refuse(const std::string& why) { throw Error(Status::InvalidArgument, why); }

using collectives::dtype_name;

// Refuses what is no memory of the CPU for elements of a known type.
inline void check_buffer(const char* what, const ddp_buffer& buffer) {
  std::string why = collectives::why_no_elements(buffer.data, buffer.count, buffer.dtype);
  if (why.empty() && buffer.device.kind != DDP_CPU) why = collectives::kNotInCpuMemory;
  if (!why.empty()) refuse(std::string(what) + ": " + why);
}

// Checks the arrays of an optimizer's step, and its number.
inline void check_step(const std::string& optimizer, std::int64_t step, std::size_t count, std::int32_t dtype,
                       std::initializer_list<const void*> arrays) {
  if (step < 1) refuse(optimizer + ": step " + std::to_string(step) + ": steps are counted from 1");
  if (dtype != DDP_FLOAT32 && dtype != DDP_FLOAT64) {
    refuse(optimizer + ": works on float32 and float64, not on " + dtype_name(dtype) +
           ": give it copies in float32 (ddp::MasterWeights)");
  }
  for (const void* array : arrays) {
    if (array == nullptr && count > 0) refuse(optimizer + ": an array is null");
  }
}

}  // namespace ddp::training
