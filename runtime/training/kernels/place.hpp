// SPDX-License-Identifier: BSD-3-Clause
// Where a kernel runs: which thread of which block, and its way to memory. The same kernels are compiled for GPUs by
// NVRTC and for the host by this project's compiler, where a fake driver runs them for tests.
#pragma once

#include <cstdint>

namespace ddp::runtime::kernels {

struct Place {
  std::uint64_t block;
  std::uint64_t blocks;
  std::uint64_t thread;
  std::uint64_t threads;
  bool is_first() const { return block == 0 && thread == 0; }
};

// Goes before a loop that the compiler shall not unroll: where one thread works, or pow() would be there four times.
#ifdef __CUDACC_RTC__
#define DDP_ROLLED _Pragma("unroll 1")
#else
#define DDP_ROLLED
#endif

#ifdef __CUDACC_RTC__
inline Place here() { return {blockIdx.x, gridDim.x, threadIdx.x, blockDim.x}; }

template <typename T>
T* memory(T* at, std::uint64_t /*count*/) {
  return at;
}
#else
// Returns where `size` bytes of device memory really are on this host. The fake driver defines it, and ends the process
// if they are not device memory.
const void* device_bytes(const void* at, std::uint64_t size);

// Returns the elements behind a pointer to device memory. Each access to it goes through this.
template <typename T>
T* memory(T* at, std::uint64_t count) {
  return static_cast<T*>(const_cast<void*>(device_bytes(at, count * sizeof(T))));
}
#endif

}  // namespace ddp::runtime::kernels
