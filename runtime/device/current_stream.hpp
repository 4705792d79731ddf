// SPDX-License-Identifier: BSD-3-Clause
// Which stream of a CUDA device this thread works on: what operations on device memory follow, and what waits for
// them. Null, the legacy default stream, until it is set. One a thread and device.
#pragma once

#include "collectives/gpu/cuda_api.hpp"

namespace ddp::runtime {

collectives::CudaStream* current_stream(int device);
void set_current_stream(int device, collectives::CudaStream* stream);

}  // namespace ddp::runtime
