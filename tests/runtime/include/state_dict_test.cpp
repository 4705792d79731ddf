// SPDX-License-Identifier: BSD-3-Clause
#include "ddp/checkpoint.hpp"

#include <catch2/catch.hpp>
#include <string>
#include <vector>

#include "tests/support/process.hpp"

using Catch::Matchers::Contains;
using ddp::Parameter;

namespace {

struct Layer {
  std::vector<float> weight = {1, 2, 3, 4, 5, 6};
  std::vector<double> bias = {7, 8};
  std::vector<Parameter> parameters() { return {{"weight", weight.data(), 6, {2, 3}}, {"bias", bias.data(), 2}}; }
};

}  // namespace

TEST_CASE("state_dict: parameters are saved and loaded in one call", "[training][unit]") {
  const ddp::testing::TemporaryFolder folder;
  const std::string path = folder.path() + "/layer.safetensors";
  Layer layer, other;
  ddp::save_parameters(path, layer.parameters(), {{"epoch", "3"}});
  other.weight.assign(6, 0);
  other.bias.assign(2, 0);
  ddp::load_parameters(path, other.parameters());
  CHECK(other.weight == layer.weight);
  CHECK(other.bias == layer.bias);
  CHECK(ddp::Checkpoint(path).metadata("epoch") == "3");
}

TEST_CASE("state_dict: other parameters than the file's are named, and nothing changes", "[training][unit]") {
  const ddp::testing::TemporaryFolder folder;
  const std::string path = folder.path() + "/layer.safetensors";
  Layer layer, other;
  ddp::save_parameters(path, layer.parameters());
  other.weight.assign(6, 0);
  std::vector<Parameter> list = other.parameters();
  list[1].name = "gain";
  list[0].shape = {3, 2};
  CHECK_THROWS_WITH(ddp::load_parameters(path, list),
                    path +
                        ": these are not the model's parameters; missing: gain; unexpected: bias; of another type "
                        "or shape: weight");
  CHECK(other.weight == std::vector<float>(6, 0));
}

TEST_CASE("state_dict: it goes with other tensors under a prefix", "[training][unit]") {
  const ddp::testing::TemporaryFolder folder;
  const std::string path = folder.path() + "/all.safetensors";
  Layer layer, other;
  const float step = 5;
  std::vector<ddp::Tensor> tensors = ddp::state_dict(layer.parameters(), "layer.");
  tensors.push_back({"step", &step, ddp::DType::Float32, {}});
  ddp::save_checkpoint(path, tensors, {});
  other.weight.assign(6, 0);
  ddp::load_state_dict(other.parameters(), ddp::Checkpoint(path), "layer.");
  CHECK(other.weight == layer.weight);
  CHECK_THROWS_WITH(ddp::load_state_dict(other.parameters(), ddp::Checkpoint(path)), Contains("weight"));
}

TEST_CASE("state_dict: each tensor is on its parameter's device", "[training][unit]") {
  Layer layer;
  std::vector<Parameter> list = layer.parameters();
  list[1].device = {ddp::DeviceKind::Cuda, 3};
  const std::vector<ddp::Tensor> tensors = ddp::state_dict(list);
  CHECK(tensors[0].device.kind == ddp::DeviceKind::Cpu);
  CHECK(tensors[1].device.kind == ddp::DeviceKind::Cuda);
  CHECK(tensors[1].device.index == 3);
}
