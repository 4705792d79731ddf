// SPDX-License-Identifier: BSD-3-Clause
// Which GPUs this node gives the job. NVML is opened at run time if it is there; CUDA is never initialised here, since
// a launcher that holds a CUDA context takes memory on every GPU and cannot fork safely.
#pragma once

#include <optional>
#include <string>
#include <vector>

namespace ddp::launcher {

// Number of NVIDIA GPUs that NVML sees; nullopt if there is no driver (no libnvidia-ml.so.1, or it cannot start).
std::optional<int> count_nvidia_gpus();

// CUDA_VISIBLE_DEVICES for all workers of this node: what --gpus says, else what was inherited (also if empty), else
// all that NVML finds; nullopt: no GPU here, leave it unset.
std::optional<std::string> visible_gpus(const std::optional<std::string>& gpus_option);

// The entries of such a list, without blanks.
std::vector<std::string> split_gpus(const std::string& visible);

// Where each of them (an index, or a UUID as nvidia-smi -L shows it, also of a MIG instance) sits on the PCI bus, as
// sysfs spells it: "0000:dc:00.0". An index counts as NVML does, in PCI order; CUDA does so too where all GPUs are of
// one kind, or with CUDA_DEVICE_ORDER=PCI_BUS_ID. Throws rendezvous::Error: no NVML, no such GPU.
std::vector<std::string> pci_addresses(const std::vector<std::string>& gpus);

// With --virtual-local-rank: worker local_rank's own entry of the list. Throws rendezvous::Error if the list is too
// short; an empty list stays empty.
std::string gpu_of_worker(const std::string& visible, int local_rank);

}  // namespace ddp::launcher
