// SPDX-License-Identifier: BSD-3-Clause
#include "apps/ddp_bench/contenders/libddp_contender.hpp"

namespace ddp::bench {

LibddpContender::Call LibddpContender::call_of(Collective collective, const float* input, float* output,
                                               std::size_t count) const {
  const std::size_t part = count / static_cast<std::size_t>(size());
  const bool gathers = collective == Collective::AllGather || collective == Collective::Gather;
  const bool scatters = collective == Collective::ReduceScatter || collective == Collective::Scatter;
  return {{const_cast<float*>(input), gathers ? part : count, DType::Float32, device_},
          {output, scatters ? part : count, DType::Float32, device_}};
}

void LibddpContender::run(Collective collective, const float* input, float* output, std::size_t count) {
  if (calling_ == Calling::Asynchronous) return issue(collective, input, output, count).wait();
  const auto [in, out] = call_of(collective, input, output, count);
  switch (collective) {
    case Collective::AllReduce:
      return group_.all_reduce(out);
    case Collective::Broadcast:
      return group_.broadcast(out);
    case Collective::Reduce:
      return group_.reduce(out);
    case Collective::AllGather:
      return group_.all_gather(in, out);
    case Collective::ReduceScatter:
      return group_.reduce_scatter(in, out);
    case Collective::AllToAll:
      return group_.all_to_all(in, out);
    case Collective::Gather:
      return group_.gather(in, out);
    case Collective::Scatter:
      return group_.scatter(in, out);
    case Collective::Barrier:
      return group_.barrier();
  }
}

Work LibddpContender::issue(Collective collective, const float* input, float* output, std::size_t count) const {
  const auto [in, out] = call_of(collective, input, output, count);
  switch (collective) {
    case Collective::AllReduce:
      return group_.all_reduce_async(out);
    case Collective::Broadcast:
      return group_.broadcast_async(out);
    case Collective::Reduce:
      return group_.reduce_async(out);
    case Collective::AllGather:
      return group_.all_gather_async(in, out);
    case Collective::ReduceScatter:
      return group_.reduce_scatter_async(in, out);
    case Collective::AllToAll:
      return group_.all_to_all_async(in, out);
    case Collective::Gather:
      return group_.gather_async(in, out);
    case Collective::Scatter:
      return group_.scatter_async(in, out);
    case Collective::Barrier:
      break;
  }
  return group_.barrier_async();
}

}  // namespace ddp::bench
