// SPDX-License-Identifier: BSD-3-Clause
// How long a collective takes, of several libraries in turn. A round is a short block of calls of each contender, one
// after the other, and the next round begins with the next one: what else the machine does hits all of them alike.
#pragma once

#include <cstddef>
#include <functional>
#include <vector>

#include "apps/ddp_bench/contenders/contender.hpp"

namespace ddp::bench {

struct CollectivePlan {
  std::vector<Collective> collectives;
  std::vector<std::size_t> sizes;  // bytes, as NCCL's tests count them: of a rank's longer buffer
  double seconds = 0;              // of each contender at each size, about; at least three rounds of three calls
};

// A call takes as long as on the slowest rank.
struct CollectiveFigures {
  const char* contender = "";
  Collective collective = Collective::AllReduce;
  int ranks = 0;
  std::size_t bytes = 0;
  std::size_t calls = 0;
  double median_us = 0;
  double p99_us = 0;
  double bus_gb_s = 0;           // by the median
  std::vector<double> round_us;  // the median of each round
};

struct CollectiveJob {
  Collective collective;
  std::size_t count;  // elements of a rank's longer buffer
};

// Every collective with every size, rounded so that each rank's part is whole elements.
std::vector<CollectiveJob> jobs_of(const CollectivePlan& plan, int ranks);

// Throws std::runtime_error if what the contender left in `output`, a CheckedCall's, is not right.
void throw_if_wrong(const Contender& contender, const CollectiveJob& job, const float* output);

// times_us: what the medians are of. round_us: see CollectiveFigures.
CollectiveFigures figures_of(const Contender& contender, const CollectiveJob& job, const std::vector<float>& times_us,
                             std::vector<double> round_us);

// What bytes / time is multiplied with, so that the figure can be compared with the hardware's and between numbers of
// ranks, as NCCL's tests define it. 0: no data is moved.
double bus_factor(Collective collective, int ranks);

// Collective: every rank runs it with the same contenders and plan; the first one also says when a block begins and
// brings the ranks' times together, so it has to communicate. Before anything is timed each contender's result is
// checked: throws std::runtime_error, on every rank that has a wrong one, if it is not right. `done` is called on
// rank 0.
void measure_collectives(const std::vector<Contender*>& contenders, const CollectivePlan& plan,
                         const std::function<void(const CollectiveFigures&)>& done);

}  // namespace ddp::bench
