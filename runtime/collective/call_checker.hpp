// SPDX-License-Identifier: BSD-3-Clause
// Compares the ranks' calls before each collective, with DDP_DEBUG=detail. When ranks disagree, all of them get an
// error that says which rank called what. Without it, different sizes end the process inside Gloo, and other
// differences hang until the deadline. Costs one small all_gather per operation.
//
// Used by one operation at a time.
#pragma once

#include <chrono>
#include <cstdint>
#include <string>
#include <vector>

#include "ddp/backend.h"
#include "runtime/collective/fingerprint.hpp"

namespace ddp::runtime {

class CallChecker {
 public:
  using Deadline = std::chrono::steady_clock::time_point;

  CallChecker(const ddp_backend_table& backend, ddp_backend_group* group, GroupPlace place)
      : backend_(backend), group_(group), place_(place) {}

  // Blocks until all ranks' calls are compared. `tag` is equal on all ranks and differs from other operations in
  // flight. *disagreement is set to "" if all ranks call the same.
  ddp_backend_status compare(const Operation& operation, std::uint32_t tag, Deadline deadline,
                             std::string* disagreement, ddp_backend_error* error);

 private:
  ddp_backend_status compare_counts(const Operation& operation, std::uint32_t tag, Deadline deadline,
                                    std::string* disagreement, ddp_backend_error* error);
  ddp_backend_status gather_words(const void* mine, void* all, std::size_t count, std::uint32_t tag, Deadline deadline,
                                  ddp_backend_error* error);

  const ddp_backend_table& backend_;
  ddp_backend_group* group_;
  GroupPlace place_;
  std::vector<Fingerprint> fingerprints_;
};

}  // namespace ddp::runtime
