// SPDX-License-Identifier: BSD-3-Clause
// Checks that all optimizers make on their arguments.
#pragma once

#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <string>

#include "ddp/ddp.h"
#include "rendezvous/base/error.hpp"
#include "runtime/base/buffer.hpp"

namespace ddp::runtime {

// Both throw rendezvous::Error{InvalidArgument}.
inline void check_step(const std::string& optimizer, std::int64_t step) {
  if (step >= 1) return;
  throw rendezvous::Error(rendezvous::ErrorCode::InvalidArgument,
                          optimizer + ": step " + std::to_string(step) + ": steps are counted from 1");
}

inline void check_arrays(const std::string& optimizer, std::size_t count, std::int32_t dtype,
                         std::initializer_list<const void*> arrays) {
  using rendezvous::Error;
  using rendezvous::ErrorCode;
  if (dtype != DDP_FLOAT32 && dtype != DDP_FLOAT64) {
    throw Error(ErrorCode::InvalidArgument, optimizer + ": works on float32 and float64, not on " + dtype_name(dtype) +
                                                ": give it copies in float32 (ddp::MasterWeights)");
  }
  for (const void* array : arrays) {
    if (array == nullptr && count > 0) throw Error(ErrorCode::InvalidArgument, optimizer + ": an array is null");
  }
}

}  // namespace ddp::runtime
