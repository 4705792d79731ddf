// SPDX-License-Identifier: BSD-3-Clause
/// @file
/// The training kit for C++17: what a PyTorch program has around process groups, on plain memory of the CPU, with
/// PyTorch's names. Header-only over ddp/c/training.h and ddp/ddp.hpp; link ddprun::training, or what
/// `pkg-config --cflags --libs ddp-training` says.
///
///     ddp::AdamW optimizer(parameters);
///     ddp::GradScaler scaler({}, session.world());
///
/// Every failure throws ddp::Error. ddp/training/libtorch.hpp has its classes for tensors of libtorch.
#pragma once

#include "ddp/training/clip_grad_norm.hpp"
#include "ddp/training/data_parallel.hpp"
#include "ddp/training/grad_scaler.hpp"
#include "ddp/training/master_weights.hpp"
#include "ddp/training/optimizer.hpp"
#include "ddp/training/progress_bar.hpp"
#include "ddp/training/sync_batch_norm.hpp"
#include "ddp/training/zero_redundancy_optimizer.hpp"
