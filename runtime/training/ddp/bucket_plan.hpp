// SPDX-License-Identifier: BSD-3-Clause
// Which gradients travel together. Plain functions: the same on every rank, because the input is.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace ddp::runtime {

struct PlannedParameter {
  std::size_t bytes = 0;
  std::int32_t dtype = 0;
};

// A first bucket is small, so that communication starts early.
struct BucketLimits {
  std::size_t first = 0;  // bytes
  std::size_t other = 0;
};

// Parameter indices in the order they lie in the bucket's memory.
using PlannedBucket = std::vector<std::size_t>;

// From the last to the first: as long as nothing is known of it, backward's order.
std::vector<std::size_t> backward_order(std::size_t count);

// PyTorch's rule (compute_bucket_assignment_by_size): go through the parameters in the order in which their gradients
// come; one open bucket per type; a bucket is closed by the parameter that brings it to its limit, which is
// limits.first for each type's first. Buckets are returned in the order in which that walk completes them.
std::vector<PlannedBucket> plan_buckets(const std::vector<PlannedParameter>& parameters,
                                        const std::vector<std::size_t>& order, BucketLimits limits);

}  // namespace ddp::runtime
