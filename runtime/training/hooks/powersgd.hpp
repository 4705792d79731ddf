// SPDX-License-Identifier: BSD-3-Clause
// PowerSGD as a communication hook: plain averages for the first steps, then low-rank ones
// (powersgd_bucket). A compressed bucket takes three messages: P and the uncompressed rest at once,
// then Q once P is back.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "runtime/group/process_group.hpp"
#include "runtime/training/hooks/comm_hook.hpp"
#include "runtime/training/hooks/powersgd_bucket.hpp"

namespace ddp::runtime {

class PowerSgdHook final : public CommHook {
 public:
  // Makes the state of a bucket, in its first compressed step. May throw rendezvous::Error.
  using MakeBucket = std::function<std::unique_ptr<PowerSgdBucket>(const ddp_grad_bucket&, const PowerSgdOptions&)>;

  // Throws rendezvous::Error{InvalidArgument}.
  PowerSgdHook(ProcessGroup& group, const PowerSgdOptions& options, MakeBucket make_bucket = make_powersgd_bucket);
  void start(const ddp_grad_bucket& bucket) override;
  bool advance(const ddp_grad_bucket& bucket) override;
  const char* why_not_captured() const override;

 private:
  enum class Stage { Plain, Projecting, Collecting };
  struct Bucket {
    Stage stage = Stage::Plain;
    std::unique_ptr<PowerSgdBucket> compressed;  // made in the first compressed step; from then on layouts are fixed
    std::uint64_t average = 0;                   // sequence number of the plain average, of P or of Q
    std::uint64_t rest = 0;                      // sequence number of what is not compressed
  };

  ProcessGroup& group_;
  PowerSgdOptions options_;
  MakeBucket make_bucket_;
  std::uint64_t step_ = 0;
  std::vector<Bucket> buckets_;
};

}  // namespace ddp::runtime
