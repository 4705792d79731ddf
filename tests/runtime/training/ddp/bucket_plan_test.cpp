// SPDX-License-Identifier: BSD-3-Clause
#include "runtime/training/ddp/bucket_plan.hpp"

#include <catch2/catch.hpp>

using ddp::runtime::plan_buckets;
using ddp::runtime::PlannedBucket;
using Plan = std::vector<PlannedBucket>;
using Parameters = std::vector<ddp::runtime::PlannedParameter>;

namespace {

Plan plan_backwards(const Parameters& parameters, std::size_t first, std::size_t other) {
  return plan_buckets(parameters, ddp::runtime::backward_order(parameters.size()), {first, other});
}

}  // namespace

TEST_CASE("bucket plan: goes backwards and closes a bucket that has reached its limit", "[training][unit]") {
  // The first limit is 10, the others 20; all sizes are 4. Three parameters reach 12, five reach
  // 20, one is left.
  CHECK(plan_backwards(Parameters(9, {4, 0}), 10, 20) == Plan{{8, 7, 6}, {5, 4, 3, 2, 1}, {0}});
}

TEST_CASE("bucket plan: a parameter larger than the limit closes the bucket it is in", "[training][unit]") {
  CHECK(plan_backwards({{4, 0}, {1000, 0}, {4, 0}}, 10, 20) == Plan{{2, 1}, {0}});
}

TEST_CASE("bucket plan: exactly the limit is enough", "[training][unit]") {
  CHECK(plan_backwards({{5, 0}, {5, 0}}, 5, 5) == Plan{{1}, {0}});
}

TEST_CASE("bucket plan: types do not mix, each with a small first bucket of its own", "[training][unit]") {
  CHECK(plan_backwards({{4, 0}, {8, 1}, {4, 0}, {8, 1}, {4, 0}}, 8, 100) == Plan{{3}, {4, 2}, {1}, {0}});
}

TEST_CASE("bucket plan: buckets come in the order in which a backward from last to first completes them",
          "[training][unit]") {
  // The float64 bucket opens first but is complete only with parameter 0.
  CHECK(plan_backwards({{8, 1}, {4, 0}, {4, 0}, {8, 1}}, 100, 100) == Plan{{2, 1}, {3, 0}});
}

TEST_CASE("bucket plan: a plan may be empty, and parameters may be empty", "[training][unit]") {
  CHECK(plan_backwards({}, 10, 20).empty());
  CHECK(plan_backwards({{0, 0}, {0, 0}}, 10, 20) == Plan{{1, 0}});
}

TEST_CASE("bucket plan: another order of gradients gives other buckets by the same rule", "[training][unit]") {
  CHECK(plan_buckets(Parameters(5, {4, 0}), {2, 0, 4, 1, 3}, {4, 8}) == Plan{{2}, {0, 4}, {1, 3}});
}

TEST_CASE("bucket plan: in another order too, buckets come as they are completed", "[training][unit]") {
  // The float64 bucket opens first but is complete only with parameter 3.
  CHECK(plan_buckets({{8, 1}, {4, 0}, {4, 0}, {8, 1}}, {0, 1, 2, 3}, {100, 100}) == Plan{{1, 2}, {0, 3}});
}
