// SPDX-License-Identifier: BSD-3-Clause
// PowerSGD for gradients on a GPU: the hook of the CPU, with P, Q, the rest and the errors on the device and kernels
// that compute them on the current stream. The host does not wait, so it does not learn which columns became zero:
// columns are made orthonormal twice in each step, and what is zero after the first time is filled in between.
#pragma once

#include <memory>

#include "runtime/training/hooks/powersgd.hpp"

namespace ddp::runtime {

// Throws rendezvous::Error: InvalidArgument for wrong options, System where libddp has no kernels.
std::unique_ptr<CommHook> make_cuda_powersgd_hook(ProcessGroup& group, const PowerSgdOptions& options);

}  // namespace ddp::runtime
