// SPDX-License-Identifier: BSD-3-Clause
// Finds the GPUs that the job uses on this node. NVML is opened at run time if it exists. CUDA is never initialised
// here, since a launcher with a CUDA context takes memory on every GPU and cannot fork safely.
#pragma once

#include <optional>
#include <string>
#include <vector>

namespace ddp::launcher {

// Returns the number of NVIDIA GPUs that NVML sees; nullopt if there is no driver (no libnvidia-ml.so.1, or it cannot
// start).
std::optional<int> count_nvidia_gpus();

// Returns CUDA_VISIBLE_DEVICES for all workers of this node: the value of --gpus, else the inherited one (even if
// empty), else all GPUs that NVML finds; nullopt if there is no GPU, so that it stays unset.
std::optional<std::string> visible_gpus(const std::optional<std::string>& gpus_option);

// Returns the entries of a CUDA_VISIBLE_DEVICES list, without blanks.
std::vector<std::string> split_gpus(const std::string& visible);

// Returns the PCI address of each GPU, as sysfs spells it: "0000:dc:00.0". A GPU is an index, or a UUID as nvidia-smi
// -L shows it, also of a MIG instance. An index counts as NVML does, in PCI order; CUDA does the same where all GPUs
// are of one kind, or with CUDA_DEVICE_ORDER=PCI_BUS_ID. Throws rendezvous::Error if there is no NVML or no such GPU.
std::vector<std::string> pci_addresses(const std::vector<std::string>& gpus);

// Returns the worker's own entry of the list, for --virtual-local-rank; empty if the list is empty. Throws
// rendezvous::Error if the list is too short.
std::string gpu_of_worker(const std::string& visible, int local_rank);

}  // namespace ddp::launcher
