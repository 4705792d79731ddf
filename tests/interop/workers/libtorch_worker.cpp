// SPDX-License-Identifier: BSD-3-Clause
// A C++ program that uses libtorch and trains with libddp. It links both libraries, so libtorch's
// Gloo has global symbols. libtorch_reference.py is the same program in Python, with PyTorch's
// DistributedDataParallel.
//
//   libtorch_worker FOLDER SCENARIO...    prints "SCENARIO RANK STEP LOSS" after each step of each scenario
//
// FOLDER has the input of both programs: the initial weights, which only rank 0 reads, and each
// rank's images.
#include "ddp/libtorch.hpp"

#include <torch/csrc/autograd/autograd.h>
#include <torch/nn.h>
#include <torch/optim.h>
#include <torch/serialize.h>

#include <cmath>
#include <cstdint>
#include <cstdio>
#include <functional>
#include <memory>
#include <optional>
#include <sstream>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "ddp/ddp.hpp"

namespace {

namespace nn = torch::nn;
using Options = ddp::DistributedDataParallelOptions;

constexpr std::int64_t kSteps = 20;
constexpr std::int64_t kBatch = 8;

struct Scenario {
  bool batch_norm = false;
  bool spare_layers = false;  // one that some ranks use in some steps, and one that no rank uses
  bool frozen = false;        // conv1 is not trained
  bool channels_last = false;
  bool penalty = false;       // on the gradient's norm: a backward through a backward
  bool evaluate = false;      // between steps, without gradients
  bool fp16 = false;          // gradients are sent with 16 bits
  int backwards = 1;          // per step; all but the last without communication
  bool averages_all = false;  // each of these backwards averages
  int fewer_steps = 0;        // for each rank after the first: uneven input
  bool divide_by_initial_world_size = true;
  Options options = {};
};

// Returns bucket sizes so small that there are several buckets.
Options small_buckets(Options options = {}) {
  options.first_bucket_bytes = 4096;
  options.bucket_bytes = 65536;
  return options;
}

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

// This rank's images and labels, one row for each backward.
struct Data {
  Data(const std::string& folder, int rank) {
    const ddp::Checkpoint file(folder + "/data" + std::to_string(rank) + ".safetensors");
    images = torch::empty({2 * kSteps, kBatch, 1, 28, 28});
    labels = torch::empty({2 * kSteps, kBatch}, torch::kLong);
    file.read("images", ddp::libtorch::buffer(images), shape_of(images));
    file.read("labels", ddp::libtorch::buffer(labels), shape_of(labels));
  }
  torch::Tensor images;
  torch::Tensor labels;
};

void read_weights(const std::string& folder, nn::Module& net) {
  const ddp::Checkpoint file(folder + "/weights.safetensors");
  const torch::NoGradGuard no_grad;
  for (auto& named : net.named_parameters()) {
    file.read(named.key(), ddp::libtorch::buffer(named.value()), shape_of(named.value()));
  }
}

void train(const std::string& name, const Scenario& scenario, const std::string& folder) {
  const int rank = ddp::get_rank();
  const Data data(folder, rank);
  Net net(scenario);
  if (rank == 0) read_weights(folder, *net);
  if (scenario.frozen) net->conv1->weight.requires_grad_(false);
  if (scenario.channels_last) {
    const torch::NoGradGuard no_grad;
    for (torch::Tensor& weight : {std::ref(net->conv1->weight), std::ref(net->conv2->weight)}) {
      weight.set_data(weight.contiguous(at::MemoryFormat::ChannelsLast));
    }
  }
  ddp::libtorch::DistributedDataParallel model(net, scenario.options);
  if (scenario.fp16) model.register_comm_hook(ddp::fp16_compress_hook);
  std::vector<torch::Tensor> trained;
  for (const torch::Tensor& p : model->parameters()) {
    if (p.requires_grad()) trained.push_back(p);
  }
  torch::optim::SGD optimizer(trained, torch::optim::SGDOptions(0.02).momentum(0.9));
  std::int64_t row = 0;
  const auto loss_of = [&] {
    const bool with_sometimes = (scenario.options.find_unused_parameters && (rank + row) % 3 == 1) ||
                                (name == "static_accumulated" && rank == 0);
    return nn::functional::cross_entropy(model(data.images[row], with_sometimes), data.labels[row]);
  };
  const auto backward = [&] {
    torch::Tensor loss = loss_of();
    if (scenario.penalty) {
      const auto gradients = torch::autograd::grad({loss}, {net->fc2->weight}, {}, true, /*create_graph=*/true);
      loss = loss + gradients[0].pow(2).sum();
    }
    loss.backward();
    ++row;
    return loss.item<double>();
  };
  const auto all_steps = [&] {
    for (std::int64_t step = 0; step < kSteps - rank * scenario.fewer_steps; ++step) {
      optimizer.zero_grad();
      double loss = 0;
      for (int i = 1; i < scenario.backwards; ++i) {
        std::optional<ddp::DistributedDataParallel::NoSync> local;
        if (!scenario.averages_all) local.emplace(model.averaging().c());
        loss += backward();
      }
      loss += backward();
      optimizer.step();
      for (const torch::Tensor& p : trained) TORCH_CHECK(!p.grad().defined() || p.grad().strides() == p.strides());
      if (scenario.evaluate) {
        const torch::NoGradGuard no_grad;
        model->eval();
        loss += loss_of().item<double>();
        if (rank == 0) loss_of();  // among such forwards only the first sends buffers
        model->train();
      }
      std::printf("%s %d %ld %.9g\n", name.c_str(), rank, static_cast<long>(step), loss);
    }
  };
  if (scenario.fewer_steps > 0) {
    ddp::JoinOptions options;
    options.divide_by_initial_world_size = scenario.divide_by_initial_world_size;
    model.join(all_steps, options);
    const torch::NoGradGuard no_grad;  // all ranks end with the model of the last active rank
    std::printf("%s %d %ld %.9g\n", name.c_str(), rank, static_cast<long>(kSteps),
                nn::functional::cross_entropy(net->forward(data.images[0]), data.labels[0]).item<double>());
  } else {
    all_steps();
  }
}

// Collectives on the ranks' tensors, without a module.
void collectives() {
  const auto size = static_cast<double>(ddp::get_world_size());
  const auto rank = static_cast<double>(ddp::get_rank());
  const torch::Tensor values = torch::full({100, 100}, rank).matmul(torch::eye(100));
  ddp::libtorch::all_reduce(values, ddp::ReduceOp::Avg);
  TORCH_CHECK(values.eq((size - 1) / 2).all().item<bool>());
  const torch::Tensor all = ddp::libtorch::all_gather(torch::full({3}, ddp::get_rank(), torch::kLong));
  TORCH_CHECK(all.sizes() == torch::IntArrayRef({ddp::get_world_size(), 3}));
  TORCH_CHECK(all.select(1, 0).equal(torch::arange(ddp::get_world_size())));
  const torch::Tensor everyones = torch::full({2}, rank);
  ddp::libtorch::broadcast(everyones, 1);
  TORCH_CHECK(everyones.eq(1).all().item<bool>());
  ddp::default_group().all_reduce_async(ddp::libtorch::buffer(values), ddp::ReduceOp::Max).wait();
  try {
    ddp::libtorch::all_reduce(values.t());
  } catch (const ddp::Error& error) {
    std::printf("%s\n", error.what());
  }
}

// Computes the plain average, and counts how often it was started.
class CountingHook : public ddp::CommHook {
 public:
  void start(const ddp::GradBucket& bucket) override {
    ++started;
    works_.push_back(ddp::default_group().all_reduce_async(bucket.buffer(), ddp::ReduceOp::Avg));
  }
  bool advance(const ddp::GradBucket& bucket) override {
    works_.at(bucket.index()).wait();
    return false;
  }
  std::size_t started = 0;

 private:
  std::vector<ddp::Work> works_;
};

// Parameters that do not influence the outputs delay no bucket: the first buckets are launched
// during backward.
void early_buckets() {
  Scenario scenario;
  scenario.spare_layers = true;
  Net net(scenario);
  ddp::libtorch::DistributedDataParallel model(net, small_buckets({.find_unused_parameters = true}));
  const auto hook = std::make_shared<CountingHook>();
  model.register_comm_hook(hook);
  const torch::Tensor images = torch::ones({1, 1, 28, 28}).requires_grad_();
  std::size_t before_the_end = 0;
  images.register_hook([&](const torch::Tensor&) { before_the_end = hook->started; });
  model(images).sum().backward();
  TORCH_CHECK(before_the_end > 0);
  std::printf("early buckets\n");
}

struct TwoHeadsImpl : nn::Module {
  std::tuple<torch::Tensor, torch::Tensor> forward(const torch::Tensor& x) { return {first(x), second(x)}; }
  nn::Linear first = register_module("first", nn::Linear(3, 1));
  nn::Linear second = register_module("second", nn::Linear(3, 1));
};
TORCH_MODULE(TwoHeads);

// An output that the loss does not use: what its layer has accumulated under no_sync is averaged
// all the same.
void part_of_outputs() {
  TwoHeads net;
  ddp::libtorch::DistributedDataParallel model(net, small_buckets({.find_unused_parameters = true}));
  const torch::Tensor input = torch::full({1, 3}, ddp::get_rank() + 1.0);
  {
    const auto local = model.no_sync();
    const auto [first, second] = model(input);
    (first + second).sum().backward();
  }
  std::get<0>(model(input)).sum().backward();
  const double average = (ddp::get_world_size() + 1) / 2.0;
  TORCH_CHECK(net->first->weight.grad().sub(2 * average).abs().max().item<double>() < 1e-6);
  TORCH_CHECK(net->second->weight.grad().sub(average).abs().max().item<double>() < 1e-6);
  std::printf("part of the outputs\n");
}

// One parameter whose gradient on each rank is the input, which is its rank plus 1, so that the
// average is known. Another layer is used only if `sometimes` says so.
struct LineImpl : nn::Module {
  torch::Tensor forward(const torch::Tensor& x, bool with_sometimes = false) {
    torch::Tensor y = line(norm(x));
    return with_sometimes ? y + sometimes(x) : y;
  }
  nn::Linear line = register_module("line", nn::Linear(nn::LinearOptions(2, 3).bias(false)));
  nn::Linear sometimes = register_module("sometimes", nn::Linear(nn::LinearOptions(2, 3).bias(false)));
  nn::BatchNorm1d norm = register_module("norm", nn::BatchNorm1d(nn::BatchNorm1dOptions(2).affine(false)));
};
TORCH_MODULE(Line);

// Moves a module's tensors to other memory, where autograd may also have other accumulators for
// their gradients, in the ways in which programs do that.
using Move = std::function<void(Line&)>;
const std::vector<std::pair<const char*, Move>> kMoves = {
    {"load",
     [](Line& net) {
       std::stringstream file;
       torch::save(net, file);
       torch::load(net, file);
     }},
    {"set_data",
     [](Line& net) {
       for (torch::Tensor& p : net->parameters()) p.set_data(p.detach().clone());
       for (torch::Tensor& b : net->buffers()) b.set_data(b.clone());
     }},
    {"to",
     [](Line& net) {
       net->to(torch::kDouble);
       net->to(torch::kFloat);  // integers as well, so this counter becomes one again
       net->norm->num_batches_tracked.set_data(net->norm->num_batches_tracked.to(torch::kLong));
     }},
    {"one parameter",
     [](Line& net) {
       torch::Tensor& p = net->line->weight;
       p.set_data(p.detach().to(torch::kDouble));
       p.set_data(p.detach().to(torch::kFloat));
     }},
};

// A module in training, which checks that its gradients are averages.
struct Mover {
  explicit Mover(const Options& options) : finds_unused(options.find_unused_parameters), model(net, options) {
    net->eval();  // the running statistics are what they are set to
  }

  torch::Tensor loss() { return model(input, use_both()).sum(); }
  bool use_both() const { return !finds_unused || ddp::get_rank() == 0; }
  // How often the input has been added up in `line`, and on some ranks in `sometimes`.
  void check(const std::string& when, int line = 1, int sometimes = 1) const {
    const double average = (ddp::get_world_size() + 1) / 2.0;
    const double unused = finds_unused ? 1.0 / ddp::get_world_size() : average;  // only rank 0 uses it
    const double scale = 1 / std::sqrt(1 + 1e-5);  // what the batch norm makes of an input of 1
    const auto difference = [&](const nn::Linear& layer, double wanted) {
      return layer->weight.grad().sub(wanted).abs().max().item<double>();
    };
    TORCH_CHECK(difference(net->line, scale * line * average) < 1e-4, when, ": ", net->line->weight.grad(),
                " is not the average");
    TORCH_CHECK(difference(net->sometimes, sometimes * unused) < 1e-4, when, ": ", net->sometimes->weight.grad(),
                " is not the average of a layer that is not always used");
  }
  void step(const std::string& when) {
    net->zero_grad();
    loss().backward();
    check(when);
  }

  const bool finds_unused;
  Line net;
  ddp::libtorch::DistributedDataParallel<LineImpl> model;
  const torch::Tensor input = torch::full({1, 2}, ddp::get_rank() + 1.0);
};

void move_between_steps(const Options& options, const std::string& what, const Move& move) {
  Mover mover(options);
  move(mover.net);
  mover.step(what + " before the first step");
  mover.step(what + ", and nothing since");
  mover.net->norm->running_mean.fill_(ddp::get_rank());
  move(mover.net);
  mover.step(what + " in the middle");
  TORCH_CHECK(mover.net->norm->running_mean.eq(0).all().item<bool>(), what,
              ": the buffer is not rank 0's: ", mover.net->norm->running_mean);

  mover.net->zero_grad();
  {
    const auto local = mover.model.no_sync();
    mover.loss().backward();
    move(mover.net);
  }
  mover.loss().backward();
  mover.check(what + " under no_sync", 2, 2);

  mover.net->zero_grad(/*set_to_none=*/false);
  const torch::Tensor loss = mover.loss();
  move(mover.net);
  loss.backward();
  mover.check(what + " between forward and backward");

  move(mover.net);
  mover.net->zero_grad();
  mover.model->forward(mover.input, mover.use_both()).sum().backward();
  mover.check(what + ", and a forward that is not DistributedDataParallel's");
}

// Rank r has r + 1 steps. In the end all have the last rank's parameters, in the new memory.
void move_inside_join(const std::string& what, const Move& move) {
  Mover mover({});
  const torch::NoGradGuard no_grad;
  mover.model.join([&] {
    for (int step = 0; step <= ddp::get_rank(); ++step) {
      const torch::AutoGradMode grad(true);
      mover.net->zero_grad();
      mover.loss().backward();
      move(mover.net);
    }
    mover.net->line->weight.fill_(ddp::get_rank());
  });
  TORCH_CHECK(mover.net->line->weight.eq(ddp::get_world_size() - 1).all().item<bool>(), what,
              " inside join: ", mover.net->line->weight);
}

// Gradients that the program replaces, sets to zero or removes.
void replace_gradients(const Options& options) {
  Mover mover(options);
  for (int step = 0; step < 3; ++step) {
    for (torch::Tensor& p : mover.net->parameters()) p.mutable_grad() = torch::zeros({3, 2});
    mover.loss().backward();
    mover.check("a gradient of the program's own");
    mover.net->zero_grad(/*set_to_none=*/step == 0);
    mover.loss().backward();
    mover.check("gradients that were cleared");
    const std::vector<torch::Tensor> kept = {mover.net->line->weight.grad(), mover.net->sometimes->weight.grad()};
    mover.net->zero_grad();
    mover.loss().backward();
    mover.check("gradients of which the program has the old ones");
  }
}

void moves() {
  const std::vector<Options> all_options = {
      {},
      {.gradient_as_bucket_view = true},
      {.find_unused_parameters = true},
      {.find_unused_parameters = true, .gradient_as_bucket_view = true},
      {.static_graph = true, .gradient_as_bucket_view = true},
  };
  for (const Options& options : all_options) {
    for (const auto& [what, move] : kMoves) move_between_steps(small_buckets(options), what, move);
    replace_gradients(small_buckets(options));
  }
  for (const auto& [what, move] : kMoves) move_inside_join(what, move);
  std::printf("moved\n");
}

// Prints the error of a model that cannot work. Each model has its own group, because some of them
// abort it.
void mistake(const ddp::Session& session, const char* what, const std::function<void(const ddp::ProcessGroup&)>& body) {
  std::vector<int> ranks;
  for (int rank = 0; rank < session.world_size(); ++rank) ranks.push_back(rank);
  const ddp::ProcessGroup group = session.new_group(ranks);
  try {
    body(group);
    std::printf("%s: nothing was said\n", what);
  } catch (const ddp::Error& error) {
    std::printf("%s: %s\n", what, error.what());
  }
}

void mistakes(const ddp::Session& session) {
  using ddp::libtorch::DistributedDataParallel;
  const torch::Tensor input = torch::ones({2, 3});
  mistake(session, "shapes", [&](const ddp::ProcessGroup& group) {
    DistributedDataParallel model(nn::Linear(3, session.rank() == 1 ? 5 : 4), group);
  });
  mistake(session, "frozen shapes", [&](const ddp::ProcessGroup& group) {
    nn::Linear net(3, 4);
    net->register_parameter("table", torch::ones({2, 2 + session.rank()}), /*requires_grad=*/false);
    DistributedDataParallel model(net, group);
  });
  mistake(session, "layouts", [&](const ddp::ProcessGroup& group) {
    nn::Conv2d net(3, 4, 5);
    if (session.rank() == 1) net->weight.set_data(net->weight.contiguous(at::MemoryFormat::ChannelsLast));
    DistributedDataParallel model(net, group);
  });
  mistake(session, "forgotten", [&](const ddp::ProcessGroup& group) {
    Scenario scenario;
    scenario.spare_layers = true;
    Net net(scenario);
    DistributedDataParallel model(net, group);
    model(torch::ones({1, 1, 28, 28})).sum().backward();
  });
  mistake(session, "sparse", [&](const ddp::ProcessGroup& group) {
    nn::Embedding net(nn::EmbeddingOptions(10, 3).sparse(true));
    DistributedDataParallel model(net, group);
    model(torch::arange(4)).sum().backward();
  });
  mistake(session, "nothing",
          [&](const ddp::ProcessGroup& group) { DistributedDataParallel model(nn::Flatten(), group); });
  const auto changed = [&](const char* what, const std::function<void(Line&)>& change) {
    mistake(session, what, [&](const ddp::ProcessGroup& group) {
      Line net;
      net->sometimes->weight.requires_grad_(false);
      DistributedDataParallel model(net, group);
      model(torch::ones({2, 2})).sum().backward();
      change(net);
      model(torch::ones({2, 2}, net->line->weight.options().requires_grad(false)));
    });
  };
  changed("type of all", [](Line& net) { net->to(torch::kBFloat16); });
  changed("type of one", [](Line& net) { net->line->weight.set_data(torch::ones({3, 2}, torch::kDouble)); });
  changed("type of a buffer", [](Line& net) { net->norm->running_var.set_data(torch::ones({2}, torch::kDouble)); });
  changed("shape", [](Line& net) { net->line->weight.set_data(torch::ones({5, 2})); });
  changed("layout", [](Line& net) { net->line->weight.set_data(torch::ones({2, 3}).t()); });
  changed("added", [](Line& net) { net->register_parameter("more", torch::ones({1})); });
  changed("replaced", [](Line& net) { net->replace_module("line", nn::Linear(2, 3)); });
  changed("unfrozen", [](Line& net) { net->sometimes->weight.requires_grad_(true); });
  mistake(session, "overlap", [&](const ddp::ProcessGroup& group) {
    nn::Linear net(3, 4);
    net->register_buffer("ones", torch::ones({1}).expand({4}));
    DistributedDataParallel model(net, group);
  });
}

}  // namespace

int main(int argc, char** argv) {
  const ddp::Session session = ddp::init_process_group();
  torch::manual_seed(session.rank());  // ranks start with different weights: rank 0's must reach them all
  const std::string folder = argv[1];
  const std::vector<std::pair<std::string, Scenario>> scenarios = {
      {"plain", {}},
      {"no_sync", {.backwards = 2}},
      {"buckets", {.options = small_buckets()}},
      {"views", {.options = small_buckets({.gradient_as_bucket_view = true})}},
      {"views_no_sync", {.backwards = 2, .options = small_buckets({.gradient_as_bucket_view = true})}},
      {"batch_norm", {.batch_norm = true, .evaluate = true}},
      {"local_buffers", {.batch_norm = true, .evaluate = true, .options = {.broadcast_buffers = false}}},
      {"unused", {.spare_layers = true, .options = small_buckets({.find_unused_parameters = true})}},
      {"unused_views",
       {.spare_layers = true,
        .backwards = 2,
        .options = small_buckets({.find_unused_parameters = true, .gradient_as_bucket_view = true})}},
      {"unused_accumulated",
       {.spare_layers = true,
        .backwards = 2,
        .averages_all = true,
        .options = small_buckets({.find_unused_parameters = true})}},
      {"unused_accumulated_views",
       {.spare_layers = true,
        .backwards = 2,
        .averages_all = true,
        .options = small_buckets({.find_unused_parameters = true, .gradient_as_bucket_view = true})}},
      {"static_graph", {.spare_layers = true, .options = {.static_graph = true}}},
      {"static_accumulated",
       {.spare_layers = true,
        .backwards = 2,
        .averages_all = true,
        .options = small_buckets({.static_graph = true, .gradient_as_bucket_view = true})}},
      {"frozen", {.frozen = true}},
      {"channels_last", {.channels_last = true, .options = small_buckets({.gradient_as_bucket_view = true})}},
      {"penalty", {.penalty = true}},
      {"fp16", {.fp16 = true, .options = small_buckets()}},
      {"uneven", {.batch_norm = true, .fewer_steps = 3}},
      {"uneven_active", {.fewer_steps = 3, .divide_by_initial_world_size = false}},
  };
  for (int i = 2; i < argc; ++i) {
    const std::string wanted = argv[i];
    if (wanted == "collectives") collectives();
    if (wanted == "early_buckets") early_buckets();
    if (wanted == "part_of_outputs") part_of_outputs();
    if (wanted == "moves") moves();
    if (wanted == "mistakes") mistakes(session);
    for (const auto& [name, scenario] : scenarios) {
      if (name == wanted) train(name, scenario, folder);
    }
  }
  std::printf("rank %d of %d done\n", session.rank(), session.world_size());
}
