// SPDX-License-Identifier: BSD-3-Clause
#include "runtime/training/bucket_plan.hpp"

#include <algorithm>
#include <map>
#include <utility>

namespace ddp::runtime {

std::vector<PlannedBucket> plan_buckets(const std::vector<PlannedParameter>& parameters, std::size_t first_limit,
                                        std::size_t limit) {
  struct Open {
    PlannedBucket bucket;
    std::size_t bytes = 0;
    std::size_t limit = 0;
  };
  std::map<std::int32_t, Open> open;
  std::vector<PlannedBucket> plan;
  for (std::size_t i = parameters.size(); i-- > 0;) {
    Open& o = open.try_emplace(parameters[i].dtype, Open{{}, 0, first_limit}).first->second;
    o.bucket.push_back(i);
    o.bytes += parameters[i].bytes;
    if (o.bytes < o.limit) continue;
    plan.push_back(std::exchange(o.bucket, {}));
    o.bytes = 0;
    o.limit = limit;
  }
  for (auto& [dtype, o] : open) {
    if (!o.bucket.empty()) plan.push_back(std::move(o.bucket));
  }
  // A bucket is complete with its last parameter; the walk met that one in descending order of index.
  std::sort(plan.begin(), plan.end(),
            [](const PlannedBucket& a, const PlannedBucket& b) { return a.back() > b.back(); });
  return plan;
}

}  // namespace ddp::runtime
