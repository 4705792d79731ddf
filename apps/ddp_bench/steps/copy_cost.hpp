// SPDX-License-Identifier: BSD-3-Clause
// Measures what DistributedDataParallel itself costs in a step, over the null backend: it scales gradients into buckets
// and copies them back. memcpy of the same pieces, there and back, is the comparison.
#pragma once

#include <string>
#include <vector>

#include "ddp/ddp.hpp"

namespace ddp::bench {

struct CopyCost {
  const char* way = "";  // memcpy; ddp: the caller's gradients; ddp_view: gradients in the buckets, scaled in place
  double median_ms = 0;
  double gb_s = 0;  // bytes of all gradients, there and back (ddp_view: once), divided by the median
};

std::vector<CopyCost> copy_costs(const ProcessGroup& group, const std::string& model, int rounds);

}  // namespace ddp::bench
