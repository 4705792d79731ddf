// SPDX-License-Identifier: BSD-3-Clause
// Jobs on GPU memory: over the fakes with one GPU per rank, or all ranks on the first real GPU.
#pragma once

#include <dlfcn.h>

#include "tests/runtime/job/run_job.hpp"

namespace ddp::test {

inline Variables fakes(const Variables& more = {}) {
  Variables all = more;
  all.insert({{"DDP_CUDA_LIBRARY", FAKE_CUDA}, {"DDP_NCCL_LIBRARY", FAKE_NCCL}, {"FAKE_CUDA_DEVICES", "4"}});
  return all;
}

inline int real_gpus() {
  void* library = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) return 0;
  const auto init = reinterpret_cast<int (*)(unsigned)>(dlsym(library, "cuInit"));
  const auto count = reinterpret_cast<int (*)(int*)>(dlsym(library, "cuDeviceGetCount"));
  int devices = 0;
  if (init == nullptr || count == nullptr || init(0) != 0 || count(&devices) != 0) return 0;
  return devices;
}

// Lets several ranks share one GPU. NCCL refuses that unless it believes that they are on different hosts.
inline Variables one_gpu() {
  return {{"TEST_ONE_GPU", "1"},          {"NCCL_SOCKET_IFNAME", "lo"}, {"NCCL_IB_DISABLE", "1"},
          {"NCCL_MNNVL_ENABLE", "0"},     {"NCCL_NVLS_ENABLE", "0"},    {"NCCL_MAX_CTAS", "2"},
          {"NCCL_CUMEM_HOST_ENABLE", "0"}};
}

}  // namespace ddp::test
