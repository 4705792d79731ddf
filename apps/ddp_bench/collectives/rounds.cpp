// SPDX-License-Identifier: BSD-3-Clause
#include "apps/ddp_bench/collectives/rounds.hpp"

#include <algorithm>
#include <array>
#include <chrono>
#include <cmath>
#include <memory>
#include <stdexcept>
#include <string>
#include <utility>

#include "apps/ddp_bench/collectives/check.hpp"

namespace ddp::bench {
namespace {

using Clock = std::chrono::steady_clock;

constexpr double kBlockSeconds = 0.01;  // about, for small sizes
constexpr int kLeastCalls = 3;          // in a block, for large sizes
constexpr int kLeastRounds = 3;

struct Buffers {
  Buffers(Contender& contender, std::size_t elements)
      : count(elements), input(contender.allocate(elements)), output(contender.allocate(elements)) {}

  std::size_t count;
  std::shared_ptr<float[]> input, output;
};

// A contender, and its buffers for a job.
struct Measured {
  Contender& contender;
  Buffers buffers;
};

float microseconds_since(Clock::time_point start) {
  return std::chrono::duration<float, std::micro>(Clock::now() - start).count();
}

double quantile(std::vector<float> values, double q) {
  const auto at = static_cast<std::ptrdiff_t>(q * static_cast<double>(values.size() - 1));
  std::nth_element(values.begin(), values.begin() + at, values.end());
  return values[static_cast<std::size_t>(at)];
}

void check(Contender& contender, const CollectiveJob& job, Buffers& buffers) {
  const CheckedCall checked{job.collective, contender.rank(), contender.size(), job.count};
  checked.fill(buffers.input.get(), buffers.output.get());
  contender.run(job.collective, buffers.input.get(), buffers.output.get(), job.count);
  throw_if_wrong(contender, job, buffers.output.get());
}

// Runs on zeros, whose sum stays zero however often it is taken.
void call(Contender& contender, const CollectiveJob& job, Buffers& buffers) {
  contender.run(job.collective, buffers.input.get(), buffers.output.get(), job.count);
}

// Writes to each line of both buffers, as a program does that computes what it communicates. Otherwise a library that
// reads a buffer again finds it in a cache.
void dirty(Buffers& buffers) {
  constexpr std::size_t kLine = 64 / sizeof(float);
  for (volatile float* const elements : {buffers.input.get(), buffers.output.get()}) {
    for (std::size_t i = 0; i < buffers.count; i += kLine) elements[i] = 0;
  }
}

struct Pace {
  int calls;  // in a block
  int rounds;
};

// Returns the seconds of one call, with all that it has left for others to do. Ranks synchronise through `ranks`.
double seconds_of_call(Contender& ranks, const CollectiveJob& job, Measured& measured) {
  auto& [contender, buffers] = measured;
  call(contender, job, buffers);
  ranks.run(Collective::Barrier, nullptr, nullptr, 0);
  const Clock::time_point start = Clock::now();
  for (int i = 0; i < kLeastCalls; ++i) call(contender, job, buffers);
  ranks.run(Collective::Barrier, nullptr, nullptr, 0);
  return std::max(1e-7, static_cast<double>(microseconds_since(start)) * 1e-6 / kLeastCalls);
}

// Returns the pace that rank 0 finds by its clock. The slowest contender sets it, since all make the same calls.
Pace find_pace(Contender& ranks, std::vector<Measured>& all, const CollectiveJob& job, double seconds) {
  double one = 0;
  for (Measured& measured : all) one = std::max(one, seconds_of_call(ranks, job, measured));
  const double calls = std::max(1.0 * kLeastCalls, std::floor(kBlockSeconds / one));
  const double rounds = std::max(1.0 * kLeastRounds, std::floor(seconds / (calls * one)));
  std::array<float, 2> pace = {static_cast<float>(calls), static_cast<float>(rounds)};
  ranks.run(Collective::Broadcast, nullptr, pace.data(), pace.size());
  return {static_cast<int>(pace[0]), static_cast<int>(pace[1])};
}

// Returns the microseconds of each call on the slowest rank.
std::vector<float> run_block(Contender& ranks, const CollectiveJob& job, int calls, Measured& measured) {
  auto& [contender, buffers] = measured;
  std::vector<float> mine;
  mine.reserve(static_cast<std::size_t>(calls));
  call(contender, job, buffers);
  ranks.run(Collective::Barrier, nullptr, nullptr, 0);
  for (int i = 0; i < calls; ++i) {
    dirty(buffers);
    const Clock::time_point start = Clock::now();
    call(contender, job, buffers);
    mine.push_back(microseconds_since(start));
  }
  std::vector<float> all(mine.size() * static_cast<std::size_t>(contender.size()));
  ranks.run(Collective::AllGather, mine.data(), all.data(), all.size());
  for (std::size_t i = 0; i < all.size(); ++i) mine[i % mine.size()] = std::max(mine[i % mine.size()], all[i]);
  return mine;
}

std::vector<CollectiveFigures> run_rounds(Contender& ranks, std::vector<Measured>& all, const CollectiveJob& job,
                                          const CollectivePlan& plan) {
  std::vector<std::vector<float>> times(all.size());
  std::vector<std::vector<double>> medians(all.size());
  const Pace pace = plan.tail_calls > 0 ? Pace{plan.tail_calls, 1} : find_pace(ranks, all, job, plan.seconds);
  for (int round = 0; round < pace.rounds; ++round) {
    for (std::size_t turn = 0; turn < all.size(); ++turn) {
      const std::size_t i = (turn + static_cast<std::size_t>(round)) % all.size();
      const std::vector<float> block = run_block(ranks, job, pace.calls, all[i]);
      times[i].insert(times[i].end(), block.begin(), block.end());
      medians[i].push_back(quantile(block, 0.5));
    }
  }
  std::vector<CollectiveFigures> figures;
  for (std::size_t i = 0; i < all.size(); ++i) {
    figures.push_back(figures_of(all[i].contender, job, times[i], std::move(medians[i])));
  }
  return figures;
}

// Returns about `bytes` in elements, so that each rank's part is whole elements.
std::size_t elements_of(std::size_t bytes, int ranks) {
  const std::size_t part = static_cast<std::size_t>(ranks) * sizeof(float);
  return std::max<std::size_t>(1, bytes / part) * static_cast<std::size_t>(ranks);
}

}  // namespace

std::vector<CollectiveJob> jobs_of(const CollectivePlan& plan, int ranks) {
  std::vector<CollectiveJob> jobs;
  for (const Collective collective : plan.collectives) {
    const bool whole =
        collective == Collective::AllReduce || collective == Collective::Broadcast || collective == Collective::Reduce;
    if (collective == Collective::Barrier) {
      jobs.push_back({collective, 0});
      continue;
    }
    for (const std::size_t bytes : plan.sizes) {
      const std::size_t count = whole ? std::max<std::size_t>(1, bytes / sizeof(float)) : elements_of(bytes, ranks);
      if (jobs.empty() || jobs.back().collective != collective || jobs.back().count != count) {
        jobs.push_back({collective, count});
      }
    }
  }
  return jobs;
}

void throw_if_wrong(const Contender& contender, const CollectiveJob& job, const float* output) {
  const CheckedCall checked{job.collective, contender.rank(), contender.size(), job.count};
  const std::string wrong = checked.what_is_wrong(output);
  if (wrong.empty()) return;
  throw std::runtime_error(std::string(contender.name()) + ": " + name_of(job.collective) + " of " +
                           std::to_string(job.count * sizeof(float)) + " bytes, rank " +
                           std::to_string(contender.rank()) + ": " + wrong);
}

CollectiveFigures figures_of(const Contender& contender, const CollectiveJob& job, const std::vector<float>& times_us,
                             std::vector<double> round_us) {
  CollectiveFigures f;
  f.contender = contender.name();
  f.collective = job.collective;
  f.ranks = contender.size();
  f.bytes = job.count * sizeof(float);
  f.calls = times_us.size();
  f.median_us = quantile(times_us, 0.5);
  f.p99_us = quantile(times_us, 0.99);
  f.p999_us = quantile(times_us, 0.999);
  f.longest_us = quantile(times_us, 1);
  f.above_10_medians = static_cast<std::size_t>(
      std::count_if(times_us.begin(), times_us.end(), [&](float us) { return us > 10 * f.median_us; }));
  f.bus_gb_s = bus_factor(job.collective, f.ranks) * static_cast<double>(f.bytes) / f.median_us / 1e3;
  f.round_us = std::move(round_us);
  return f;
}

double bus_factor(Collective collective, int ranks) {
  const double others = static_cast<double>(ranks - 1) / ranks;
  switch (collective) {
    case Collective::AllReduce:
      return 2 * others;
    case Collective::Broadcast:
    case Collective::Reduce:
      return 1;
    case Collective::AllGather:
    case Collective::ReduceScatter:
    case Collective::AllToAll:
    case Collective::Gather:
    case Collective::Scatter:
      return others;
    case Collective::Barrier:
      break;
  }
  return 0;
}

void measure_collectives(const std::vector<Contender*>& contenders, const CollectivePlan& plan,
                         const std::function<void(const CollectiveFigures&)>& done) {
  Contender& any = *contenders.front();
  for (const CollectiveJob& job : jobs_of(plan, any.size())) {
    std::vector<Measured> able;
    for (Contender* contender : contenders) {
      if (!contender->has(job.collective)) continue;
      able.push_back({*contender, Buffers(*contender, job.count)});
      auto& [added, buffers] = able.back();
      if (added.communicates()) check(added, job, buffers);
      std::fill_n(buffers.input.get(), job.count, 0.0F);
      std::fill_n(buffers.output.get(), job.count, 0.0F);
    }
    if (able.empty()) continue;
    for (const CollectiveFigures& figures : run_rounds(any, able, job, plan)) {
      if (any.rank() == 0) done(figures);
    }
  }
}

}  // namespace ddp::bench
