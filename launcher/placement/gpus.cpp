// SPDX-License-Identifier: BSD-3-Clause
#include "launcher/placement/gpus.hpp"

#include <cctype>
#include <cstdio>
#include <cstdlib>
#include <sstream>
#include <string_view>
#include <vector>

#include "launcher/placement/nvml.hpp"
#include "rendezvous/base/error.hpp"
#include "rendezvous/base/text.hpp"
#include "rendezvous/worker_contract.hpp"

namespace ddp::launcher {

namespace contract = rendezvous::contract;

namespace {

using rendezvous::Error;
using rendezvous::ErrorCode;

constexpr GpuKind kOtherKinds[] = {GpuKind::Amd, GpuKind::Intel, GpuKind::Ascend};

}  // namespace

std::optional<int> count_nvidia_gpus() { return Nvml().count(); }

FoundGpus find_gpus() {
  if (const int count = count_nvidia_gpus().value_or(0); count > 0) return {GpuKind::Nvidia, count};
  for (const GpuKind kind : kOtherKinds) {
    if (kind == GpuKind::Intel && has_only_integrated_intel()) continue;
    if (const int count = count_gpus(kind); count > 0) return {kind, count};
  }
  return {};
}

int VisibleGpus::count() const { return list ? static_cast<int>(split_gpus(*list).size()) : 0; }

VisibleGpus choose_gpus(const std::optional<std::string>& gpus_option, const FoundGpus& found,
                        const ReadVariable& read) {
  const auto is_set = [&](const char* name) { return read(name) && *read(name) != '\0'; };
  VisibleGpus visible{found.kind};
  if (found.count == 0) {
    for (const GpuKind kind : kOtherKinds) {
      if (visible.kind == GpuKind::Nvidia && is_set(variables_of(kind).front())) visible.kind = kind;
    }
  }
  if (gpus_option) {
    visible.list = gpus_option;
    return visible;
  }
  for (const char* name : variables_of(visible.kind)) {
    // As with torchrun, an empty CUDA_VISIBLE_DEVICES hides all GPUs, and the other variables do nothing then.
    const bool counts = name == std::string_view(contract::kCudaVisibleDevices) ? read(name) != nullptr : is_set(name);
    if (!visible.list && counts) visible.list = read(name);
  }
  if (visible.list) return visible;
  // ROCR_VISIBLE_DEVICES renumbers AMD's GPUs from 0 before the other variables choose among them.
  const bool is_renumbered = visible.kind == GpuKind::Amd && is_set(contract::kRocrVisibleDevices);
  const int count =
      is_renumbered ? static_cast<int>(split_gpus(read(contract::kRocrVisibleDevices)).size()) : found.count;
  for (int i = 0; i < count; ++i) visible.list = (visible.list ? *visible.list + "," : "") + std::to_string(i);
  return visible;
}

VisibleGpus visible_gpus(const std::optional<std::string>& gpus_option, const FoundGpus& found) {
  return choose_gpus(gpus_option, found, [](const char* name) -> const char* { return getenv(name); });
}

std::vector<std::string> split_gpus(const std::string& visible) {
  std::vector<std::string> entries;
  std::istringstream list(visible);
  for (std::string text; std::getline(list, text, ',');) {
    const std::string entry(rendezvous::trimmed(text));
    const bool is_gpu = !entry.empty() && isalnum(static_cast<unsigned char>(entry.front())) && entry != "NoDevFiles";
    if (!is_gpu) break;
    entries.push_back(entry);
  }
  return entries;
}

std::vector<std::string> pci_addresses(const std::vector<std::string>& gpus) {
  const Nvml nvml;
  if (!nvml.is_open()) {
    throw Error(ErrorCode::System, "cannot find out where GPU " + gpus.front() +
                                       " is: NVML (libnvidia-ml.so.1) cannot be opened; is NVIDIA's driver installed?");
  }
  std::vector<std::string> addresses;
  for (const std::string& gpu : gpus) {
    const auto address = nvml.pci_address(gpu);
    if (!address) {
      throw Error(ErrorCode::InvalidArgument,
                  "NVML knows no GPU '" + gpu + "'; nvidia-smi -L lists the GPUs of this machine");
    }
    addresses.push_back(*address);
  }
  return addresses;
}

std::string gpu_of_worker(const VisibleGpus& visible, int local_rank) {
  if (!visible.list) return std::to_string(local_rank);
  const std::vector<std::string> entries = split_gpus(*visible.list);
  if (entries.empty()) return "";
  if (local_rank >= static_cast<int>(entries.size())) {
    throw Error(ErrorCode::InvalidArgument, "--virtual-local-rank gives each worker one GPU, but there are " +
                                                std::to_string(entries.size()) + " (" +
                                                variables_of(visible.kind).front() + "=" + *visible.list +
                                                ") and more workers; lower --nproc-per-node or name more with --gpus");
  }
  return entries[static_cast<std::size_t>(local_rank)];
}

}  // namespace ddp::launcher
