// SPDX-License-Identifier: BSD-3-Clause
#include "launcher/local/gpu_usage.hpp"

#include <chrono>
#include <exception>
#include <mutex>
#include <utility>

#include "launcher/placement/nvml.hpp"
#include "rendezvous/base/thread.hpp"

namespace ddp::launcher {
namespace {

using Clock = std::chrono::steady_clock;

constexpr std::chrono::seconds kFresh{10};  // an older sample says nothing of now
constexpr unsigned kMostProcesses = 256;    // on one GPU

// Declarations from nvml.h.
struct NvmlUtilization {  // nvmlUtilization_t
  unsigned gpu, memory;
};
struct NvmlMemory {  // nvmlMemory_t
  unsigned long long total, free, used;
};
struct NvmlProcessInfo {  // nvmlProcessInfo_t
  unsigned pid;
  unsigned long long used_memory;
  unsigned gpu_instance, compute_instance;
};

std::vector<pid_t> processes_on(const Nvml& nvml, NvmlDevice device) {
  const auto get =
      nvml.function<int (*)(NvmlDevice, unsigned*, NvmlProcessInfo*)>("nvmlDeviceGetComputeRunningProcesses_v3");
  std::vector<NvmlProcessInfo> found(kMostProcesses);
  unsigned count = kMostProcesses;
  if (!get || get(device, &count, found.data()) != 0 || count > kMostProcesses) return {};
  std::vector<pid_t> pids;
  for (unsigned i = 0; i < count; ++i) pids.push_back(static_cast<pid_t>(found[i].pid));
  return pids;
}

}  // namespace

std::vector<GpuUse> gpu_use() {
  const Nvml nvml;
  const auto utilization = nvml.function<int (*)(NvmlDevice, NvmlUtilization*)>("nvmlDeviceGetUtilizationRates");
  const auto memory = nvml.function<int (*)(NvmlDevice, NvmlMemory*)>("nvmlDeviceGetMemoryInfo");
  std::vector<GpuUse> all;
  for (int index = 0; index < nvml.count().value_or(0); ++index) {
    NvmlDevice const device = nvml.find(std::to_string(index));
    if (device == nullptr) continue;
    GpuUse& use = all.emplace_back(GpuUse{.index = index});
    NvmlUtilization rates = {};
    if (utilization && utilization(device, &rates) == 0) use.percent = static_cast<int>(rates.gpu);
    NvmlMemory bytes = {};
    if (memory && memory(device, &bytes) == 0) {
      use.memory = static_cast<std::int64_t>(bytes.used);
      use.capacity = static_cast<std::int64_t>(bytes.total);
    }
    use.pids = processes_on(nvml, device);
  }
  return all;
}

struct GpuSampler::Sample {
  std::mutex mutex;
  bool is_under_way = false;
  std::vector<GpuUse> newest;
  Clock::time_point at;
};

std::vector<GpuUse> GpuSampler::newest() {
  if (!sample_) sample_ = std::make_shared<Sample>();
  const std::lock_guard lock(sample_->mutex);
  const bool is_fresh = !sample_->newest.empty() && Clock::now() - sample_->at < kFresh;
  std::vector<GpuUse> found = is_fresh ? sample_->newest : std::vector<GpuUse>();
  if (std::exchange(sample_->is_under_way, true)) return found;  // a driver that hangs is asked once
  try {
    rendezvous::start_thread("ddprun-gpus", [sample = sample_] {
      std::vector<GpuUse> taken = gpu_use();
      const std::lock_guard taken_lock(sample->mutex);
      sample->newest = std::move(taken);
      sample->at = Clock::now();
      sample->is_under_way = false;
    }).detach();
  } catch (const std::exception&) {  // no thread can be had now
    sample_->is_under_way = false;
  }
  return found;
}

}  // namespace ddp::launcher
