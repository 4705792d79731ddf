// SPDX-License-Identifier: BSD-3-Clause
/// @file
/// libddp for programs that use libtorch: DistributedDataParallel for modules, samplers, checkpoints
/// and collectives on tensors. Header-only; libtorch's headers must be on the include path; 2.2 is the oldest release
/// that this was tested with. With a libtorch without CUDA nothing of CUDA is needed; with an older
/// one that has CUDA, link c10_cuda.
///
///     Net net;
///     ddp::libtorch::DistributedDataParallel model(net);
///     loss(model(input), target).backward();   // net's gradients are averages now
///
/// Each header of ddp/libtorch has one subject and may be included alone, which compiles faster.
/// ddp/ddp.hpp does not include this one. SyncBatchNorm, ZeroRedundancyOptimizer and GradScaler for libtorch
/// are in ddp/training/libtorch.hpp.
#pragma once

#include "ddp/libtorch/collectives.hpp"
#include "ddp/libtorch/comm_hook.hpp"
#include "ddp/libtorch/distributed_data_parallel.hpp"
#include "ddp/libtorch/distributed_sampler.hpp"
#include "ddp/libtorch/save_module.hpp"
#include "ddp/libtorch/tensor.hpp"
