// SPDX-License-Identifier: BSD-3-Clause
// Operations on host memory over a backend. What backends lack is made here from what they have: averages and weighted
// sums are sums of scaled contributions, and 16-bit floating point is reduced in 32 bits and rounded once, at the end.
//
// Used by one operation at a time. Its buffers grow to the largest need and stay allocated.
#pragma once

#include <chrono>
#include <cstdint>
#include <vector>

#include "ddp/backend.h"
#include "runtime/collective/operation.hpp"

namespace ddp::runtime {

class HostCollectives {
 public:
  using Deadline = std::chrono::steady_clock::time_point;

  // `group` has more than one rank.
  HostCollectives(const ddp_backend_table& backend, ddp_backend_group* group, GroupPlace place)
      : backend_(backend), group_(group), place_(place) {}

  // Blocks until the operation has ended. `tag` is equal on all ranks and differs from other operations in flight. Each
  // call to the backend gets the timeout, see backend_timeout_ms().
  ddp_backend_status perform(const Operation& operation, std::uint32_t tag, std::int64_t timeout_ms,
                             ddp_backend_error* error);
  // Performs the operation in a group of one.
  static void perform_alone(const Operation& operation);

 private:
  struct Call;
  ddp_backend_status reduce(const Operation& operation, const Call& call);
  ddp_backend_status reduce_16_bit(const Operation& operation, double factor, const Call& call);
  ddp_backend_status reduce_scatter_16_bit(const Operation& operation, double factor, const Call& call);
  ddp_backend_status call_reduction(const Operation& operation, const Call& call);

  const ddp_backend_table& backend_;
  ddp_backend_group* group_;
  GroupPlace place_;
  std::vector<float> wide_;
  std::vector<unsigned char> scaled_;
  std::vector<std::size_t> even_counts_;
};

}  // namespace ddp::runtime
