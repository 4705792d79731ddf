// SPDX-License-Identifier: BSD-3-Clause
// A GPU and one of its streams, on which what is measured puts its calls.
#pragma once

#include "collectives/gpu/cuda_device.hpp"

namespace ddp::bench {

struct DeviceStream {
  explicit DeviceStream(int index);
  ~DeviceStream();
  DeviceStream(const DeviceStream&) = delete;
  DeviceStream& operator=(const DeviceStream&) = delete;
  void synchronize() const;

  collectives::CudaDevice device;
  collectives::CudaStream* stream = nullptr;
};

}  // namespace ddp::bench
