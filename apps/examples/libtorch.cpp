// SPDX-License-Identifier: BSD-3-Clause
// A convolutional network in libtorch, trained by all ranks. The five lines with ddp:: are libddp's
// part. The images are made here: ten patterns with noise. Each rank sees its own share of them.
//
//   cmake --preset release -DDDPRUN_TORCH=$(python3 -c "import torch; print(*torch.__path__)")     builds it
//   ddprun --nproc_per_node 2 ./libtorch
#include <torch/nn.h>
#include <torch/optim.h>

#include <cstdio>
#include <ddp/sampler.hpp>
#include <ddp/torch.hpp>

struct NetImpl : torch::nn::Module {
  torch::Tensor forward(torch::Tensor x) {
    x = torch::max_pool2d(torch::relu(conv1(x)), 2);
    x = torch::max_pool2d(torch::relu(norm(conv2(x))), 2);
    return fc2(torch::relu(fc1(x.flatten(1))));
  }
  torch::nn::Conv2d conv1 = register_module("conv1", torch::nn::Conv2d(1, 16, 3));
  torch::nn::Conv2d conv2 = register_module("conv2", torch::nn::Conv2d(16, 32, 3));
  torch::nn::BatchNorm2d norm = register_module("norm", torch::nn::BatchNorm2d(32));
  torch::nn::Linear fc1 = register_module("fc1", torch::nn::Linear(800, 64));
  torch::nn::Linear fc2 = register_module("fc2", torch::nn::Linear(64, 10));
};
TORCH_MODULE(Net);

int main() {
  ddp::Session session = ddp::init_process_group();
  torch::manual_seed(1);  // gives every rank the same images
  const int kImages = 640, kBatch = 16;
  const torch::Tensor labels = torch::randint(10, {kImages});
  const torch::Tensor images =
      torch::randn({10, 1, 28, 28}).index_select(0, labels) + torch::randn({kImages, 1, 28, 28});

  Net net;
  ddp::torch::DistributedDataParallel model(net);  // broadcasts rank 0's weights
  torch::optim::SGD optimizer(model->parameters(), torch::optim::SGDOptions(0.05).momentum(0.9));
  ddp::DistributedSampler sampler(kImages, session.world_size(), session.rank());
  for (int epoch = 0; epoch < 3; ++epoch) {
    sampler.set_epoch(epoch);
    const torch::Tensor mine = torch::tensor(sampler.indices());
    torch::Tensor right = torch::zeros({}, torch::kLong);
    for (const torch::Tensor& batch : mine.split(kBatch)) {
      const torch::Tensor output = model(images.index_select(0, batch)), wanted = labels.index_select(0, batch);
      optimizer.zero_grad();
      torch::nn::functional::cross_entropy(output, wanted).backward();  // the gradients are averages when it returns
      optimizer.step();
      right += output.argmax(1).eq(wanted).sum();
    }
    ddp::torch::all_reduce(right);
    if (session.rank() == 0) {
      std::printf("epoch %d: %.0f %% right\n", epoch, 100 * right.item<double>() / kImages);
    }
  }
}
