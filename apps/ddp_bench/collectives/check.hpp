// SPDX-License-Identifier: BSD-3-Clause
// Checks that a collective does what it is timed for. Buffers are filled so that every element of every rank's result
// is known: small whole numbers, whose sum does not depend on the order.
#pragma once

#include <cstddef>
#include <string>

#include "apps/ddp_bench/contenders/contender.hpp"

namespace ddp::bench {

// The buffers of one contender.run(): fills them before the call and checks the result after it.
struct CheckedCall {
  Collective collective;
  int rank;
  int size;
  std::size_t count;

  void fill(float* input, float* output) const;
  // Returns "" if this rank's result is right, else the first wrong element: "element 3 is 5, not 7".
  std::string what_is_wrong(const float* output) const;
};

}  // namespace ddp::bench
