// SPDX-License-Identifier: BSD-3-Clause
/// @file
/// The training kit for programs that use libtorch: SyncBatchNorm, ZeroRedundancyOptimizer and GradScaler for tensors
/// on any device. Link ddprun::torch and ddprun::training.
#pragma once

#include "ddp/training/libtorch/grad_scaler.hpp"
#include "ddp/training/libtorch/sync_batch_norm.hpp"
#include "ddp/training/libtorch/zero_redundancy_optimizer.hpp"
