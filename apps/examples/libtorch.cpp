// SPDX-License-Identifier: BSD-3-Clause
// A convolutional network in libtorch, trained by all ranks. The lines with ddp:: are libddp's part.
// The images are made here: ten patterns with noise. Each rank sees its own share of them, and has
// its own share of the optimizer's state.
//
//   cmake --preset release -DDDPRUN_TORCH=$(python3 -c "import torch; print(*torch.__path__)")     builds it
//   ddprun --nproc_per_node 2 ./libtorch [FILE]                            saves the network, for Python as well
#include <torch/data.h>
#include <torch/nn.h>
#include <torch/optim.h>

#include <cstdio>
#include <ddp/libtorch.hpp>
#include <ddp/training/libtorch.hpp>

struct NetImpl : torch::nn::Module {
  torch::Tensor forward(torch::Tensor x) {
    x = torch::max_pool2d(torch::relu(conv1(x)), 2);
    x = torch::max_pool2d(torch::relu(norm(conv2(x))), 2);
    return fc2(torch::relu(fc1(x.flatten(1))));
  }
  torch::nn::Conv2d conv1 = register_module("conv1", torch::nn::Conv2d(1, 16, 3));
  torch::nn::Conv2d conv2 = register_module("conv2", torch::nn::Conv2d(16, 32, 3));
  ddp::libtorch::SyncBatchNorm norm = register_module("norm", ddp::libtorch::SyncBatchNorm(32));
  torch::nn::Linear fc1 = register_module("fc1", torch::nn::Linear(800, 64));
  torch::nn::Linear fc2 = register_module("fc2", torch::nn::Linear(64, 10));
};
TORCH_MODULE(Net);

struct Images : torch::data::datasets::Dataset<Images> {
  torch::data::Example<> get(size_t i) override { return {images[i], labels[i]}; }
  torch::optional<size_t> size() const override { return images.size(0); }
  torch::Tensor labels = torch::randint(10, {640});
  torch::Tensor images = torch::randn({10, 1, 28, 28}).index_select(0, labels) + torch::randn({640, 1, 28, 28});
};

int main(int argc, char** argv) {
  ddp::Session session = ddp::init_process_group();
  torch::manual_seed(1);  // gives every rank the same images
  Images data;
  const size_t total = *data.size();

  Net net;
  ddp::libtorch::DistributedDataParallel model(net);  // broadcasts rank 0's weights
  ddp::libtorch::ZeroRedundancyOptimizer<torch::optim::SGD> optimizer(model->parameters(),
                                                                      torch::optim::SGDOptions(0.05).momentum(0.9));
  ddp::libtorch::DistributedSampler sampler(total);
  auto loader = torch::data::make_data_loader(data.map(torch::data::transforms::Stack<>()), sampler, 16);
  for (int epoch = 0; epoch < 3; ++epoch) {
    sampler.set_epoch(epoch);
    torch::Tensor right = torch::zeros({}, torch::kLong);
    for (const torch::data::Example<>& batch : *loader) {
      const torch::Tensor output = model(batch.data);
      optimizer.zero_grad();
      torch::nn::functional::cross_entropy(output, batch.target).backward();  // the gradients are averages then
      optimizer.step();
      right += output.argmax(1).eq(batch.target).sum();
    }
    ddp::libtorch::all_reduce(right);
    if (session.rank() == 0) std::printf("epoch %d: %.0f %% right\n", epoch, 100.0 * right.item<double>() / total);
  }
  if (session.rank() == 0 && argc > 1) ddp::libtorch::save_module(*net, argv[1]);
}
