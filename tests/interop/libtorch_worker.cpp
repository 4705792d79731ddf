// SPDX-License-Identifier: BSD-3-Clause
// A C++ program of libtorch's that trains with libddp: both libraries are linked, so libtorch's Gloo has global
// symbols. libtorch_reference.py is the same program in Python, with PyTorch's own DistributedDataParallel.
//
//   libtorch_worker FOLDER SCENARIO...    prints "SCENARIO RANK STEP LOSS" after each step of each
//
// FOLDER has the first weights, which only rank 0 reads, and each rank's images: what both programs begin with.
#include "ddp/torch.hpp"

#include <torch/nn.h>
#include <torch/optim.h>

#include <cstdint>
#include <cstdio>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "ddp/ddp.hpp"

namespace {

namespace nn = torch::nn;

constexpr std::int64_t kSteps = 20;
constexpr std::int64_t kBatch = 8;

struct Scenario {
  bool batch_norm = false;
  bool spare_layers = false;  // one that some ranks use in some steps, and one that nobody uses
  int backwards = 1;          // in each step, all but the last without communication
};

struct NetImpl : nn::Module {
  explicit NetImpl(const Scenario& scenario) {
    if (scenario.batch_norm) norm = register_module("norm", nn::BatchNorm2d(16));
    if (scenario.spare_layers) {
      sometimes = register_module("sometimes", nn::Linear(64, 10));
      never = register_module("never", nn::Linear(64, 10));
    }
  }
  torch::Tensor forward(const torch::Tensor& images, bool with_sometimes = false) {
    torch::Tensor x = conv1(images);
    if (norm) x = norm(x);
    x = torch::max_pool2d(torch::relu(x), 2);
    x = torch::max_pool2d(torch::relu(conv2(x)), 2);
    x = torch::relu(fc1(x.flatten(1)));
    return with_sometimes ? fc2(x) + sometimes(x) : fc2(x);
  }
  nn::Conv2d conv1 = register_module("conv1", nn::Conv2d(1, 16, 3));
  nn::Conv2d conv2 = register_module("conv2", nn::Conv2d(16, 32, 3));
  nn::Linear fc1 = register_module("fc1", nn::Linear(800, 64));
  nn::Linear fc2 = register_module("fc2", nn::Linear(64, 10));
  nn::BatchNorm2d norm = nullptr;
  nn::Linear sometimes = nullptr;
  nn::Linear never = nullptr;
};
TORCH_MODULE(Net);

std::vector<std::int64_t> shape_of(const torch::Tensor& tensor) { return tensor.sizes().vec(); }

// This rank's images and labels, a row for each backward.
struct Data {
  Data(const std::string& folder, int rank) {
    const ddp::Checkpoint file(folder + "/data" + std::to_string(rank) + ".safetensors");
    images = torch::empty({2 * kSteps, kBatch, 1, 28, 28});
    labels = torch::empty({2 * kSteps, kBatch}, torch::kLong);
    file.read("images", ddp::torch::buffer(images), shape_of(images));
    file.read("labels", ddp::torch::buffer(labels), shape_of(labels));
  }
  torch::Tensor images;
  torch::Tensor labels;
};

void read_weights(const std::string& folder, nn::Module& net) {
  const ddp::Checkpoint file(folder + "/weights.safetensors");
  const torch::NoGradGuard no_grad;
  for (auto& named : net.named_parameters()) {
    file.read(named.key(), ddp::torch::buffer(named.value()), shape_of(named.value()));
  }
}

void train(const std::string& name, const Scenario& scenario, const std::string& folder) {
  const int rank = ddp::get_rank();
  const Data data(folder, rank);
  Net net(scenario);
  if (rank == 0) read_weights(folder, *net);
  ddp::torch::DistributedDataParallel model(net);
  torch::optim::SGD optimizer(model->parameters(), torch::optim::SGDOptions(0.02).momentum(0.9));
  std::int64_t row = 0;
  const auto backward = [&](std::int64_t step) {
    const bool with_sometimes = scenario.spare_layers && (rank + step) % 3 == 1;
    const torch::Tensor loss = nn::functional::cross_entropy(model(data.images[row], with_sometimes), data.labels[row]);
    loss.backward();
    ++row;
    return loss.item<double>();
  };
  for (std::int64_t step = 0; step < kSteps; ++step) {
    optimizer.zero_grad();
    double loss = 0;
    for (int i = 1; i < scenario.backwards; ++i) {
      const auto local = model.no_sync();
      loss += backward(step);
    }
    loss += backward(step);
    optimizer.step();
    std::printf("%s %d %ld %.9g\n", name.c_str(), rank, static_cast<long>(step), loss);
  }
}

// The ranks' tensors, without a module.
void collectives() {
  const auto size = static_cast<double>(ddp::get_world_size());
  const auto rank = static_cast<double>(ddp::get_rank());
  const torch::Tensor values = torch::full({100, 100}, rank).matmul(torch::eye(100));
  ddp::torch::all_reduce(values, ddp::ReduceOp::Avg);
  TORCH_CHECK(values.eq((size - 1) / 2).all().item<bool>());
  const torch::Tensor all = ddp::torch::all_gather(torch::full({3}, ddp::get_rank(), torch::kLong));
  TORCH_CHECK(all.sizes() == torch::IntArrayRef({ddp::get_world_size(), 3}));
  TORCH_CHECK(all.select(1, 0).equal(torch::arange(ddp::get_world_size())));
  const torch::Tensor everyones = torch::full({2}, rank);
  ddp::torch::broadcast(everyones, 1);
  TORCH_CHECK(everyones.eq(1).all().item<bool>());
  ddp::default_group().all_reduce_async(ddp::torch::buffer(values), ddp::ReduceOp::Max).wait();
  try {
    ddp::torch::all_reduce(values.t());
  } catch (const ddp::Error& error) {
    std::printf("%s\n", error.what());
  }
}

}  // namespace

int main(int argc, char** argv) {
  const ddp::Session session = ddp::init_process_group();
  torch::manual_seed(session.rank());  // ranks begin with other weights: rank 0's must reach them
  const std::string folder = argv[1];
  const std::vector<std::pair<std::string, Scenario>> scenarios = {
      {"plain", {}},
      {"no_sync", {.backwards = 2}},
  };
  for (int i = 2; i < argc; ++i) {
    const std::string wanted = argv[i];
    if (wanted == "collectives") collectives();
    for (const auto& [name, scenario] : scenarios) {
      if (name == wanted) train(name, scenario, folder);
    }
  }
  std::printf("rank %d of %d done\n", session.rank(), session.world_size());
}
