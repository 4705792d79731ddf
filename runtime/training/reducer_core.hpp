// SPDX-License-Identifier: BSD-3-Clause
// Decides when buckets go and what is a mistake; no memory of gradients, no threads, no communication.
//
//     step: mark_ready(i) ... mark_ready(j) -> buckets to launch, strictly in bucket order -> synchronize()
//
// Strictly in order, because all ranks must launch the same buckets in the same order while their backwards may not.
// A mistake is final: the other ranks may have gone on, so nothing that follows would fit together. Every later call
// throws the same error again.
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <vector>

#include "runtime/training/bucket_plan.hpp"

namespace ddp::runtime {

class ReducerCore {
 public:
  // names: per parameter, for errors; may be empty strings.
  ReducerCore(std::vector<std::string> names, const std::vector<PlannedBucket>& plan);

  // Gradient i is there. False: no_sync, it stays local. True: the driver puts it into its bucket and then launches the
  // buckets appended to `launch`. Throws rendezvous::Error{InvalidArgument}.
  bool mark_ready(std::size_t i, std::vector<std::size_t>& launch);
  // The step ends. False: no_sync, nothing to wait for. True: the driver waits for all buckets.
  bool synchronize();
  void set_no_sync(bool enabled);

  bool in_step() const { return marked_count_ > 0; }

 private:
  [[noreturn]] void fail(const std::string& why);
  void throw_if_failed() const;
  std::string name(std::size_t i) const;  // "parameter 3 (fc1.weight)"

  std::vector<std::string> names_;
  std::vector<std::size_t> bucket_of_;     // per parameter
  std::vector<std::size_t> bucket_sizes_;  // parameters in it
  std::vector<bool> marked_;               // per parameter, this step
  std::vector<std::size_t> missing_;       // per bucket, this step
  std::size_t marked_count_ = 0;
  std::size_t next_bucket_ = 0;
  bool no_sync_ = false;
  std::optional<std::string> failure_;
};

}  // namespace ddp::runtime
