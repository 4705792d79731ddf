// SPDX-License-Identifier: BSD-3-Clause
#include "launcher/placement/gpu_kind.hpp"

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string_view>

#include "rendezvous/base/text.hpp"
#include "rendezvous/worker_contract.hpp"

namespace ddp::launcher {

namespace contract = rendezvous::contract;
namespace fs = std::filesystem;

namespace {

constexpr char kRenderNode[] = "renderD";
constexpr char kIntelVendor[] = "0x8086";
constexpr char kAmdVendor[] = "0x1022";         // on processors; AMD GPUs have another
constexpr char kIntegrated[] = "0000:00:02.0";  // the PCI address of every Intel processor's own graphics

// Returns the files of a folder whose names are the prefix and a number.
std::vector<fs::path> numbered(const fs::path& folder, std::string_view prefix) {
  std::error_code error;
  std::vector<fs::path> found;
  for (fs::directory_iterator entry(folder, error), end; !error && entry != end; entry.increment(error)) {
    const std::string name = entry->path().filename();
    if (name.starts_with(prefix) && rendezvous::parse_number<int>(std::string_view(name).substr(prefix.size()))) {
      found.push_back(entry->path());
    }
  }
  return found;
}

std::string first_word(const fs::path& path) {
  std::ifstream file(path);
  std::string word;
  file >> word;
  return word;
}

bool is_there(const fs::path& path) {
  std::error_code ignored;
  return fs::exists(path, ignored);
}

// Returns a property of a node of the KFD topology; 0 also if a control group hides the device.
int property_of(const fs::path& node, const std::string& wanted) {
  std::ifstream file(node / "properties");
  for (std::string name, value; file >> name >> value;) {
    if (name == wanted) return rendezvous::parse_number<int>(value).value_or(0);
  }
  return 0;
}

int count_amd(const DeviceFolders& folders) {
  if (!is_there(fs::path(folders.dev) / "kfd")) return 0;
  int count = 0;
  for (const fs::path& node : numbered(fs::path(folders.sysfs) / "class/kfd/kfd/topology/nodes", "")) {
    if (property_of(node, "simd_count") == 0) continue;  // a processor
    const int render_node = property_of(node, "drm_render_minor");
    const fs::path device = fs::path(folders.dev) / "dri" / (kRenderNode + std::to_string(render_node));
    if (render_node <= 0 || is_there(device)) ++count;
  }
  return count;
}

struct IntelGpus {
  int discrete = 0;  // their tiles
  int integrated = 0;
};

bool shows_whole_cards() {
  const char* hierarchy = getenv("ZE_FLAT_DEVICE_HIERARCHY");
  return hierarchy && (std::string_view(hierarchy) == "COMPOSITE" || std::string_view(hierarchy) == "COMBINED");
}

// The xe driver has a folder for each tile, i915 a GT, which on discrete GPUs is the same.
int tiles_of(const fs::path& device) {
  if (shows_whole_cards()) return 1;
  std::size_t tiles = numbered(device, "tile").size();
  if (tiles == 0) {
    for (const fs::path& card : numbered(device / "drm", "card")) tiles += numbered(card / "gt", "gt").size();
  }
  return std::max(1, static_cast<int>(tiles));
}

IntelGpus count_intel(const DeviceFolders& folders) {
  IntelGpus gpus;
  for (const fs::path& render_node : numbered(fs::path(folders.sysfs) / "class/drm", kRenderNode)) {
    const fs::path device = render_node / "device";
    if (first_word(device / "vendor") != kIntelVendor) continue;
    if (!is_there(fs::path(folders.dev) / "dri" / render_node.filename())) continue;
    std::error_code ignored;
    if (fs::canonical(device, ignored).filename() == kIntegrated) {
      ++gpus.integrated;
    } else {
      gpus.discrete += tiles_of(device);
    }
  }
  return gpus;
}

}  // namespace

int count_gpus(GpuKind kind, const DeviceFolders& folders) {
  switch (kind) {
    case GpuKind::Amd:
      return count_amd(folders);
    case GpuKind::Intel: {
      const IntelGpus gpus = count_intel(folders);
      return gpus.discrete > 0 ? gpus.discrete : gpus.integrated;
    }
    case GpuKind::Ascend:
      return static_cast<int>(numbered(folders.dev, "davinci").size());
    case GpuKind::Nvidia:
      break;  // count_nvidia_gpus() asks the driver
  }
  return 0;
}

bool has_only_integrated_intel(const DeviceFolders& folders) {
  const IntelGpus gpus = count_intel(folders);
  return gpus.discrete == 0 && gpus.integrated > 0;
}

bool has_other_accelerators(const DeviceFolders& folders) {
  const std::vector<fs::path> all = numbered(fs::path(folders.sysfs) / "class/accel", "accel");
  return std::any_of(all.begin(), all.end(), [](const fs::path& accelerator) {
    const std::string vendor = first_word(accelerator / "device/vendor");
    return vendor != kIntelVendor && vendor != kAmdVendor;
  });
}

std::vector<const char*> variables_of(GpuKind kind) {
  switch (kind) {
    case GpuKind::Amd:
      return {contract::kHipVisibleDevices, contract::kCudaVisibleDevices};
    case GpuKind::Intel:
      return {contract::kZeAffinityMask};
    case GpuKind::Ascend:
      return {contract::kAscendVisibleDevices};
    case GpuKind::Nvidia:
      break;
  }
  return {contract::kCudaVisibleDevices};
}

}  // namespace ddp::launcher
