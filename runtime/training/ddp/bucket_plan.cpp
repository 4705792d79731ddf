// SPDX-License-Identifier: BSD-3-Clause
#include "runtime/training/ddp/bucket_plan.hpp"

#include <algorithm>
#include <map>
#include <numeric>
#include <utility>

namespace ddp::runtime {

std::vector<std::size_t> backward_order(std::size_t count) {
  std::vector<std::size_t> order(count);
  std::iota(order.rbegin(), order.rend(), std::size_t{0});
  return order;
}

std::vector<PlannedBucket> plan_buckets(const std::vector<PlannedParameter>& parameters,
                                        const std::vector<std::size_t>& order, BucketLimits limits) {
  struct Open {
    PlannedBucket bucket;
    std::size_t bytes = 0;
    std::size_t limit = 0;
  };
  std::map<std::int32_t, Open> open;
  std::vector<PlannedBucket> plan;
  // Put each parameter into its type's open bucket, and close the bucket at its limit.
  for (const std::size_t i : order) {
    Open& o = open.try_emplace(parameters[i].dtype, Open{{}, 0, limits.first}).first->second;
    o.bucket.push_back(i);
    o.bytes += parameters[i].bytes;
    if (o.bytes < o.limit) continue;
    plan.push_back(std::exchange(o.bucket, {}));
    o.bytes = 0;
    o.limit = limits.other;
  }
  // What is still open at the end is a bucket too.
  for (auto& [dtype, o] : open) {
    if (!o.bucket.empty()) plan.push_back(std::move(o.bucket));
  }
  // Sort by last parameter: that one completes the bucket.
  std::vector<std::size_t> place(parameters.size());
  for (std::size_t at = 0; at < order.size(); ++at) place[order[at]] = at;
  std::sort(plan.begin(), plan.end(),
            [&](const PlannedBucket& a, const PlannedBucket& b) { return place[a.back()] < place[b.back()]; });
  return plan;
}

}  // namespace ddp::runtime
