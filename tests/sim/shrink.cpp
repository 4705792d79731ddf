// SPDX-License-Identifier: BSD-3-Clause
#include "tests/sim/shrink.hpp"

#include <functional>

#include "tests/sim/world.hpp"

namespace ddp::sim {

namespace {

bool still_breaks(const Plan& plan, Promise broken) {
  Coverage coverage;
  World world(plan, coverage);
  const auto violation = world.run();
  return violation && violation->promise == broken;
}

}  // namespace

Plan shrink(Plan plan, Promise broken) {
  const auto try_without = [&](const std::function<void(Plan&)>& leave_out) {
    Plan smaller = plan;
    leave_out(smaller);
    if (!still_breaks(smaller, broken)) return false;
    plan = smaller;
    return true;
  };
  bool has_shrunk = true;
  while (has_shrunk) {
    has_shrunk = false;
    for (std::size_t i = plan.faults.size(); i-- > 0;) {
      has_shrunk |= try_without([i](Plan& p) { p.faults.erase(p.faults.begin() + static_cast<std::ptrdiff_t>(i)); });
    }
    while (plan.machines.size() > 1) {
      const bool fewer = try_without([](Plan& p) {
        p.machines.pop_back();
        const int size = static_cast<int>(p.machines.size());
        std::erase_if(p.faults, [size](const Fault& fault) { return fault.machine >= size; });
        if (p.job.min_nodes == p.job.max_nodes) p.job.min_nodes = p.job.max_nodes = size;
      });
      if (!fewer) break;
      has_shrunk = true;
    }
    for (std::size_t i = 0; i < plan.machines.size(); ++i) {
      if (plan.machines[i].slots > 1) has_shrunk |= try_without([i](Plan& p) { p.machines[i].slots = 1; });
    }
  }
  while (plan.liars > 1 && try_without([](Plan& p) { --p.liars; })) {
  }
  try_without([](Plan& p) { p.deaf_percent = 0; });
  try_without([](Plan& p) { p.big_percent = 0; });
  try_without([](Plan& p) { p.unmoved_percent = 0; });
  try_without([](Plan& p) { p.slow_percent = 0; });
  try_without([](Plan& p) { p.extra_ticks = 0; });
  try_without([](Plan& p) { p.repeat_percent = 0; });
  try_without([](Plan& p) { p.delay = milliseconds(1); });
  try_without([](Plan& p) { p.late = milliseconds(0); });
  return plan;
}

}  // namespace ddp::sim
