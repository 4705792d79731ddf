// SPDX-License-Identifier: BSD-3-Clause
#include "launcher/placement/gpus.hpp"

#include <catch2/catch.hpp>
#include <filesystem>
#include <map>

#include "tests/support/process.hpp"

using namespace ddp::launcher;

namespace {

namespace fs = std::filesystem;

// A copy of the kernel's files about GPUs.
struct Machine {
  void put(const std::string& name, const std::string& text = "") const { ddp::testing::write_file(root / name, text); }
  // A device of the DRM, with the device file that makes it usable here.
  std::string drm(int minor, const std::string& vendor, const std::string& pci_address, bool is_usable = true) const {
    const std::string device = "sys/devices/pci0000:00/" + pci_address, node = "renderD" + std::to_string(minor);
    put(device + "/vendor", vendor + "\n");
    fs::create_directories(root / ("sys/class/drm/" + node));
    fs::create_directory_symlink(root / device, root / ("sys/class/drm/" + node + "/device"));
    if (is_usable) put("dev/dri/" + node);
    return device;
  }
  void kfd(int node, int simds, int minor) const {
    put("sys/class/kfd/kfd/topology/nodes/" + std::to_string(node) + "/properties",
        "hive_id 17442069562347839488\nsimd_count " + std::to_string(simds) + "\ndrm_render_minor " +
            std::to_string(minor) + "\n");
  }
  int count(GpuKind kind) const { return count_gpus(kind, folders); }

  ddp::testing::TemporaryFolder root;
  DeviceFolders folders{root / "sys", root / "dev"};
};

VisibleGpus choose(const std::optional<std::string>& option, const FoundGpus& found,
                   const std::map<std::string, std::string>& environment = {}) {
  return choose_gpus(option, found, [&](const char* name) -> const char* {
    const auto entry = environment.find(name);
    return entry == environment.end() ? nullptr : entry->second.c_str();
  });
}

}  // namespace

TEST_CASE("gpus: a machine without any has none of each kind", "[launcher][unit]") {
  const Machine machine;
  for (const GpuKind kind : {GpuKind::Amd, GpuKind::Intel, GpuKind::Ascend}) CHECK(machine.count(kind) == 0);
  CHECK_FALSE(has_other_accelerators(machine.folders));
}

TEST_CASE("gpus: AMD's are nodes of the KFD topology that are no processors and have their device file",
          "[launcher][unit]") {
  const Machine machine;
  machine.kfd(0, 0, 0);
  machine.kfd(1, 304, 128);
  machine.kfd(2, 304, 129);
  machine.kfd(3, 304, 130);
  CHECK(machine.count(GpuKind::Amd) == 0);  // there is no /dev/kfd, as in a container that was not given one
  machine.put("dev/kfd");
  machine.put("dev/dri/renderD128");
  machine.put("dev/dri/renderD130");
  CHECK(machine.count(GpuKind::Amd) == 2);
}

TEST_CASE("gpus: Intel's are DRM devices, without the processor's own if there are others", "[launcher][unit]") {
  const Machine machine;
  machine.drm(128, "0x8086", "0000:00:02.0");
  machine.drm(129, "0x10de", "0000:01:00.0");
  CHECK(machine.count(GpuKind::Intel) == 1);
  CHECK(has_only_integrated_intel(machine.folders));
  machine.drm(130, "0x8086", "0000:3a:00.0");
  machine.drm(131, "0x8086", "0000:3b:00.0");
  machine.drm(132, "0x8086", "0000:3c:00.0", false);
  CHECK(machine.count(GpuKind::Intel) == 2);
  CHECK_FALSE(has_only_integrated_intel(machine.folders));
}

TEST_CASE("gpus: each tile of an Intel GPU is one, as Level Zero shows them", "[launcher][unit]") {
  const Machine machine;
  const std::string xe = machine.drm(128, "0x8086", "0000:3a:00.0"), i915 = machine.drm(129, "0x8086", "0000:3b:00.0");
  for (const char* tile : {"tile0", "tile1"}) fs::create_directories(machine.root / (xe + "/" + tile));
  for (const char* gt : {"gt0", "gt1"}) fs::create_directories(machine.root / (i915 + "/drm/card1/gt/" + gt));
  CHECK(machine.count(GpuKind::Intel) == 4);
}

TEST_CASE("gpus: Ascend's are their device files, and what is not known is seen to be there", "[launcher][unit]") {
  const Machine machine;
  for (const char* name : {"davinci0", "davinci7", "davinci_manager"}) machine.put(std::string("dev/") + name);
  CHECK(machine.count(GpuKind::Ascend) == 2);
  machine.put("sys/class/accel/accel0/device/vendor", "0x8086\n");
  CHECK_FALSE(has_other_accelerators(machine.folders));
  machine.put("sys/class/accel/accel1/device/vendor", "0x1da3\n");
  CHECK(has_other_accelerators(machine.folders));
}

TEST_CASE("gpus: --gpus chooses, else the kind's variable, else all that are there", "[launcher][unit]") {
  const FoundGpus amd{GpuKind::Amd, 4}, intel{GpuKind::Intel, 2}, nvidia{GpuKind::Nvidia, 2};
  CHECK(choose("1", amd, {{"HIP_VISIBLE_DEVICES", "2"}}).list == "1");
  CHECK(choose({}, amd, {{"HIP_VISIBLE_DEVICES", "2,3"}, {"CUDA_VISIBLE_DEVICES", "0"}}).list == "2,3");
  CHECK(choose({}, amd, {{"HIP_VISIBLE_DEVICES", ""}, {"CUDA_VISIBLE_DEVICES", "0"}}).list == "0");
  CHECK(choose({}, amd, {{"ROCR_VISIBLE_DEVICES", "2,3"}}).list == "0,1");
  CHECK(choose({}, amd).list == "0,1,2,3");
  CHECK(choose({}, intel, {{"ZE_AFFINITY_MASK", "0.1"}, {"CUDA_VISIBLE_DEVICES", ""}}).list == "0.1");
  CHECK(choose({}, nvidia, {{"HIP_VISIBLE_DEVICES", "7"}}).list == "0,1");
  CHECK(choose({}, nvidia, {{"CUDA_VISIBLE_DEVICES", ""}}).list == "");
  CHECK(choose({}, nvidia, {{"CUDA_VISIBLE_DEVICES", ""}}).count() == 0);
  // CUDA and HIP ignore what follows an entry that is no GPU.
  for (const char* none : {"-1", "-1,0", "NoDevFiles", ",0"}) {
    CAPTURE(none);
    CHECK(choose({}, nvidia, {{"CUDA_VISIBLE_DEVICES", none}}).count() == 0);
  }
  CHECK(choose({}, nvidia, {{"CUDA_VISIBLE_DEVICES", "1, 0,-1,2"}}).count() == 2);
}

TEST_CASE("gpus: if none is found, a variable that is set tells the kind", "[launcher][unit]") {
  CHECK(choose({}, {}, {{"HIP_VISIBLE_DEVICES", "4,6"}}).kind == GpuKind::Amd);
  CHECK(choose({}, {}, {{"ASCEND_RT_VISIBLE_DEVICES", "4,6"}}).kind == GpuKind::Ascend);
  CHECK(choose({}, {}, {{"CUDA_VISIBLE_DEVICES", "4,6"}}).kind == GpuKind::Nvidia);
  CHECK_FALSE(choose({}, {}).list);
}
