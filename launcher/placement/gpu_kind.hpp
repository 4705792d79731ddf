// SPDX-License-Identifier: BSD-3-Clause
// The kinds of GPU that a node may have. The kernel's files show those that are not NVIDIA's; none of their libraries
// is opened.
#pragma once

#include <string>
#include <vector>

namespace ddp::launcher {

enum class GpuKind { Nvidia, Amd, Intel, Ascend };

// The folders with the kernel's files, or copies of them.
struct DeviceFolders {
  std::string sysfs = "/sys";
  std::string dev = "/dev";
};

// Counts the GPUs of a kind other than Nvidia that this process may use: those whose device files are in `dev`, since
// sysfs shows a container all GPUs of its host.
//   AMD      nodes of the KFD topology that have SIMD units
//   Intel    DRM devices, without the processor's own graphics if there are others; one for each tile of a GPU, as
//            Level Zero shows them, unless ZE_FLAT_DEVICE_HIERARCHY says COMPOSITE or COMBINED
//   Ascend   davinci devices
int count_gpus(GpuKind kind, const DeviceFolders& folders = {});

// Returns whether the processor's own graphics are the only Intel GPU, which most builds of PyTorch do not use.
bool has_only_integrated_intel(const DeviceFolders& folders = {});

// Returns whether the kernel shows accelerators of a kind that is not counted here, such as Gaudi. Accelerators
// inside Intel's and AMD's processors do not count, since PyTorch does not use them.
bool has_other_accelerators(const DeviceFolders& folders = {});

// Returns the variables that choose among the GPUs of a kind; the first one that is set counts.
std::vector<const char*> variables_of(GpuKind kind);

}  // namespace ddp::launcher
