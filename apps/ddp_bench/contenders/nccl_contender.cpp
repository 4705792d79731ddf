// SPDX-License-Identifier: BSD-3-Clause
#include "apps/ddp_bench/contenders/nccl_contender.hpp"

#include <stdexcept>
#include <string>

namespace ddp::bench {

using collectives::NcclReduction;
using collectives::NcclResult;
using collectives::NcclType;

collectives::NcclApi::Comm NcclContender::communicator() const {
  return static_cast<collectives::NcclApi::Comm>(group_.nccl_communicator());
}

bool NcclContender::has(Collective collective) const {
  return collective == Collective::AllReduce || collective == Collective::Broadcast ||
         collective == Collective::AllGather || collective == Collective::ReduceScatter;
}

NcclResult NcclContender::start(Collective collective, const float* input, float* output, std::size_t count) const {
  const std::size_t part = count / static_cast<std::size_t>(size());
  constexpr NcclType kType = NcclType::Float32;
  switch (collective) {
    case Collective::AllReduce:
      return api_.all_reduce(output, output, count, kType, NcclReduction::Sum, communicator(), stream_);
    case Collective::Broadcast:
      return api_.broadcast(output, output, count, kType, 0, communicator(), stream_);
    case Collective::AllGather:
      return api_.all_gather(input, output, part, kType, communicator(), stream_);
    case Collective::ReduceScatter:
      return api_.reduce_scatter(input, output, part, kType, NcclReduction::Sum, communicator(), stream_);
    default:
      throw std::logic_error(std::string("NCCL is not asked for ") + name_of(collective));
  }
}

void NcclContender::run(Collective collective, const float* input, float* output, std::size_t count) {
  NcclResult result = start(collective, input, output, count);
  // The communicator is non-blocking: the next call must wait until this one is on the stream.
  while (result == NcclResult::InProgress) {
    const NcclResult asked = api_.comm_get_async_error(communicator(), &result);
    if (asked != NcclResult::Success) result = asked;
  }
  if (result != NcclResult::Success) {
    throw std::runtime_error(std::string("nccl: ") + name_of(collective) + ": " + api_.get_error_string(result));
  }
}

}  // namespace ddp::bench
