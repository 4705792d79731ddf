// SPDX-License-Identifier: BSD-3-Clause
// Measures how long a collective on GPU memory takes, with several contenders in turn, as NCCL's tests measure it: a
// block of calls is put on a stream, one after the other, and lasts until the stream is done.
#pragma once

#include <functional>
#include <vector>

#include "apps/ddp_bench/collectives/rounds.hpp"
#include "apps/ddp_bench/device_stream.hpp"

namespace ddp::bench {

// Does what measure_collectives() does, but the contenders' buffers are on the device, and a call's time is its share
// of its block. Ranks synchronise and exchange times through `ranks`, on the host.
void measure_on_device(Contender& ranks, const std::vector<Contender*>& contenders, const CollectivePlan& plan,
                       const DeviceStream& gpu, const std::function<void(const CollectiveFigures&)>& done);

}  // namespace ddp::bench
