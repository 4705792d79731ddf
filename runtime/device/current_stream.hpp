// SPDX-License-Identifier: BSD-3-Clause
// The stream of a CUDA device that this thread works on, one per thread and device. Operations on device memory run
// after the work on it, and it waits for them. Null, which is the legacy default stream, until it is set.
#pragma once

#include "collectives/gpu/cuda_api.hpp"

namespace ddp::runtime {

collectives::CudaStream* current_stream(int device);
void set_current_stream(int device, collectives::CudaStream* stream);

}  // namespace ddp::runtime
