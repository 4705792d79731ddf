// SPDX-License-Identifier: BSD-3-Clause
// The source that NVRTC compiles (compile_kernels.py): an entry point for each kernel, named as in arguments.hpp.
#include "runtime/training/kernels/gradient_kernels.hpp"
#include "runtime/training/kernels/optimizer_kernels.hpp"

#define DDP_ENTRY_POINT(name, Arguments)                                                       \
  extern "C" __global__ void ddp_##name(const ddp::runtime::kernels::Arguments arguments) {   \
    ddp::runtime::kernels::name(arguments, ddp::runtime::kernels::here());                    \
  }
DDP_TRAINING_KERNELS(DDP_ENTRY_POINT)
