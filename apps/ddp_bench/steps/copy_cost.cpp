// SPDX-License-Identifier: BSD-3-Clause
#include "apps/ddp_bench/steps/copy_cost.hpp"

#include <algorithm>
#include <chrono>
#include <cstring>
#include <functional>

#include "apps/ddp_bench/steps/model_shapes.hpp"

namespace ddp::bench {
namespace {

using Clock = std::chrono::steady_clock;

constexpr int kWarmUps = 3;

struct Way {
  const char* name;
  double copies;  // copies of every gradient in a step
  std::function<void()> step;
  std::vector<double> times;
};

}  // namespace

std::vector<CopyCost> copy_costs(const ProcessGroup& group, const std::string& model, int rounds) {
  const std::vector<ParameterShape> shapes = model_shapes(model);
  const std::size_t elements = elements_of(shapes);
  std::vector<float> values(elements);
  std::vector<float> gradients(elements, 1);
  std::vector<float> elsewhere(elements, 1);
  DistributedDataParallel copying(group, parameters_in(shapes, values.data(), gradients.data()));
  DistributedDataParallel viewing(group, parameters_in(shapes, values.data(), nullptr));
  const auto copy = [&](std::vector<float>& to, const std::vector<float>& from) {
    std::size_t at = elements;
    for (std::size_t i = shapes.size(); i-- > 0;) {
      at -= shapes[i].count;
      std::memcpy(&to[at], &from[at], shapes[i].count * sizeof(float));
    }
  };
  const auto step = [&](DistributedDataParallel& ddp) {
    for (std::size_t i = shapes.size(); i-- > 0;) ddp.mark_ready(i);
    ddp.synchronize();
  };
  std::vector<Way> ways = {
      {"memcpy", 2, [&] { copy(elsewhere, gradients), copy(gradients, elsewhere); }, {}},
      {"ddp", 2, [&] { step(copying); }, {}},
      {"ddp_view", 1, [&] { step(viewing); }, {}},
  };
  for (int round = -kWarmUps; round < rounds; ++round) {
    // Gradients are halved in every step; soon they would be denormal, and slow.
    std::fill(gradients.begin(), gradients.end(), 1.0F);
    for (std::size_t i = 0; i < shapes.size(); ++i) {
      std::fill_n(viewing.gradient<float>(i), shapes[i].count, 1.0F);
    }
    for (Way& way : ways) {
      const Clock::time_point start = Clock::now();
      way.step();
      const double took = std::chrono::duration<double>(Clock::now() - start).count();
      if (round >= 0) way.times.push_back(took);
    }
  }
  std::vector<CopyCost> costs;
  for (Way& way : ways) {
    std::sort(way.times.begin(), way.times.end());
    const double median = way.times[way.times.size() / 2];
    const double bytes = way.copies * static_cast<double>(elements) * sizeof(float);
    costs.push_back({way.name, median * 1e3, bytes / median * 1e-9});
  }
  return costs;
}

}  // namespace ddp::bench
