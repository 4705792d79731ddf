// SPDX-License-Identifier: BSD-3-Clause
/// @file
/// libddp for programs that use libtorch: DistributedDataParallel for modules, and what training puts
/// around it. Header-only; libtorch's headers must be on the include path; 2.2 is the oldest release
/// that this was tested with. With a libtorch without CUDA nothing of CUDA is needed; with an older
/// one that has CUDA, link c10_cuda.
///
///     Net net;
///     ddp::torch::DistributedDataParallel model(net);
///     loss(model(input), target).backward();   // net's gradients are averages now
///
/// Each header of ddp/torch has one subject and may be included alone, which compiles faster.
/// ddp/ddp.hpp does not include this one. In a scope with `using namespace ddp`, write two
/// colons before libtorch's namespace.
#pragma once

#include "ddp/torch/collectives.hpp"
#include "ddp/torch/comm_hook.hpp"
#include "ddp/torch/distributed_data_parallel.hpp"
#include "ddp/torch/distributed_sampler.hpp"
#include "ddp/torch/save_module.hpp"
#include "ddp/torch/tensor.hpp"
