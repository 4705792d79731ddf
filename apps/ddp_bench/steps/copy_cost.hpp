// SPDX-License-Identifier: BSD-3-Clause
// What DistributedDataParallel itself costs in a step, over the null backend: gradients are scaled into buckets and
// copied back, beside memcpy of the same pieces there and back.
#pragma once

#include <string>
#include <vector>

#include "ddp/ddp.hpp"

namespace ddp::bench {

struct CopyCost {
  const char* way = "";  // memcpy; ddp: gradients of the caller's; ddp_view: in the buckets, which are scaled in place
  double median_ms = 0;
  double gb_s = 0;  // bytes of all gradients, there and back (ddp_view: once), by the median
};

std::vector<CopyCost> copy_costs(const ProcessGroup& group, const std::string& model, int rounds);

}  // namespace ddp::bench
