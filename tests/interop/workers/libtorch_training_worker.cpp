// SPDX-License-Identifier: BSD-3-Clause
// What training puts around DistributedDataParallel, on libtorch. libtorch_training_reference.py
// does the same in Python, with PyTorch's own classes.
//
//   libtorch_training_worker FOLDER SCENARIO...    prints "SCENARIO RANK STEP LOSS" after each step of each scenario
//
// FOLDER has the input of both programs: the initial net, and each rank's images. TEST_DEVICE is the device of the
// scenario "device"; with "cuda:0" all ranks share that GPU.
#include "ddp/libtorch.hpp"
#include "ddp/training/libtorch.hpp"

#include <torch/csrc/autograd/autograd.h>
#include <torch/data.h>
#include <torch/nn.h>
#include <torch/optim.h>
#include <torch/serialize.h>

#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include "ddp/ddp.hpp"

namespace {

namespace nn = torch::nn;
namespace optim = torch::optim;

constexpr std::int64_t kSteps = 20;
constexpr std::int64_t kBatch = 8;
constexpr std::size_t kSamples = 37;

nn::Sequential make_net() {
  return nn::Sequential(nn::Conv2d(1, 8, 3), nn::BatchNorm2d(8), nn::ReLU(), nn::MaxPool2d(2), nn::Flatten(),
                        nn::Linear(1352, 32), nn::BatchNorm1d(nn::BatchNorm1dOptions(32).momentum({})), nn::ReLU(),
                        nn::Linear(32, 10));
}

nn::Sequential loaded_net(const std::string& folder) {
  nn::Sequential net = make_net();
  ddp::libtorch::load_module(*net, folder + "/net.safetensors");
  return net;
}

// A rank's images and labels, a row for each step.
struct Data {
  Data(const std::string& folder, int rank) {
    const ddp::Checkpoint file(folder + "/data" + std::to_string(rank) + ".safetensors");
    file.read("images", ddp::libtorch::buffer(images), images.sizes().vec());
    file.read("labels", ddp::libtorch::buffer(labels), labels.sizes().vec());
  }
  torch::Tensor images = torch::empty({2 * kSteps, kBatch, 1, 28, 28});
  torch::Tensor labels = torch::empty({2 * kSteps, kBatch}, torch::kLong);
};

void say(const std::string& name, std::int64_t step, double value) {
  std::printf("%s %d %ld %.9g\n", name.c_str(), ddp::get_rank(), static_cast<long>(step), value);
}

// Ranks have batches of different sizes.
void sync_batch_norm(const std::string& folder) {
  const Data data(folder, ddp::get_rank());
  nn::Sequential net = loaded_net(folder);
  net->to(torch::kDouble);
  optim::SGD optimizer(net->parameters(), optim::SGDOptions(0.02).momentum(0.9));  // parameters stay what they are
  ddp::libtorch::convert_sync_batchnorm(net);
  // to() has made the counters doubles, as they are none in Python
  for (auto& buffer : net->named_buffers()) {
    if (buffer.value().dim() == 0) buffer.value().set_data(buffer.value().to(torch::kLong));
  }
  ddp::libtorch::DistributedDataParallel model(net);
  const std::int64_t rows = kBatch - 2 * ddp::get_rank();
  for (std::int64_t step = 0; step < kSteps; ++step) {
    const torch::Tensor images = data.images[step].to(torch::kDouble), labels = data.labels[step];
    optimizer.zero_grad();
    const torch::Tensor loss =
        nn::functional::cross_entropy(model(images.narrow(0, 0, rows)), labels.narrow(0, 0, rows));
    loss.backward();
    optimizer.step();
    const torch::NoGradGuard no_grad;
    net->eval();
    const torch::Tensor tested = nn::functional::cross_entropy(net->forward(images), labels);
    net->train();
    say("sync_batch_norm", step, loss.item<double>() + tested.item<double>());
  }
}

using MakeOptimizer = std::function<std::unique_ptr<optim::Optimizer>(nn::SequentialImpl&)>;

// Sends half of each gradient, and doubles the average: the second stage of a hook.
std::function<void()> halving_hook(const ddp::libtorch::GradBucket& bucket) {
  const torch::Tensor gradients = bucket.buffer().div_(2 * ddp::get_world_size());
  const ddp::libtorch::Work work = ddp::libtorch::all_reduce_async(gradients);
  return [gradients, work] {
    work.wait();
    gradients.mul_(2);
  };
}

struct Training {
  bool has_hook = false;
  bool has_scaler = false;
};

void train(const std::string& name, const std::string& folder, const MakeOptimizer& make_optimizer,
           const Training& how = {}) {
  const Data data(folder, ddp::get_rank());
  nn::Sequential net = loaded_net(folder);
  ddp::DistributedDataParallelOptions options;
  options.bucket_bytes = 65536;
  ddp::libtorch::DistributedDataParallel model(net, options);
  if (how.has_hook) model.register_comm_hook(halving_hook);
  const std::unique_ptr<optim::Optimizer> optimizer = make_optimizer(*net);
  optim::StepLR scheduler(*optimizer, 5, 0.5);
  ddp::GradScalerOptions scaling;
  scaling.growth_interval = 4;
  ddp::libtorch::GradScaler scaler(scaling);
  for (std::int64_t step = 0; step < kSteps; ++step) {
    optimizer->zero_grad();
    const torch::Tensor loss = nn::functional::cross_entropy(model(data.images[step]), data.labels[step]);
    if (how.has_scaler) {
      const bool overflows = step == 7 || (step == 3 && ddp::get_rank() == 1);
      scaler.scale(loss * (overflows ? 1e38 : 1)).backward();
      scaler.unscale_(*optimizer);
      nn::utils::clip_grad_norm_(net->parameters(), 1.0);
      TORCH_CHECK(scaler.step(*optimizer) == (step != 3 && step != 7));
      scaler.update();
      say("grad_scaler_scale", step, scaler.get_scale());
    } else {
      scheduler.step();  // where Python has it after the step: libtorch's counts from 0
      loss.backward();
      optimizer->step();
    }
    say(name, step, loss.item<double>());
  }
}

std::unique_ptr<optim::Optimizer> sgd(nn::SequentialImpl& net) {
  return std::make_unique<optim::SGD>(net.parameters(), optim::SGDOptions(0.02).momentum(0.9));
}

// Two groups of parameters, with options of their own.
std::vector<optim::OptimizerParamGroup> two_groups(nn::SequentialImpl& net) {
  std::vector<torch::Tensor> first, second;
  for (const auto& p : net.named_parameters()) (p.key() < "5" ? first : second).push_back(p.value());
  std::vector<optim::OptimizerParamGroup> groups;
  groups.emplace_back(first, std::make_unique<optim::AdamOptions>(0.01));
  groups.emplace_back(second, std::make_unique<optim::AdamOptions>(optim::AdamOptions(0.003).weight_decay(0.01)));
  return groups;
}

std::unique_ptr<optim::Optimizer> zero_adam(nn::SequentialImpl& net) {
  return std::make_unique<ddp::libtorch::ZeroRedundancyOptimizer<optim::Adam>>(two_groups(net),
                                                                               optim::AdamOptions(0.005));
}

std::unique_ptr<optim::Optimizer> zero_sgd(nn::SequentialImpl& net) {
  return std::make_unique<ddp::libtorch::ZeroRedundancyOptimizer<optim::SGD>>(net.parameters(),
                                                                              optim::SGDOptions(0.02).momentum(0.9));
}

// A data set whose samples are their own indices.
struct Rows : torch::data::datasets::Dataset<Rows, std::int64_t> {
  std::int64_t get(std::size_t index) override { return static_cast<std::int64_t>(index); }
  torch::optional<std::size_t> size() const override { return kSamples; }
};

// Rows come from a data loader of a data set that does not divide evenly.
void sampler(const std::string& folder) {
  const Data data(folder, 0);
  const torch::Tensor images = data.images.flatten(0, 1), labels = data.labels.flatten(0, 1);
  nn::Sequential net = loaded_net(folder);
  ddp::libtorch::DistributedDataParallel model(net);
  const auto optimizer = sgd(*net);
  ddp::libtorch::DistributedSampler order(kSamples, ddp::get_world_size(), ddp::get_rank(), /*shuffle=*/true,
                                          /*seed=*/5);
  const auto loader = torch::data::make_data_loader(Rows(), order, torch::data::DataLoaderOptions().batch_size(4));
  std::int64_t step = 0;
  for (int epoch = 0; epoch < 3; ++epoch) {
    order.set_epoch(static_cast<std::uint64_t>(epoch));
    for (const std::vector<std::int64_t>& batch : *loader) {
      const torch::Tensor rows = torch::tensor(batch);
      optimizer->zero_grad();
      const torch::Tensor loss =
          nn::functional::cross_entropy(model(images.index_select(0, rows)), labels.index_select(0, rows));
      loss.backward();
      optimizer->step();
      say("sampler", step++, loss.item<double>());
    }
  }
}

// ---- what Python is not asked about ----

void check_equal(const std::vector<torch::Tensor>& a, const std::vector<torch::Tensor>& b, const char* what) {
  TORCH_CHECK(a.size() == b.size(), what);
  for (std::size_t i = 0; i < a.size(); ++i) TORCH_CHECK(a[i].equal(b[i]), what, ": tensor ", i, " differs");
}

void refused(const char* what, const std::function<void()>& body) {
  try {
    body();
    std::printf("%s: nothing was said\n", what);
  } catch (const ddp::Error& error) {
    std::printf("%s: %s\n", what, error.what());
  }
}

void collectives() {
  const std::int64_t size = ddp::get_world_size(), rank = ddp::get_rank();
  const auto mine = [&](std::int64_t n) { return torch::full({n}, rank, torch::kLong); };
  const torch::Tensor ranks = torch::arange(size);
  const auto equal = [](const torch::Tensor& a, const torch::Tensor& b) { TORCH_CHECK(a.equal(b), a, " is not ", b); };

  torch::Tensor sum = mine(3);
  const ddp::libtorch::Work work = ddp::libtorch::all_reduce_async(sum);
  work.wait();
  TORCH_CHECK(work.is_completed());
  equal(sum, torch::full({3}, size * (size - 1) / 2, torch::kLong));
  torch::Tensor gathered = torch::empty({size, 2}, torch::kLong);
  ddp::libtorch::all_gather_into_tensor_async(gathered, mine(2)).wait();
  equal(gathered.select(1, 1), ranks);
  equal(ddp::libtorch::all_gather(mine(2)), gathered);
  const torch::Tensor on_root = ddp::libtorch::gather(mine(2), 1);
  TORCH_CHECK(on_root.defined() == (rank == 1));
  if (rank == 1) equal(on_root, gathered);
  torch::Tensor part = torch::empty({2}, torch::kLong);
  ddp::libtorch::scatter(part, rank == 1 ? gathered : torch::Tensor(), 1);
  equal(part, mine(2));
  ddp::libtorch::reduce_scatter_tensor_async(part, gathered.flatten()).wait();
  equal(part, size * mine(2));
  ddp::libtorch::reduce_scatter_tensor(part, gathered.flatten(), ddp::ReduceOp::Max);
  equal(part, mine(2));

  // A sum of bool is "or", however often it is repeated.
  torch::Tensor some = torch::arange(size).eq(rank), all = torch::ones({2}, torch::kBool);
  for (int i = 0; i < 9; ++i) ddp::libtorch::all_reduce(some);
  for (int i = 0; i < 9; ++i) ddp::libtorch::all_reduce_async(all, ddp::ReduceOp::BitOr).wait();
  equal(some, torch::ones({size}, torch::kBool));
  equal(all, torch::ones({2}, torch::kBool));
  torch::Tensor each = torch::empty({1}, torch::kBool);
  ddp::libtorch::reduce_scatter(torch::arange(size).eq(rank), each, ddp::ReduceOp::Sum);
  equal(each, torch::ones({1}, torch::kBool));
  ddp::libtorch::reduce_scatter(torch::arange(size).eq(rank), each, ddp::ReduceOp::Product);
  equal(each, torch::zeros({1}, torch::kBool));
  refused("average of bool", [&] { ddp::libtorch::all_reduce(each, ddp::ReduceOp::Avg); });

  // Rank s sends s + 1 rows of two numbers to each rank.
  const torch::Tensor sent = torch::full({size * (rank + 1), 2}, rank, torch::kLong);
  std::vector<std::int64_t> received_rows;
  for (std::int64_t r = 0; r < size; ++r) received_rows.push_back(r + 1);
  torch::Tensor received = torch::empty({size * (size + 1) / 2, 2}, torch::kLong);
  const std::vector<std::int64_t> sent_rows(static_cast<std::size_t>(size), rank + 1);
  ddp::libtorch::all_to_all_single(received, sent, received_rows, sent_rows);
  equal(received.select(1, 0), ranks.repeat_interleave(ranks + 1));
  received.zero_();
  ddp::libtorch::all_to_all_single_async(received, sent, received_rows, sent_rows).wait();
  equal(received.select(1, 1), ranks.repeat_interleave(ranks + 1));
  torch::Tensor one_each = torch::empty({size}, torch::kLong);
  ddp::libtorch::all_to_all_single(one_each, mine(size));
  equal(one_each, ranks);

  const int next = static_cast<int>((rank + 1) % size), before = static_cast<int>((rank + size - 1) % size);
  torch::Tensor arrived = torch::empty({4}, torch::kLong);
  const ddp::libtorch::Work receiving = ddp::libtorch::irecv(arrived, ddp::kAnyRank, 7);
  ddp::libtorch::isend(mine(4), next, 7).wait();
  TORCH_CHECK(receiving.wait_source() == before);
  equal(arrived, torch::full({4}, before, torch::kLong));
  if (rank == 0) ddp::libtorch::send(mine(4), 1);
  if (rank == 1) TORCH_CHECK(ddp::libtorch::recv(arrived) == 0 && arrived.eq(0).all().item<bool>());

  // Works and tensors that the program drops: the memory stays until the operation has ended.
  for (int i = 0; i < 20; ++i) {
    static_cast<void>(ddp::libtorch::all_reduce_async(torch::ones({100000})));
    static_cast<void>(ddp::libtorch::broadcast_async(torch::ones({100000}), i % static_cast<int>(size)));
    static_cast<void>(ddp::libtorch::reduce_async(torch::ones({100000}), ddp::ReduceOp::Sum, 0));
  }
  static_cast<void>(ddp::libtorch::irecv(torch::ones({100000}), before, 8));
  ddp::libtorch::send(torch::ones({100000}), next, 8);
  ddp::barrier();
  refused("rows", [&] { ddp::libtorch::all_to_all_single(torch::empty({size + 1}), torch::empty({size + 1})); });
  refused("empty work", [] { ddp::libtorch::Work().wait(); });
}

struct InnerImpl : nn::Module {
  nn::Sequential layers = register_module("layers", nn::Sequential(nn::Linear(2, 3), nn::BatchNorm1d(3)));
};
TORCH_MODULE(Inner);
// Has a member of a type that cannot be replaced.
struct OuterImpl : nn::Module {
  Inner inner = register_module("inner", Inner());
  nn::BatchNorm2d norm = register_module("norm", nn::BatchNorm2d(4));
};
TORCH_MODULE(Outer);

// Converted layers share parameters and buffers with those that they replace.
void conversion() {
  nn::BatchNorm1d shared(3);
  nn::Sequential net(nn::Linear(3, 3), shared, nn::ReLU(), shared);
  const auto parameters = net->parameters(), buffers = net->buffers();
  TORCH_CHECK(ddp::libtorch::convert_sync_batchnorm(net).ptr() == net.ptr());
  const auto converted = net->parameters();
  TORCH_CHECK(converted.size() == parameters.size());
  for (std::size_t i = 0; i < parameters.size(); ++i) TORCH_CHECK(converted[i].is_same(parameters[i]));
  TORCH_CHECK(net->ptr(1) == net->ptr(3) && net->named_children()["1"] == net->ptr(1));
  const torch::Tensor input = torch::rand({4, 3}) + ddp::get_rank();
  net->forward(input);
  check_equal(net->buffers(), buffers, "buffers of the layers before");
  check_equal(ddp::libtorch::all_gather(net->buffers()[0]).unbind(),
              std::vector<torch::Tensor>(static_cast<std::size_t>(ddp::get_world_size()), net->buffers()[0]),
              "running mean of all ranks");
  const auto copy = std::dynamic_pointer_cast<nn::SequentialImpl>(net->clone());
  const torch::Tensor expected = net->forward(input);
  TORCH_CHECK(copy->ptr(1)->as<ddp::libtorch::SyncBatchNorm>() != nullptr);
  TORCH_CHECK(expected.isfinite().all().item<bool>());
  TORCH_CHECK(ddp::libtorch::convert_sync_batchnorm(nn::BatchNorm2d(7))->options.num_features() == 7);

  // A rank without rows, channels last, and 16 bits.
  ddp::libtorch::SyncBatchNorm norm(2);
  const std::int64_t rows = ddp::get_rank() == 0 ? 0 : 4;
  const torch::Tensor images = torch::rand({rows, 2, 3, 5}).contiguous(at::MemoryFormat::ChannelsLast).requires_grad_();
  const torch::Tensor output = norm(images);
  output.square().sum().backward();
  TORCH_CHECK(output.sizes() == images.sizes() && images.grad().sizes() == images.sizes());
  const torch::Tensor squares = output.detach().square().sum();
  ddp::libtorch::all_reduce(squares);
  const std::int64_t values = 4 * 30 * (ddp::get_world_size() - 1);
  TORCH_CHECK(std::abs(squares.item<double>() / static_cast<double>(values) - 1) < 1e-3, squares);
  TORCH_CHECK(norm(torch::rand({4, 2}).to(torch::kBFloat16)).scalar_type() == torch::kBFloat16);

  const Inner inner = ddp::libtorch::convert_sync_batchnorm(Inner());
  TORCH_CHECK(inner->layers->ptr(1)->as<ddp::libtorch::SyncBatchNorm>() != nullptr);
  Outer outer;
  refused("members", [&] { ddp::libtorch::convert_sync_batchnorm(outer); });
  TORCH_CHECK(outer->inner->layers->ptr(1)->as<nn::BatchNorm1d>() != nullptr);
  refused("itself", [] { ddp::libtorch::convert_sync_batchnorm(nn::BatchNorm2d(4).ptr()); });
  refused("channels", [&] { norm(torch::rand({4, 3})); });
  refused("second derivative", [&] {
    const torch::Tensor x = torch::rand({4, 2}).requires_grad_();
    torch::autograd::grad({norm(x).square().sum()}, {x}, {}, true, /*create_graph=*/true);
  });
}

// Trains a net that is the same on every rank, by gradients that are, for some steps.
void steps(nn::Linear& net, optim::Optimizer& optimizer, int first, int last) {
  for (int step = first; step < last; ++step) {
    const torch::Tensor input = torch::arange(40, torch::kFloat).view({4, 10}).add(step).sin();
    const auto loss = [&] {
      optimizer.zero_grad();
      torch::Tensor loss = net(input).square().sum();
      loss.backward();
      return loss;
    };
    TORCH_CHECK(optimizer.step(loss).item<double>() > 0);
    TORCH_CHECK(net->weight.grad().defined() && net->bias.grad().defined(), "gradients are still there");
  }
}

nn::Linear wide_net() {
  nn::Linear net(10, 5000);
  torch::NoGradGuard no_grad;
  net->weight.copy_(torch::arange(50000, torch::kFloat).view({5000, 10}).cos());
  net->bias.copy_(torch::arange(5000, torch::kFloat).sin());
  return net;
}

// The values of the plain optimizer, bit for bit; also from a state that was saved and loaded, by either.
template <typename Plain, typename Options>
void zero(const std::string& path, const Options& options) {
  using Zero = ddp::libtorch::ZeroRedundancyOptimizer<Plain>;
  nn::Linear plain_net = wide_net(), zero_net = wide_net(), again_net = wide_net(), third_net = wide_net();
  Plain plain(plain_net->parameters(), options);
  Zero spread(zero_net->parameters(), options);
  steps(plain_net, plain, 0, 3);
  steps(zero_net, spread, 0, 3);
  check_equal(zero_net->parameters(), plain_net->parameters(), "values of ZeroRedundancyOptimizer");
  TORCH_CHECK(spread.state().size() <= 1 && plain.state().size() == 2);
  TORCH_CHECK(spread.owner(zero_net->weight) == 0 && spread.owner(zero_net->bias) == 1);
  refused("spread", [&] { torch::save(spread, path); });
  spread.consolidate_state_dict(1);
  if (ddp::get_rank() == 1) torch::save(spread, path);
  ddp::barrier();
  for (std::size_t i = 0; i < 2; ++i) {
    const torch::NoGradGuard no_grad;
    again_net->parameters()[i].copy_(zero_net->parameters()[i]);
    third_net->parameters()[i].copy_(zero_net->parameters()[i]);
  }
  Zero again(again_net->parameters(), options);
  torch::load(again, path);
  Plain third(third_net->parameters(), options);
  torch::load(third, path);
  steps(plain_net, plain, 3, 6);
  steps(zero_net, spread, 3, 6);
  steps(again_net, again, 3, 6);
  steps(third_net, third, 3, 6);
  check_equal(zero_net->parameters(), plain_net->parameters(), "values after the state was gathered");
  check_equal(again_net->parameters(), plain_net->parameters(), "values after the state was loaded");
  check_equal(third_net->parameters(), plain_net->parameters(), "values after the plain optimizer has loaded it");
}

// A group of parameters that comes later.
void later_group() {
  nn::Linear plain_net = wide_net(), zero_net = wide_net();
  optim::Adam plain(plain_net->parameters(), 0.01);
  ddp::libtorch::ZeroRedundancyOptimizer<optim::Adam> spread(zero_net->parameters(), 0.01);
  torch::Tensor later = torch::ones({3}).requires_grad_(), later_zero = torch::ones({3}).requires_grad_();
  plain.add_param_group(optim::OptimizerParamGroup({later}));
  spread.add_param_group(optim::OptimizerParamGroup({later_zero}));
  for (int step = 0; step < 2; ++step) {
    (later * 3).sum().backward();
    (later_zero * 3).sum().backward();
    plain.step();
    spread.step();
  }
  check_equal({later_zero}, {later}, "values of a group that was added");
}

void zeros(const std::string& folder) {
  zero<optim::Adam>(folder + "/adam.pt", optim::AdamOptions(0.01).amsgrad(true));
  zero<optim::AdamW>(folder + "/adamw.pt", 0.01);
  zero<optim::SGD>(folder + "/sgd.pt", optim::SGDOptions(0.001).momentum(0.9));
  zero<optim::Adagrad>(folder + "/adagrad.pt", 0.01);
  zero<optim::RMSprop>(folder + "/rmsprop.pt", 0.01);
  later_group();
  refused("zero of others", [] {
    const nn::Linear net(3, ddp::get_rank() == 1 ? 5 : 4);
    ddp::libtorch::ZeroRedundancyOptimizer<optim::SGD> optimizer(net->parameters(), 0.1);
  });
}

// Gradients that differ: a group makes all ranks decide alike.
void scalers() {
  nn::Linear net(2, 2);
  optim::SGD optimizer(net->parameters(), 0.1);
  ddp::libtorch::GradScaler alone, together({}, ddp::default_group()), off([] {
    ddp::GradScalerOptions options;
    options.enabled = false;
    return options;
  }());
  const auto step = [&](ddp::libtorch::GradScaler& scaler) {
    optimizer.zero_grad();
    const torch::Tensor loss = net(torch::ones({1, 2})).sum() * (ddp::get_rank() == 1 ? INFINITY : 1);
    scaler.scale(std::vector<torch::Tensor>{loss})[0].backward();
    const bool stepped = scaler.step(optimizer);
    scaler.update();
    return stepped;
  };
  TORCH_CHECK(step(alone) == (ddp::get_rank() != 1));
  TORCH_CHECK(!step(together) && together.get_scale() == 32768);
  TORCH_CHECK(step(off) && off.get_scale() == 1);
  refused("twice", [&] {
    alone.unscale_(optimizer);
    alone.unscale_(optimizer);
  });
  refused("half", [&] {
    ddp::libtorch::GradScaler scaler;
    torch::Tensor half = torch::ones({2}, torch::kHalf).requires_grad_();
    half.mutable_grad() = torch::ones({2}, torch::kHalf);
    optim::SGD of_half({half}, 0.1);
    scaler.step(of_half);
  });
}

// Saves and loads whole modules, in files and in folders of all ranks' shares.
void modules(const std::string& folder) {
  nn::Sequential net = loaded_net(folder), other = make_net();
  const torch::NoGradGuard no_grad;
  net->ptr(0)->as<nn::Conv2d>()->weight.set_data(
      net->ptr(0)->as<nn::Conv2d>()->weight.contiguous(at::MemoryFormat::ChannelsLast));
  for (torch::Tensor& p : net->parameters()) p.add_(1);
  if (ddp::get_rank() == 0) ddp::libtorch::save_module(*net, folder + "/saved.safetensors", {{"by", "libddp"}});
  ddp::barrier();
  const void* memory = other->parameters()[0].data_ptr();
  ddp::libtorch::load_module(*other, folder + "/saved.safetensors");
  check_equal(other->parameters(), net->parameters(), "parameters of a file");
  check_equal(other->buffers(), net->buffers(), "buffers of a file");
  TORCH_CHECK(other->parameters()[0].data_ptr() == memory);

  ddp::CheckpointFolder steps(ddp::default_group(), folder + "/steps");
  ddp::libtorch::save_module(*net, steps, 1);
  for (torch::Tensor& p : net->parameters()) p.add_(1);
  const ddp::PendingSave save = ddp::libtorch::save_module_async(*net, steps, 2, {{"epoch", "2"}});
  const std::vector<torch::Tensor> saved = [&] {
    std::vector<torch::Tensor> copies;
    for (const torch::Tensor& p : net->parameters()) copies.push_back(p.clone());
    return copies;
  }();
  for (torch::Tensor& p : net->parameters()) p.zero_();
  save.wait();
  const auto newest = steps.latest();
  TORCH_CHECK(newest && newest->step() == 2 && newest->metadata("epoch") == "2");
  ddp::libtorch::load_module(*other, *newest);
  check_equal(other->parameters(), saved, "parameters of a folder");

  nn::Sequential larger = make_net();
  larger->push_back("more", nn::Linear(10, 2));
  larger->ptr(5)->as<nn::Linear>()->bias.set_data(torch::zeros({31}));
  refused("other module", [&] { ddp::libtorch::load_module(*larger, folder + "/saved.safetensors"); });
  refused("missing in folder", [&] { ddp::libtorch::load_module(*larger, *newest, "net."); });
}

torch::Device device_of_test() {
  const char* const given = std::getenv("TEST_DEVICE");
  return torch::Device(given != nullptr ? given : "cpu");
}

// NCCL lets ranks share a GPU if it believes that they are on different hosts.
ddp::InitOptions options_of_test() {
  ddp::InitOptions options;
  if (!device_of_test().is_cuda()) return options;
  options.backend = "cpu:ddp,cuda:nccl";
  options.device = "cuda:0";
  setenv("NCCL_HOSTID", ("rank" + std::string(std::getenv("RANK"))).c_str(), 1);
  return options;
}

// Trains a net on the device of the test, beside an equal one in CPU memory. Its optimizer's state is spread over the
// ranks. The hook on the device is the one for GPUs, wherever the device is.
void train_on_device(const std::string& name, double tolerance, const std::optional<at::ScalarType>& narrow = {}) {
  const torch::Device device = device_of_test();
  const auto make = [] { return nn::Sequential(nn::Linear(8, 32), nn::Tanh(), nn::Linear(32, 1)); };
  torch::manual_seed(1);
  nn::Sequential here = make();
  torch::manual_seed(1);
  nn::Sequential there = make();
  there->to(device);
  ddp::DistributedDataParallelOptions options;
  options.first_bucket_bytes = options.bucket_bytes = 1;
  ddp::libtorch::DistributedDataParallel model(here, options), on_device(there, options);
  if (narrow) {
    const auto hook = *narrow == at::kHalf ? ddp::fp16_compress_hook : ddp::bf16_compress_hook;
    model.register_comm_hook(hook);
    if (device.is_cuda()) {
      on_device.register_comm_hook(hook);
    } else {
      on_device.register_comm_hook(ddp::libtorch::detail::CompressHook{*narrow, ddp::default_group()});
    }
  }
  optim::SGD optimizer(here->parameters(), optim::SGDOptions(0.05).momentum(0.9));
  ddp::libtorch::ZeroRedundancyOptimizer<optim::SGD> on_device_optimizer(there->parameters(),
                                                                         optim::SGDOptions(0.05).momentum(0.9));
  torch::manual_seed(10 + ddp::get_rank());
  const torch::Tensor x = torch::randn({16, 8}), y = x.sum(1, /*keepdim=*/true).sin();
  double first = 0, last = 0;
  for (std::int64_t step = 0; step < kSteps; ++step) {
    optimizer.zero_grad();
    on_device_optimizer.zero_grad();
    const torch::Tensor loss = nn::functional::mse_loss(model(x), y);
    const torch::Tensor loss_there = nn::functional::mse_loss(on_device(x.to(device)), y.to(device));
    loss.backward();
    loss_there.backward();
    optimizer.step();
    on_device_optimizer.step();
    last = loss_there.item<double>();
    if (step == 0) first = last;
    TORCH_CHECK(std::abs(last - loss.item<double>()) <= tolerance, name, ", step ", step, ": the loss is ", last,
                " on ", device, " and ", loss.item<double>(), " in CPU memory");
  }
  TORCH_CHECK(last < first, name, ": the loss went from ", first, " to ", last);
  std::printf("device: %s\n", name.c_str());
}

void train_on_device() {
  train_on_device("average", 1e-4);
  train_on_device("fp16", 1e-3, at::kHalf);
  train_on_device("bf16", 1e-2, at::kBFloat16);
}

// The sampler goes on where it was, in an archive of libtorch too.
void sampler_state() {
  ddp::libtorch::DistributedSampler sampler(kSamples, 2, 1, true, 3), other(kSamples, 2, 1, true, 3);
  sampler.set_epoch(4);
  sampler.reset();
  const auto all = [](ddp::libtorch::DistributedSampler& of) {
    std::vector<std::size_t> indices;
    while (auto batch = of.next(5)) indices.insert(indices.end(), batch->begin(), batch->end());
    return indices;
  };
  sampler.next(6);
  torch::serialize::OutputArchive saved;
  sampler.save(saved);
  std::stringstream stream;
  saved.save_to(stream);
  torch::serialize::InputArchive archive;
  archive.load_from(stream);
  other.load(archive);
  TORCH_CHECK(all(other) == all(sampler) && other.size() == sampler.size() - 6);
  TORCH_CHECK(!other.next(1));
  refused("other size", [&] { sampler.reset(kSamples + 1); });
}

}  // namespace

int main(int argc, char** argv) {
  const ddp::Session session = ddp::init_process_group(options_of_test());
  const std::string folder = argv[1];
  const std::map<std::string, std::function<void()>> scenarios = {
      {"sync_batch_norm", [&] { sync_batch_norm(folder); }},
      {"grad_scaler",
       [&] {
         train("grad_scaler", folder, sgd, {/*has_hook=*/false, /*has_scaler=*/true});
       }},
      {"zero_adam", [&] { train("zero_adam", folder, zero_adam); }},
      {"zero_sgd", [&] { train("zero_sgd", folder, zero_sgd); }},
      {"sampler", [&] { sampler(folder); }},
      {"hook",
       [&] {
         train("hook", folder, sgd, {/*has_hook=*/true, /*has_scaler=*/false});
       }},
      {"collectives", collectives},
      {"conversion", conversion},
      {"zeros", [&] { zeros(folder); }},
      {"scalers", scalers},
      {"modules", [&] { modules(folder); }},
      {"sampler_state", sampler_state},
      {"device", [] { train_on_device(); }},
  };
  for (int i = 2; i < argc; ++i) {
    const auto scenario = scenarios.find(argv[i]);
    if (scenario != scenarios.end()) scenario->second();
  }
  std::printf("rank %d of %d done\n", session.rank(), session.world_size());
}
