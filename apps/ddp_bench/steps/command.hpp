// SPDX-License-Identifier: BSD-3-Clause
// Options and JSON lines of `ddp_bench ddp`, which measures training steps.
#pragma once

#include <string>

#include "apps/ddp_bench/steps/rounds.hpp"

namespace CLI {
class App;
}

namespace ddp::bench {

struct StepOptions {
  StepPlan plan;
  bool describe = false;  // print what another program needs to make the same steps, and measure nothing
};

void declare_options(CLI::App& app, StepOptions& options);
// Runs as a rank that ddprun started, unless it only describes.
void bench_steps(StepOptions options);

}  // namespace ddp::bench
