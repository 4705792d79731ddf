// SPDX-License-Identifier: BSD-3-Clause
// NVML, opened at run time if it exists. CUDA is not initialised by it.
#pragma once

#include <dlfcn.h>

#include <cstdio>
#include <cstdlib>
#include <optional>
#include <string>

namespace ddp::launcher {

// Declarations from nvml.h, where every function returns nvmlReturn_t, 0 on success.
using NvmlDevice = void*;
struct NvmlPciInfo {  // nvmlPciInfo_t
  char bus_id_legacy[16];
  unsigned domain, bus, device, device_id, subsystem_id;
  char bus_id[32];
};

// NVML, open and initialised while this lives; is_open() is false if it cannot be.
class Nvml {
 public:
  Nvml() : library_(dlopen("libnvidia-ml.so.1", RTLD_NOW | RTLD_LOCAL)) {
    const auto init = function<int (*)()>("nvmlInit_v2");
    is_open_ = init && init() == 0;
  }
  ~Nvml() {
    const auto shutdown = function<int (*)()>("nvmlShutdown");
    if (is_open_ && shutdown) shutdown();
    if (library_) dlclose(library_);
  }
  Nvml(const Nvml&) = delete;
  Nvml& operator=(const Nvml&) = delete;

  bool is_open() const { return is_open_; }

  std::optional<int> count() const {
    const auto get_count = function<int (*)(unsigned*)>("nvmlDeviceGetCount_v2");
    unsigned count = 0;
    return is_open_ && get_count && get_count(&count) == 0 ? std::optional(static_cast<int>(count)) : std::nullopt;
  }

  std::optional<std::string> pci_address(const std::string& gpu) const {
    const auto get_info = function<int (*)(NvmlDevice, NvmlPciInfo*)>("nvmlDeviceGetPciInfo_v3");
    NvmlDevice device = is_open_ ? find(gpu) : nullptr;
    NvmlPciInfo info = {};
    if (!device || !get_info || get_info(device, &info) != 0) return std::nullopt;
    char address[32];
    snprintf(address, sizeof address, "%04x:%02x:%02x.0", info.domain, info.bus, info.device);
    return address;
  }

  // Returns a function of the library; null if it has none of this name.
  template <typename Function>
  Function function(const char* name) const {
    return library_ ? reinterpret_cast<Function>(dlsym(library_, name)) : nullptr;
  }

  // Returns a GPU by its index or UUID; null if there is none.
  NvmlDevice find(const std::string& gpu) const {
    NvmlDevice device = nullptr;
    if (!gpu.empty() && gpu.find_first_not_of("0123456789") == std::string::npos) {
      const auto by_index = function<int (*)(unsigned, NvmlDevice*)>("nvmlDeviceGetHandleByIndex_v2");
      const auto index = static_cast<unsigned>(strtoul(gpu.c_str(), nullptr, 10));
      return by_index && by_index(index, &device) == 0 ? device : nullptr;
    }
    const auto by_uuid = function<int (*)(const char*, NvmlDevice*)>("nvmlDeviceGetHandleByUUID");
    if (!by_uuid || by_uuid(gpu.c_str(), &device) != 0) return nullptr;
    // A MIG instance is not a PCI device; the GPU that it is a part of is.
    const auto parent = function<int (*)(NvmlDevice, NvmlDevice*)>("nvmlDeviceGetDeviceHandleFromMigDeviceHandle");
    NvmlDevice whole = nullptr;
    return gpu.rfind("MIG-", 0) == 0 && parent && parent(device, &whole) == 0 ? whole : device;
  }

 private:
  void* library_;
  bool is_open_ = false;
};

}  // namespace ddp::launcher
