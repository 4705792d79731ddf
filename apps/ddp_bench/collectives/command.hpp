// SPDX-License-Identifier: BSD-3-Clause
// Options and JSON lines of the programs that measure collectives (ddp_bench, ddp_bench_openmpi, ddp_bench_mpich).
#pragma once

#include "apps/ddp_bench/collectives/rounds.hpp"

namespace CLI {
class App;
}

namespace ddp::bench {

void declare_options(CLI::App& app, CollectivePlan& plan);
void print_figures(const CollectiveFigures& figures);

}  // namespace ddp::bench
