// SPDX-License-Identifier: BSD-3-Clause
// Decides which gradients travel in the same bucket. Plain functions: every rank has the same input
// and so computes the same plan.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace ddp::runtime {

struct PlannedParameter {
  std::size_t bytes = 0;
  std::int32_t dtype = 0;
};

// Sizes at which a bucket is complete. The first bucket is small, so that communication starts
// early.
struct BucketLimits {
  std::size_t first = 0;  // bytes
  std::size_t other = 0;
};

// Indices of the parameters in one bucket, in the order in which they lie in its memory.
using PlannedBucket = std::vector<std::size_t>;

// Returns the indices from the last to the first: the expected order of backward until a step has
// shown the real one.
std::vector<std::size_t> backward_order(std::size_t count);

// Returns the buckets, in the order in which they become complete. PyTorch's rule
// (compute_bucket_assignment_by_size): walk through the parameters in the order in which their
// gradients come, with one open bucket per element type; the parameter that brings a bucket to its
// limit closes it. The limit is limits.first for the first bucket of each type, limits.other for
// the rest.
std::vector<PlannedBucket> plan_buckets(const std::vector<PlannedParameter>& parameters,
                                        const std::vector<std::size_t>& order, BucketLimits limits);

}  // namespace ddp::runtime
