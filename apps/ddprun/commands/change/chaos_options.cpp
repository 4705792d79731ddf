// SPDX-License-Identifier: BSD-3-Clause
#include "apps/ddprun/commands/change/chaos_options.hpp"

#include "apps/ddprun/commands/arguments.hpp"
#include "rendezvous/base/text.hpp"

namespace ddp::apps {
namespace {

ChaosKind kind_in(const CommandArguments& given, const std::string& text) {
  if (text == "worker") return ChaosKind::Worker;
  if (text == "agent") return ChaosKind::Agent;
  if (text == "node") return ChaosKind::Node;
  given.refuse("--kind " + text + ": give worker, agent or node");
}

}  // namespace

ChaosOptions parse_chaos(const std::vector<std::string>& arguments) {
  const CommandArguments given(
      {.name = "chaos",
       .usage = "ddprun chaos [JOB] [--every 30s] [--kind worker|agent|node] [--count N] [--seed N]",
       .about = "Kills processes of a job on purpose, to test that it recovers.",
       .flags = {},
       .values = {"--every", "--kind", "--count", "--seed"}},
      arguments);
  ChaosOptions options;
  options.job = given.job();
  options.every = given.duration("--every").value_or(options.every);
  if (const auto kind = given.value("--kind")) options.kind = kind_in(given, *kind);
  options.count = given.number("--count", 1, "give a number of kills, from 1");
  if (const auto seed = given.value("--seed")) {
    options.seed = rendezvous::parse_number<std::uint64_t>(*seed);
    if (!options.seed) given.refuse("--seed " + *seed + ": give a number, from 0");
  }
  return options;
}

}  // namespace ddp::apps
