// SPDX-License-Identifier: BSD-3-Clause
// Which gradients travel together. A plain function: the same on every rank, because the input is.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace ddp::runtime {

struct PlannedParameter {
  std::size_t bytes = 0;
  std::int32_t dtype = 0;
};

// Parameter indices in the order they lie in the bucket's memory.
using PlannedBucket = std::vector<std::size_t>;

// PyTorch's rule (compute_bucket_assignment_by_size): go through the parameters from the last to the first, for
// backward produces gradients in about that order; one open bucket per type; a bucket is closed by the parameter that
// brings it to its limit. The first bucket of a type has first_limit, so that communication starts early. Buckets are
// returned in the order in which that walk completes them.
std::vector<PlannedBucket> plan_buckets(const std::vector<PlannedParameter>& parameters, std::size_t first_limit,
                                        std::size_t limit);

}  // namespace ddp::runtime
