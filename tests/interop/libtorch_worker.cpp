// SPDX-License-Identifier: BSD-3-Clause
// A C++ program of libtorch's whose ranks average tensors with libddp: both libraries are linked, so libtorch's Gloo
// has global symbols.
#include <ATen/ATen.h>

#include <cstdio>

#include "ddp/ddp.hpp"

int main() {
  const ddp::Session session = ddp::init_process_group();
  const auto rank = static_cast<double>(session.rank());
  at::Tensor values = at::full({100, 100}, rank).matmul(at::eye(100));
  ddp::Buffer buffer(values.data_ptr<float>(), static_cast<std::size_t>(values.numel()));
  session.world().all_reduce(buffer, ddp::ReduceOp::Avg);
  const double average = (session.world_size() - 1) / 2.0;
  if (!values.eq(average).all().item<bool>()) return 1;
  session.world().all_reduce_async(buffer, ddp::ReduceOp::Max).wait();
  session.world().barrier();
  std::printf("rank %d of %d done\n", session.rank(), session.world_size());
}
