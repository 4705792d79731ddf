// SPDX-License-Identifier: BSD-3-Clause
// What a call costs in libddp itself: the group's operations do nothing (libddp_null.so), so no other rank, wire or
// wake-up is in the figure.
#pragma once

#include <vector>

#include "apps/ddp_bench/contenders/contender.hpp"
#include "ddp/ddp.hpp"

namespace ddp::bench {

struct LayerCost {
  Collective collective = Collective::AllReduce;
  // blocking   the call
  // async      issued and waited for, one after the other: a wake of the progress thread and one of the caller
  // burst      each of 100 that are issued in one go, then waited for
  const char* calling = "";
  double median_ns = 0;  // for a call, over blocks of 100
};

// Each with one element.
std::vector<LayerCost> layer_costs(ProcessGroup group, int calls);

}  // namespace ddp::bench
