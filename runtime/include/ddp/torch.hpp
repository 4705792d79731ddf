// SPDX-License-Identifier: BSD-3-Clause
/// @file
/// libddp for programs that use libtorch: DistributedDataParallel for modules, collectives on tensors. Header-only;
/// libtorch's headers must be on the include path; 2.2 is the oldest release that this was tested with. A libtorch
/// without CUDA needs nothing of CUDA's; an older one with CUDA wants c10_cuda linked.
///
///     Net net;
///     ddp::torch::DistributedDataParallel model(net);
///     loss(model(input), target).backward();   // net's gradients are averages now
///
/// Not part of ddp/ddp.hpp. Beside `using namespace ddp`, libtorch's namespace needs two colons before it.
#pragma once

#include "ddp/torch/distributed_data_parallel.hpp"
#include "ddp/torch/tensor.hpp"
