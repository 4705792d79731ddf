// SPDX-License-Identifier: BSD-3-Clause
#include "apps/ddp_bench/device_stream.hpp"

#include <stdexcept>

namespace ddp::bench {

using collectives::CudaResult;
using collectives::CurrentDevice;

namespace {

void require(const collectives::CudaApi& api, CudaResult result, const char* what) {
  if (result != CudaResult::Success) throw std::runtime_error(cuda_failure(api, result, what));
}

}  // namespace

DeviceStream::DeviceStream(int index) : device(collectives::cuda_api(), index) {
  const CurrentDevice current(device);
  require(device.api(), device.api().stream_create_with_priority(&stream, collectives::kCudaNonBlockingStream, 0),
          "making a stream");
}

DeviceStream::~DeviceStream() {
  const CurrentDevice current(device);
  device.api().stream_destroy(stream);
}

void DeviceStream::synchronize() const {
  const CurrentDevice current(device);
  require(device.api(), device.api().stream_synchronize(stream), "waiting for a stream");
}

}  // namespace ddp::bench
