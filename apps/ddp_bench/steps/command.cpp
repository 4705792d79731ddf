// SPDX-License-Identifier: BSD-3-Clause
#include "apps/ddp_bench/steps/command.hpp"

#include <CLI/CLI.hpp>
#include <vector>

#include "apps/ddp_bench/print.hpp"
#include "apps/ddp_bench/steps/backward_work.h"

namespace ddp::bench {
namespace {

void describe(const StepPlan& plan) {
  nlohmann::ordered_json parameters = nlohmann::json::array();
  for (const ParameterShape& shape : model_shapes(plan.backward.model)) {
    parameters.push_back({{"name", shape.name}, {"count", shape.count}, {"share", shape.share}});
  }
  print({{"parameters", parameters}, {"updates_per_second", backward_work_speed()}});
}

}  // namespace

void declare_options(CLI::App& app, StepOptions& options) {
  StepPlan& plan = options.plan;
  app.option_defaults()->always_capture_default();
  app.add_option("--model", plan.backward.model, "Model whose parameters' shapes the steps have")
      ->check(CLI::IsMember(std::vector<std::string>(kModelNames.begin(), kModelNames.end())));
  app.add_option("--backward", plan.backward.seconds, "Seconds a backward takes")->check(CLI::Range(0.0, 3600.0));
  app.add_option("--busy", plan.backward.busy,
                 "Share of that time in which the CPU computes; it is free for the rest, as while a GPU computes")
      ->check(CLI::Range(0.0, 1.0));
  app.add_option("--updates-per-second", plan.backward.updates_per_second,
                 "Updates that a CPU computes in a second; 0: measure it");
  app.add_option("--bucket-mib", plan.bucket_mib, "Sizes of DDP's buckets, measured in turn");
  app.add_option("--first-bucket-mib", plan.first_bucket_mib, "Size of the first one");
  app.add_option("--rounds", plan.rounds, "Steps of each kind")->check(CLI::Range(1, 1000000));
  app.add_flag("--describe", options.describe, "Print shapes and the CPU's speed; no job is needed");
}

void bench_steps(StepOptions options) {
  if (options.describe) return describe(options.plan);
  const Session session = init_process_group();
  BackwardPlan& backward = options.plan.backward;
  if (backward.updates_per_second <= 0) {
    backward.updates_per_second = backward_work_speed();
    session.world().broadcast({&backward.updates_per_second, 1});
  }
  for (const StepFigures& figures : measure_steps(session.world(), options.plan)) {
    if (session.rank() != 0) continue;
    print({{"step", figures.step},
           {"bucket_mib", figures.bucket_mib},
           {"buckets", figures.buckets},
           {"round_ms", figures.round_ms}});
  }
}

}  // namespace ddp::bench
