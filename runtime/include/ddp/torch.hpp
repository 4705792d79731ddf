// SPDX-License-Identifier: BSD-3-Clause
/// @file
/// libddp for programs that use libtorch.
#pragma once

#include "ddp/torch/distributed_data_parallel.hpp"
#include "ddp/torch/tensor.hpp"
