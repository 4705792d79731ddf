// SPDX-License-Identifier: BSD-3-Clause
#include "launcher/gpus.hpp"

#include <dlfcn.h>

#include <cstdlib>
#include <sstream>
#include <vector>

#include "rendezvous/error.hpp"
#include "rendezvous/worker_contract.hpp"

namespace ddp::launcher {

namespace contract = rendezvous::contract;

std::optional<int> count_nvidia_gpus() {
  void* nvml = dlopen("libnvidia-ml.so.1", RTLD_NOW | RTLD_LOCAL);
  if (!nvml) return std::nullopt;
  // From nvml.h: every function returns nvmlReturn_t, 0 on success.
  const auto init = reinterpret_cast<int (*)()>(dlsym(nvml, "nvmlInit_v2"));
  const auto get_count = reinterpret_cast<int (*)(unsigned*)>(dlsym(nvml, "nvmlDeviceGetCount_v2"));
  const auto shutdown = reinterpret_cast<int (*)()>(dlsym(nvml, "nvmlShutdown"));
  std::optional<int> result;
  if (init && get_count && shutdown && init() == 0) {
    unsigned count = 0;
    if (get_count(&count) == 0) result = static_cast<int>(count);
    shutdown();
  }
  dlclose(nvml);
  return result;
}

std::optional<std::string> visible_gpus(const std::optional<std::string>& gpus_option) {
  if (gpus_option) return gpus_option;
  if (const char* inherited = getenv(contract::kCudaVisibleDevices)) return inherited;
  const int count = count_nvidia_gpus().value_or(0);
  if (count == 0) return std::nullopt;
  std::string all = "0";
  for (int i = 1; i < count; ++i) all += "," + std::to_string(i);
  return all;
}

std::string gpu_of_worker(const std::string& visible, int local_rank) {
  std::vector<std::string> entries;
  std::istringstream list(visible);
  for (std::string entry; std::getline(list, entry, ',');) {
    const auto first = entry.find_first_not_of(" \t");
    const auto last = entry.find_last_not_of(" \t");
    entries.push_back(first == std::string::npos ? "" : entry.substr(first, last - first + 1));
  }
  if (entries.empty()) return "";
  if (local_rank >= static_cast<int>(entries.size())) {
    throw rendezvous::Error(rendezvous::ErrorCode::InvalidArgument,
                            "--virtual-local-rank gives each worker one GPU, but there are " +
                                std::to_string(entries.size()) + " (CUDA_VISIBLE_DEVICES=" + visible +
                                ") and more workers; lower --nproc-per-node or name more with --gpus");
  }
  return entries[static_cast<std::size_t>(local_rank)];
}

}  // namespace ddp::launcher
