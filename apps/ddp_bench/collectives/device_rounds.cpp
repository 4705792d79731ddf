// SPDX-License-Identifier: BSD-3-Clause
#include "apps/ddp_bench/collectives/device_rounds.hpp"

#include <algorithm>
#include <array>
#include <chrono>
#include <cmath>
#include <stdexcept>
#include <string>

#include "apps/ddp_bench/collectives/check.hpp"

namespace ddp::bench {
namespace {

using Clock = std::chrono::steady_clock;

constexpr int kWarmUps = 5;
constexpr double kBlockSeconds = 0.02;  // about
constexpr int kLeastCalls = 5;          // in a block
constexpr int kLeastRounds = 3;

struct DeviceBuffers {
  DeviceBuffers(const DeviceStream& on, std::size_t count)
      : input(on.device, count * sizeof(float)), output(on.device, count * sizeof(float)) {}
  float* in() const { return static_cast<float*>(input.get()); }
  float* out() const { return static_cast<float*>(output.get()); }

  collectives::DeviceMemory input;
  collectives::DeviceMemory output;
};

void check(Contender& contender, const CollectiveJob& job, const DeviceStream& gpu, const DeviceBuffers& buffers) {
  const CheckedCall checked{job.collective, contender.rank(), contender.size(), job.count};
  const std::size_t size = job.count * sizeof(float);
  std::vector<float> input(job.count);
  std::vector<float> output(job.count);
  checked.fill(input.data(), output.data());
  gpu.device.upload(buffers.in(), input.data(), size, gpu.stream);
  gpu.device.upload(buffers.out(), output.data(), size, gpu.stream);
  contender.run(job.collective, buffers.in(), buffers.out(), job.count);
  gpu.device.download(output.data(), buffers.out(), size, gpu.stream);
  throw_if_wrong(contender, job, output.data());
  gpu.device.clear(buffers.in(), size, gpu.stream);  // the sum of zeros stays zero
  gpu.device.clear(buffers.out(), size, gpu.stream);
}

// Returns the seconds of a block on the slowest rank.
double run_block(Contender& ranks, Contender& contender, const CollectiveJob& job, int calls, const DeviceStream& gpu,
                 const DeviceBuffers& buffers) {
  ranks.run(Collective::Barrier, nullptr, nullptr, 0);
  const Clock::time_point start = Clock::now();
  for (int i = 0; i < calls; ++i) contender.run(job.collective, buffers.in(), buffers.out(), job.count);
  gpu.synchronize();
  const auto mine = std::chrono::duration<float>(Clock::now() - start).count();
  std::vector<float> all(static_cast<std::size_t>(ranks.size()));
  ranks.run(Collective::AllGather, &mine, all.data(), all.size());
  return *std::max_element(all.begin(), all.end());
}

struct Pace {
  int calls;  // in a block
  int rounds;
};

// Returns the same pace on every rank, since run_block() returns the same time.
Pace find_pace(Contender& ranks, Contender& contender, const CollectiveJob& job, double seconds,
               const DeviceStream& gpu, const DeviceBuffers& buffers) {
  const double one = std::max(1e-7, run_block(ranks, contender, job, kWarmUps, gpu, buffers) / kWarmUps);
  const double calls = std::max(1.0 * kLeastCalls, std::floor(kBlockSeconds / one));
  const double rounds = std::max(1.0 * kLeastRounds, std::floor(seconds / (calls * one)));
  return {static_cast<int>(calls), static_cast<int>(rounds)};
}

}  // namespace

void measure_on_device(Contender& ranks, const std::vector<Contender*>& contenders, const CollectivePlan& plan,
                       const DeviceStream& gpu, const std::function<void(const CollectiveFigures&)>& done) {
  for (const CollectiveJob& job : jobs_of(plan, ranks.size())) {
    const DeviceBuffers buffers(gpu, job.count);
    for (Contender* contender : contenders) check(*contender, job, gpu, buffers);
    const Pace pace = find_pace(ranks, *contenders.front(), job, plan.seconds, gpu, buffers);
    std::vector<std::vector<float>> times(contenders.size());
    for (int round = 0; round < pace.rounds; ++round) {
      for (std::size_t turn = 0; turn < contenders.size(); ++turn) {
        const std::size_t i = (turn + static_cast<std::size_t>(round)) % contenders.size();
        const double took = run_block(ranks, *contenders[i], job, pace.calls, gpu, buffers);
        times[i].push_back(static_cast<float>(took * 1e6 / pace.calls));
      }
    }
    if (ranks.rank() != 0) continue;
    for (std::size_t i = 0; i < contenders.size(); ++i) {
      CollectiveFigures figures = figures_of(*contenders[i], job, times[i], {times[i].begin(), times[i].end()});
      figures.calls = static_cast<std::size_t>(pace.calls) * times[i].size();
      done(figures);
    }
  }
}

}  // namespace ddp::bench
