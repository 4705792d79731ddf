// SPDX-License-Identifier: BSD-3-Clause
// Measures what a call costs in libddp itself: the group's operations do nothing (libddp_null.so), so the figures
// contain no other rank, wire or wake-up.
#pragma once

#include <vector>

#include "apps/ddp_bench/contenders/contender.hpp"
#include "ddp/ddp.hpp"

namespace ddp::bench {

struct LayerCost {
  Collective collective = Collective::AllReduce;
  // blocking   one blocking call after the other
  // async      each call issued and then waited for: one wake-up of the progress thread and one of the caller
  // burst      100 calls issued in one go, then waited for
  const char* calling = "";
  double median_ns = 0;  // a call takes, over blocks of 100
};

// Returns the costs of all collectives, each with one element.
std::vector<LayerCost> layer_costs(ProcessGroup group, int calls);

}  // namespace ddp::bench
