// SPDX-License-Identifier: BSD-3-Clause
#include "apps/ddp_bench/contenders/libddp_contender.hpp"

namespace ddp::bench {
namespace {

// By Collective.
constexpr ddp_operation_kind kKinds[] = {DDP_ALL_REDUCE, DDP_BROADCAST, DDP_REDUCE,  DDP_ALL_GATHER, DDP_REDUCE_SCATTER,
                                         DDP_ALL_TO_ALL, DDP_GATHER,    DDP_SCATTER, DDP_BARRIER};

}  // namespace

void LibddpContender::call(Collective collective, const float* input, float* output, std::size_t count,
                           ddp_work* work) const {
  const std::size_t part = count / static_cast<std::size_t>(size());
  const bool gathers = collective == Collective::AllGather || collective == Collective::Gather;
  const bool scatters = collective == Collective::ReduceScatter || collective == Collective::Scatter;
  const ddp_buffer in = {const_cast<float*>(input), gathers ? part : count, DDP_FLOAT32, device_.c()};
  const ddp_buffer out = {output, scatters ? part : count, DDP_FLOAT32, device_.c()};
  const ddp_reduction sum = {DDP_SUM, 1};
  const ddp_operation_kind kind = kKinds[static_cast<std::size_t>(collective)];
  const ddp_status status = ddp_issue_on(group_.c(), kind, in, out, &sum, 0, 0, work);
  if (status != DDP_OK) throw Error(static_cast<Status>(status), ddp_error_last());
}

void LibddpContender::run(Collective collective, const float* input, float* output, std::size_t count) {
  if (calling_ == Calling::Asynchronous) return issue(collective, input, output, count).wait();
  call(collective, input, output, count, nullptr);
}

Work LibddpContender::issue(Collective collective, const float* input, float* output, std::size_t count) const {
  ddp_work work;
  call(collective, input, output, count, &work);
  return Work(work);
}

}  // namespace ddp::bench
