// SPDX-License-Identifier: BSD-3-Clause
#include "apps/ddp_bench/collectives/command.hpp"

#include <CLI/CLI.hpp>
#include <map>
#include <string>

#include "apps/ddp_bench/print.hpp"

namespace ddp::bench {

void declare_options(CLI::App& app, CollectivePlan& plan) {
  std::map<std::string, Collective> names;
  for (std::size_t i = 0; i < kCollectiveNames.size(); ++i) names[kCollectiveNames[i]] = static_cast<Collective>(i);
  plan.collectives = {Collective::AllReduce};
  for (std::size_t bytes = 4; bytes <= std::size_t{64} << 20; bytes *= 4) plan.sizes.push_back(bytes);
  plan.seconds = 0.5;
  app.option_defaults()->always_capture_default();
  app.add_option("--collectives", plan.collectives, "Collectives to measure; all_reduce if none is named")
      ->transform(CLI::CheckedTransformer(names));
  app.add_option("--sizes", plan.sizes, "Bytes of a rank's longer buffer")->check(CLI::Range(4UL, 1UL << 32));
  app.add_option("--seconds", plan.seconds, "About how long each library is measured at each size")
      ->check(CLI::Range(0.0, 3600.0));
  app.add_option("--tail", plan.tail_calls, "Calls of each library at each size, in place of --seconds; 0: none")
      ->check(CLI::Range(0, 10'000'000));
}

void print_figures(const CollectiveFigures& f) {
  const nlohmann::ordered_json line = {
      {"contender", f.contender},   {"collective", name_of(f.collective)},
      {"ranks", f.ranks},           {"bytes", f.bytes},
      {"calls", f.calls},           {"median_us", f.median_us},
      {"p99_us", f.p99_us},         {"p999_us", f.p999_us},
      {"longest_us", f.longest_us}, {"above_10_medians", f.above_10_medians},
      {"bus_gb_s", f.bus_gb_s},     {"round_us", f.round_us},
  };
  print(line);
}

}  // namespace ddp::bench
