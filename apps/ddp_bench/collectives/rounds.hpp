// SPDX-License-Identifier: BSD-3-Clause
// Measures how long a collective takes, with several libraries in turn. A round is a short block of calls of each
// contender, one contender after the other. The next round begins with the next contender, so that other load on the
// machine affects all of them equally.
#pragma once

#include <cstddef>
#include <functional>
#include <vector>

#include "apps/ddp_bench/contenders/contender.hpp"

namespace ddp::bench {

struct CollectivePlan {
  std::vector<Collective> collectives;
  std::vector<std::size_t> sizes;  // bytes of a rank's longer buffer, as NCCL's tests count
  double seconds = 0;              // about, for each contender and size; at least three rounds of three calls
  int tail_calls = 0;              // if not 0: as many calls without a break, in place of rounds
};

// Figures of one contender. A call takes as long as on the slowest rank.
struct CollectiveFigures {
  const char* contender = "";
  Collective collective = Collective::AllReduce;
  int ranks = 0;
  std::size_t bytes = 0;
  std::size_t calls = 0;
  double median_us = 0;
  double p99_us = 0;
  double p999_us = 0;
  double longest_us = 0;
  std::size_t above_10_medians = 0;  // calls that took longer than ten times the median
  double bus_gb_s = 0;               // by the median
  std::vector<double> round_us;      // the median of each round
};

struct CollectiveJob {
  Collective collective;
  std::size_t count;  // elements of a rank's longer buffer
};

// Returns every collective with every size, rounded so that each rank's part is whole elements.
std::vector<CollectiveJob> jobs_of(const CollectivePlan& plan, int ranks);

// Throws std::runtime_error if the contender's result in `output`, the buffer of a CheckedCall, is wrong.
void throw_if_wrong(const Contender& contender, const CollectiveJob& job, const float* output);

// Returns the figures of calls that took `times_us`. `round_us` has the medians of the rounds.
CollectiveFigures figures_of(const Contender& contender, const CollectiveJob& job, const std::vector<float>& times_us,
                             std::vector<double> round_us);

// Returns the factor that turns bytes / time into bus bandwidth, as NCCL's tests define it, so that figures can be
// compared with the hardware's and between numbers of ranks. 0 if no data is moved.
double bus_factor(Collective collective, int ranks);

// Measures all jobs of the plan. Every rank calls it with the same contenders and plan. The first contender also
// synchronises the ranks before a block and gathers their times, so it has to communicate. Before anything is timed
// each contender's result is checked; every rank with a wrong one throws std::runtime_error. `done` is called on rank
// 0.
void measure_collectives(const std::vector<Contender*>& contenders, const CollectivePlan& plan,
                         const std::function<void(const CollectiveFigures&)>& done);

}  // namespace ddp::bench
