// SPDX-License-Identifier: BSD-3-Clause
// Does a collective do what it is timed for? Buffers are filled so that every element of every rank's result is known:
// small whole numbers, which no order of summing changes.
#pragma once

#include <cstddef>
#include <string>

#include "apps/ddp_bench/contenders/contender.hpp"

namespace ddp::bench {

// What contender.run() takes, before and after the call.
struct CheckedCall {
  Collective collective;
  int rank;
  int size;
  std::size_t count;

  void fill(float* input, float* output) const;
  // Empty if this rank's result is right, else the first element that is not: "element 3 is 5, not 7".
  std::string what_is_wrong(const float* output) const;
};

}  // namespace ddp::bench
