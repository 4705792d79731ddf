// SPDX-License-Identifier: BSD-3-Clause
#include "apps/ddp_bench/contenders/layer_cost.hpp"

#include <algorithm>
#include <chrono>
#include <functional>

#include "apps/ddp_bench/contenders/libddp_contender.hpp"

namespace ddp::bench {
namespace {

using Clock = std::chrono::steady_clock;

constexpr int kBlock = 100;  // calls between two readings of the clock

double median_ns(int calls, const std::function<void()>& run_block) {
  for (int i = 0; i < 10; ++i) run_block();
  std::vector<double> times;
  for (int i = 0; i < calls / kBlock; ++i) {
    const Clock::time_point start = Clock::now();
    run_block();
    times.push_back(std::chrono::duration<double, std::nano>(Clock::now() - start).count() / kBlock);
  }
  std::nth_element(times.begin(), times.begin() + static_cast<std::ptrdiff_t>(times.size() / 2), times.end());
  return times[times.size() / 2];
}

}  // namespace

std::vector<LayerCost> layer_costs(ProcessGroup group, int calls) {
  LibddpContender blocking(group, Calling::Blocking);
  LibddpContender asynchronous(group, Calling::Asynchronous);
  const auto count = static_cast<std::size_t>(group.size());
  std::vector<float> input(count);
  std::vector<float> output(count);
  std::vector<LayerCost> costs;
  for (std::size_t i = 0; i < kCollectiveNames.size(); ++i) {
    const auto collective = static_cast<Collective>(i);
    const auto repeat = [&](LibddpContender& contender) {
      for (int k = 0; k < kBlock; ++k) contender.run(collective, input.data(), output.data(), count);
    };
    const auto burst = [&] {
      std::vector<Work> issued;
      issued.reserve(kBlock);
      for (int k = 0; k < kBlock; ++k) {
        issued.push_back(asynchronous.issue(collective, input.data(), output.data(), count));
      }
      issued.back().wait();  // they end in order
    };
    costs.push_back({collective, "blocking", median_ns(calls, [&] { repeat(blocking); })});
    costs.push_back({collective, "async", median_ns(calls, [&] { repeat(asynchronous); })});
    costs.push_back({collective, "burst", median_ns(calls, burst)});
  }
  return costs;
}

}  // namespace ddp::bench
