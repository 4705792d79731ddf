// SPDX-License-Identifier: BSD-3-Clause
// Finds the GPUs that the job uses on this node. NVML is opened at run time if it exists. CUDA is never initialised
// here, since a launcher with a CUDA context takes memory on every GPU and cannot fork safely.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "launcher/placement/gpu_kind.hpp"

namespace ddp::launcher {

// Returns the number of NVIDIA GPUs that NVML sees; nullopt if there is no driver (no libnvidia-ml.so.1, or it cannot
// start).
std::optional<int> count_nvidia_gpus();

struct FoundGpus {
  GpuKind kind = GpuKind::Nvidia;
  int count = 0;  // 0: none was found
};

// Returns the GPUs of this node: NVIDIA's if NVML sees any, else those of the first other kind that is there. The
// graphics of an Intel processor do not count.
FoundGpus find_gpus();

// The GPUs of this node that the job uses.
struct VisibleGpus {
  GpuKind kind = GpuKind::Nvidia;
  // As in the kind's variable: "0,1", for NVIDIA also UUIDs. Empty text: none may be used. nullopt: none is named, and
  // none was found.
  std::optional<std::string> list = {};

  int count() const;
};

// Returns the value of a variable, null if it is not set.
using ReadVariable = std::function<const char*(const char* name)>;

// Chooses the list: the value of --gpus, else of the kind's variable, else all GPUs that were found. If none was found,
// a variable that is set tells the kind.
VisibleGpus choose_gpus(const std::optional<std::string>& gpus_option, const FoundGpus& found,
                        const ReadVariable& read);

// Returns the choice among the GPUs of this node, with this process's environment.
VisibleGpus visible_gpus(const std::optional<std::string>& gpus_option, const FoundGpus& found = find_gpus());

// Returns the entries of a CUDA_VISIBLE_DEVICES list, without blanks, up to the first that is no GPU, such as -1: CUDA
// and HIP ignore the rest.
std::vector<std::string> split_gpus(const std::string& visible);

// Returns the PCI address of each GPU, as sysfs spells it: "0000:dc:00.0". A GPU is an index, or a UUID as nvidia-smi
// -L shows it, also of a MIG instance. An index counts as NVML does, in PCI order; CUDA does the same where all GPUs
// are of one kind, or with CUDA_DEVICE_ORDER=PCI_BUS_ID. Throws rendezvous::Error if there is no NVML or no such GPU.
std::vector<std::string> pci_addresses(const std::vector<std::string>& gpus);

// Returns the worker's own entry of the list, for --virtual-local-rank: empty if the list is empty, the local rank if
// there is none, as with torchrun. Throws rendezvous::Error if the list is too short.
std::string gpu_of_worker(const VisibleGpus& visible, int local_rank);

}  // namespace ddp::launcher
