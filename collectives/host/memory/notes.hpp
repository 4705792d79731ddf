// SPDX-License-Identifier: BSD-3-Clause
// The store of a group that is being formed, with one deadline for all calls.
#pragma once

#include <chrono>
#include <string>

#include "ddp/backend.h"

namespace ddp::collectives {

class Notes {
 public:
  using Clock = std::chrono::steady_clock;

  Notes(const ddp_backend_store& store, Clock::time_point deadline) : store_(store), deadline_(deadline) {}

  void set(const std::string& key, const std::string& value) const;
  // Waits for the key until the deadline. `whose` is named if it does not come.
  std::string get(const std::string& key, const std::string& whose) const;
  // Returns whether the key is there, with its value.
  bool look(const std::string& key, std::string& value) const;
  // Throws if the deadline has passed.
  void check_time() const;
  std::chrono::milliseconds time_left() const;

 private:
  bool get_within(const std::string& key, std::chrono::milliseconds timeout, std::string& value) const;

  ddp_backend_store store_;
  Clock::time_point deadline_;
};

}  // namespace ddp::collectives
