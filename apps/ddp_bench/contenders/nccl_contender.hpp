// SPDX-License-Identifier: BSD-3-Clause
// NCCL, called as a program without libddp would call it: its functions on a stream, and nothing around them.
#pragma once

#include "apps/ddp_bench/contenders/contender.hpp"
#include "collectives/gpu/nccl_api.hpp"
#include "ddp/ddp.hpp"

namespace ddp::bench {

// Uses the communicator of libddp's group, so that both have the same channels and rings. Neither makes calls while the
// other's are under way.
class NcclContender : public Contender {
 public:
  NcclContender(const ProcessGroup& group, collectives::CudaStream* stream)
      : api_(collectives::nccl_api()), stream_(stream), group_(group) {}

  const char* name() const override { return "nccl"; }
  int rank() const override { return group_.rank(); }
  int size() const override { return group_.size(); }
  bool has(Collective collective) const override;
  void run(Collective collective, const float* input, float* output, std::size_t count) override;

 private:
  collectives::NcclResult start(Collective collective, const float* input, float* output, std::size_t count) const;
  collectives::NcclApi::Comm communicator() const;

  const collectives::NcclApi& api_;
  collectives::CudaStream* stream_;
  ProcessGroup group_;
};

}  // namespace ddp::bench
