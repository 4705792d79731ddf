// SPDX-License-Identifier: BSD-3-Clause
// Checkpoints of tensors in GPU memory, next to those of the CPU's.
#include <algorithm>
#include <atomic>
#include <catch2/catch.hpp>
#include <filesystem>
#include <string>
#include <vector>

#include "tests/runtime/training/checkpoint/gpu_model.hpp"
#include "tests/support/process.hpp"

using Catch::Matchers::Contains;
using ddp::test::GpuSetting;
using ddp::test::numbers;
using ddp::test::TwoModels;
using ddp::testing::read_file;
using ddp::testing::TemporaryFolder;

namespace {

// Compares all files of two folders.
void check_same_files(const std::string& one, const std::string& other) {
  std::vector<std::string> names;
  for (const auto& each : std::filesystem::directory_iterator(one)) names.push_back(each.path().filename());
  REQUIRE(names.size() >= 2);
  for (const std::string& name : names) {
    INFO(name);
    CHECK(read_file(one + "/" + name) == read_file(other + "/" + name));
  }
}

const std::vector<std::size_t> kCounts = {3, 0, 5'000'000, 1, 70};  // the large one is read in two pieces

void fill(TwoModels& models, unsigned seed) {
  for (std::size_t i = 0; i < models.values.size(); ++i) {
    models.set_values(i, numbers(models.values[i].size(), seed + static_cast<unsigned>(i)));
  }
}

}  // namespace

TEST_CASE("GPU checkpoint: a file has the same bytes as from the CPU's memory, and goes into either",
          "[training][unit]") {
  GpuSetting setting;
  const TemporaryFolder folder;
  TwoModels models(setting, kCounts);
  fill(models, 1);
  ddp::save_parameters(folder / "cpu", models.on_cpu(), {{"step", "7"}});
  ddp::save_parameters(folder / "gpu", models.on_gpu(), {{"step", "7"}});
  CHECK(read_file(folder / "cpu") == read_file(folder / "gpu"));
  TwoModels read(setting, kCounts);
  ddp::load_parameters(folder / "gpu", read.on_gpu());
  ddp::load_parameters(folder / "gpu", read.on_cpu());
  for (std::size_t i = 0; i < kCounts.size(); ++i) {
    CHECK(read.gpu_value(i) == models.values[i]);
    CHECK(read.values[i] == models.values[i]);
  }
}

TEST_CASE("GPU checkpoint: a step in the background has what was there, and the host waits for nothing",
          "[training][unit]") {
  GpuSetting setting;
  const TemporaryFolder place;
  const bool follows = GENERATE(true, false);
  TwoModels models(setting, {1000, 3});
  fill(models, 1);
  ddp::CheckpointFolder on_cpu(place / "cpu");
  ddp::CheckpointOptions options;
  options.follow_copies = follows;
  ddp::CheckpointFolder on_gpu(place / "gpu", options);
  on_gpu.save(1, ddp::state_dict(models.on_gpu()));  // what is done once: memory is pinned
  on_cpu.save(1, ddp::state_dict(models.on_cpu()));
  check_same_files(place / "cpu/step-000000001", place / "gpu/step-000000001");
  ddp::test::DeviceArray<float> later(setting.gpu, std::vector<float>(1000, -1), setting.stream);
  for (std::int64_t step = 2; step <= 4; ++step) {
    const std::vector<float> values = numbers(1000, 50 + static_cast<unsigned>(step));
    ddp::test::DeviceArray<float> source(setting.gpu, values, setting.stream);
    setting.gpu.synchronize(setting.stream);
    std::copy(values.begin(), values.end(), models.values[0].begin());
    std::atomic<bool> released = false;
    std::atomic<bool> reached = false;
    setting.gpu.hold(setting.stream, &released);
    setting.gpu.copy(models.gpu_values[0]->data(), source.data(), 4000, setting.stream);
    const ddp::PendingSave save = on_gpu.save_async(step, ddp::state_dict(models.on_gpu()));
    if (!follows) save.follow();
    setting.gpu.copy(models.gpu_values[0]->data(), later.data(), 4000, setting.stream);  // the next step
    setting.gpu.mark(setting.stream, &reached);
    CHECK_FALSE(reached);
    CHECK_FALSE(save.is_completed());
    released = true;
    save.wait();
    on_cpu.save(step, ddp::state_dict(models.on_cpu()));
    const std::string name = "/step-00000000" + std::to_string(step);
    check_same_files(place / "cpu" + name, place / "gpu" + name);
    setting.gpu.synchronize(setting.stream);
  }
}

TEST_CASE("GPU checkpoint: tensors of a GPU and of the CPU go into one step", "[training][unit]") {
  GpuSetting setting;
  const TemporaryFolder place;
  TwoModels models(setting, {500, 0, 9});
  fill(models, 3);
  const float number = 0.5F;
  std::vector<ddp::TensorSlice> slices = {ddp::Tensor{"lr", &number, ddp::DType::Float32, {}}};
  for (const ddp::Tensor& each : ddp::state_dict(models.on_gpu())) slices.emplace_back(each);
  ddp::CheckpointFolder folder(place.path());
  folder.save_async(1, slices).wait();
  const ddp::Checkpoint saved = *folder.latest_valid();
  float read = 0;
  saved.read("lr", read, {});
  CHECK(read == 0.5F);
  TwoModels other(setting, {500, 0, 9});
  ddp::load_state_dict(other.on_cpu(), saved);
  CHECK(other.values == models.values);
}

TEST_CASE("GPU checkpoint: memory of a device that is not there is refused with its number", "[training][unit]") {
  GpuSetting setting;
  const TemporaryFolder place;
  TwoModels models(setting, {4, 4});
  std::vector<ddp::Tensor> tensors = ddp::state_dict(models.on_gpu());
  tensors[1].device.index = 99;
  CHECK_THROWS_WITH(ddp::save_checkpoint(place / "one", tensors, ddp::Metadata()),
                    Contains("there is no CUDA device 99"));
  CHECK_FALSE(std::filesystem::exists(place / "one"));
  ddp::CheckpointFolder folder(place / "steps");
  CHECK_THROWS_WITH(folder.save(1, tensors), Contains("tensors on cuda:0 and on cuda:99: a rank saves from one GPU"));
  tensors[1].device.kind = static_cast<ddp::DeviceKind>(7);
  CHECK_THROWS_WITH(folder.save(1, tensors), Contains("p1: there is no device of kind 7 and index 99"));
}
