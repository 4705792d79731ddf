// SPDX-License-Identifier: BSD-3-Clause
/// @file
/// libddp for C++17: process groups, collectives and DistributedDataParallel on plain buffers, with PyTorch's names.
/// Header-only over ddp/ddp.h; link ddprun::ddp, or what `pkg-config --cflags --libs ddp` says.
///
///     ddp::Session session = ddp::init_process_group();                // the environment as ddprun sets it
///     ddp::DistributedDataParallel model(session.world(), parameters); // rank 0's values go to everyone
///     for (int step = 0; step < steps; ++step) {
///       backward();             // calls model.mark_ready(i) as gradient i is done; buckets reduce meanwhile
///       model.synchronize();    // gradients are now the average
///       optimizer_step();
///     }
///
/// Every failure throws ddp::Error. Threads: one thread at a time for each group.
///
/// It includes all public headers of libddp except ddp/libtorch.hpp, which needs libtorch. Optimizers and what else
/// trains but does not communicate are in ddp/training.hpp, a library of its own.
#pragma once

#include "ddp/buffer.hpp"
#include "ddp/checkpoint.hpp"
#include "ddp/comm_hook.hpp"
#include "ddp/cuda.hpp"
#include "ddp/ddp.h"
#include "ddp/distributed_data_parallel.hpp"
#include "ddp/error.hpp"
#include "ddp/failure.hpp"
#include "ddp/kept.hpp"
#include "ddp/parameter.hpp"
#include "ddp/process_group.hpp"
#include "ddp/rank_zero.hpp"
#include "ddp/run.hpp"
#include "ddp/sampler.hpp"
#include "ddp/session.hpp"
#include "ddp/spawn.hpp"
#include "ddp/store.hpp"
#include "ddp/work.hpp"
