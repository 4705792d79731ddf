// SPDX-License-Identifier: BSD-3-Clause
// One rank that repeats with libddp what golden/ddp/make_golden.py did with PyTorch, on the same
// numbers, and compares the results:
//
//     golden_worker FOLDER CASE BACKEND      FOLDER: golden/ddp; CASE: see main()
//
// Prints how many elements differ in any bit. Prints "wrong: ..." for each that differs by more
// than it may, and then exits with 1.
#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "ddp/ddp.hpp"
#include "tests/runtime/job/scenario.hpp"

namespace {

using ddp::test::all_right;
using ddp::test::expect;
using ddp::test::say;
using Options = ddp::DistributedDataParallelOptions;
using Shape = std::vector<std::int64_t>;

// Must equal the values in make_golden.py.
constexpr int kSteps = 4;
constexpr std::size_t kBucketBytes = 256;
constexpr double kKept = 5;
constexpr int kTrainingSteps = 20;
constexpr std::size_t kBatch = 4;
const std::vector<Shape> kShapes = {{6, 10}, {6}, {9, 6}, {9}, {3, 2, 2, 2}, {1}};

std::size_t count_of(const Shape& shape) {
  std::size_t count = 1;
  for (const std::int64_t n : shape) count *= static_cast<std::size_t>(n);
  return count;
}

std::size_t total() {
  std::size_t sum = 0;
  for (const Shape& shape : kShapes) sum += count_of(shape);
  return sum;
}

// How far an element may be from PyTorch's, relative to the average magnitude of the ranks'
// contributions to this element.
struct Tolerance {
  double relative = 1e-6;
  double absolute = 0;
};
constexpr Tolerance kSameBits = {0, 0};

class Golden {
 public:
  Golden(const std::string& folder, const ddp::ProcessGroup& world)
      : inputs_(folder + "/inputs.safetensors"),
        results_(folder + "/world_" + std::to_string(world.size()) + ".safetensors"),
        size_(world.size()) {}

  std::vector<double> gradient(int rank, int step) const {
    std::vector<double> values(total());
    inputs_.read("gradient." + std::to_string(rank) + "." + std::to_string(step), values,
                 {static_cast<std::int64_t>(values.size())});
    return values;
  }

  template <typename T>
  std::vector<T> input(const std::string& name, std::size_t count) const {
    return read<T>(inputs_, name, count);
  }
  template <typename T>
  std::vector<T> result(const std::string& name, std::size_t count) const {
    return read<T>(results_, name, count);
  }

  // Compares the averages of all parameters, in a row, with the golden result of type T.
  template <typename T>
  void compare(const std::string& name, const std::vector<int>& steps, const std::vector<T>& have,
               Tolerance tolerance) {
    const std::vector<T> want = result<T>(name, have.size());
    std::vector<double> sent(have.size(), 0);
    for (int rank = 0; rank < size_; ++rank) {
      for (const int step : steps) {
        const std::vector<double> theirs = gradient(rank, step);
        for (std::size_t i = 0; i < sent.size(); ++i) sent[i] += std::abs(theirs[i]) / size_;
      }
    }
    for (std::size_t i = 0; i < have.size(); ++i) {
      if (have[i] == want[i]) continue;
      ++different_;
      const double difference = std::abs(static_cast<double>(have[i]) - static_cast<double>(want[i]));
      worst_ = std::max(worst_, difference / sent[i]);
      expect(difference <= tolerance.relative * sent[i] + tolerance.absolute,
             name + ", element " + std::to_string(i) + ": " + std::to_string(have[i]) + ", PyTorch has " +
                 std::to_string(want[i]) + ", of " + std::to_string(sent[i]) + " sent");
    }
    compared_ += have.size();
  }

  void report(const std::string& name) {
    char text[200];
    std::snprintf(text, sizeof(text), "%s: %zu of %zu elements differ from PyTorch's, at most by %.1e of what was sent",
                  name.c_str(), different_, compared_, worst_);
    say(text);
    different_ = compared_ = 0;
    worst_ = 0;
  }

 private:
  template <typename T>
  static std::vector<T> read(const ddp::Checkpoint& file, const std::string& name, std::size_t count) {
    std::vector<T> values(count);
    file.read(name, values, {static_cast<std::int64_t>(count)});
    return values;
  }

  ddp::Checkpoint inputs_;
  ddp::Checkpoint results_;
  int size_;
  std::size_t different_ = 0;
  std::size_t compared_ = 0;
  double worst_ = 0;
};

// The parameters of make_golden.py's Products, each of its own type.
class Products {
 public:
  Products(const ddp::ProcessGroup& world, const std::function<ddp::DType(std::size_t)>& dtype, const Options& options)
      : bytes_(total() * sizeof(double)), gradients_(total() * sizeof(double)) {
    std::vector<ddp::Parameter> parameters;
    std::size_t at = 0;
    for (std::size_t i = 0; i < kShapes.size(); ++i) {
      ddp::Parameter p;
      p.value = bytes_.data() + at * sizeof(double);
      p.grad = options.gradient_as_bucket_view ? nullptr : gradients_.data() + at * sizeof(double);
      p.count = count_of(kShapes[i]);
      p.dtype = dtype(i);
      p.shape = kShapes[i];
      p.name = "p" + std::to_string(i);
      at += p.count;
      parameters.push_back(p);
    }
    dtype_ = dtype;
    model_.emplace(world, parameters, options);
  }

  ddp::DistributedDataParallel& model() { return *model_; }

  // Sets element k of gradient i to value(k), or adds value(k) to it; k counts over the row of all
  // parameters.
  void set(std::size_t i, const std::function<double(std::size_t)>& value, bool add = false) {
    each(i, [&](auto& gradient, std::size_t k) {
      using T = std::remove_reference_t<decltype(gradient)>;
      const T x = static_cast<T>(value(k));
      gradient = add ? gradient + x : x;
    });
  }

  void backward(const std::vector<double>& local, bool add = false, const std::vector<std::size_t>& unused = {}) {
    for (std::size_t i = kShapes.size(); i-- > 0;) {
      if (std::find(unused.begin(), unused.end(), i) != unused.end()) continue;
      set(
          i, [&](std::size_t k) { return local[k]; }, add);
      model_->mark_ready(i);
    }
  }

  template <typename T>
  std::vector<T> all() {
    std::vector<T> result;
    for (std::size_t i = 0; i < kShapes.size(); ++i) {
      each(i, [&](auto& gradient, std::size_t) { result.push_back(static_cast<T>(gradient)); });
    }
    return result;
  }

 private:
  void each(std::size_t i, const auto& visit) {
    std::size_t at = 0;
    for (std::size_t before = 0; before < i; ++before) at += count_of(kShapes[before]);
    for (std::size_t k = 0; k < count_of(kShapes[i]); ++k) {
      if (dtype_(i) == ddp::DType::Float64) {
        visit(model_->gradient<double>(i)[k], at + k);
      } else {
        visit(model_->gradient<float>(i)[k], at + k);
      }
    }
  }

  std::vector<std::byte> bytes_;
  std::vector<std::byte> gradients_;
  std::function<ddp::DType(std::size_t)> dtype_;
  std::optional<ddp::DistributedDataParallel> model_;
};

Options small_buckets() {
  Options options;
  options.first_bucket_bytes = options.bucket_bytes = kBucketBytes;
  return options;
}

class Cases {
 public:
  Cases(const std::string& folder, const ddp::ProcessGroup& world) : world_(world), golden_(folder, world) {}

  // With up to two ranks a sum has only one order. With more, Gloo's order, in which PyTorch added, depends on the
  // element's place in its bucket. libddp's buckets are PyTorch's once both have rebuilt them, which does not
  // happen in every case.
  Tolerance exact_from(int first_step, int step) const {
    const bool same_order = world_.size() <= 2 || (step >= first_step && world_.backend() == "gloo");
    return same_order ? kSameBits : Tolerance{};
  }
  static constexpr int kNever = kSteps;

  using Tolerances = std::function<Tolerance(int step)>;
  using Unused = std::function<std::vector<std::size_t>(int rank, int step)>;
  using Register = std::function<void(ddp::DistributedDataParallel&)>;

  template <typename T>
  void averages(const std::string& name, const Options& options, const Tolerances& tolerance, const Register& hook = {},
                const Unused& unused = {}) {
    Products products(
        world_, [](std::size_t) { return ddp::dtype_of<T>(); }, options);
    if (hook) hook(products.model());
    for (int step = 0; step < kSteps; ++step) {
      const auto mine = unused ? unused(world_.rank(), step) : std::vector<std::size_t>();
      for (const std::size_t i : mine) products.set(i, [&](std::size_t) { return i == 5 ? kKept : 0; });
      products.backward(golden_.gradient(world_.rank(), step), false, mine);
      products.model().synchronize();
      golden_.compare(name + "." + std::to_string(step), {step}, products.all<T>(), tolerance(step));
    }
    golden_.report(name);
  }

  Tolerances exact_from(int first_step) const {
    return [this, first_step](int step) { return exact_from(first_step, step); };
  }

  void plain() {
    averages<float>("float32", small_buckets(), exact_from(1));
    averages<double>("float64", small_buckets(), exact_from(1));
    averages<float>("one_bucket", Options(), exact_from(1));
  }

  void mixed() {
    Products products(
        world_, [](std::size_t i) { return i % 2 == 1 ? ddp::DType::Float64 : ddp::DType::Float32; }, small_buckets());
    for (int step = 0; step < kSteps; ++step) {
      products.backward(golden_.gradient(world_.rank(), step));
      products.model().synchronize();
      golden_.compare("mixed." + std::to_string(step), {step}, products.all<double>(), exact_from(1, step));
    }
    golden_.report("mixed");
  }

  void bucket_view() {
    Options options = small_buckets();
    options.gradient_as_bucket_view = true;
    averages<float>("bucket_view", options, exact_from(1));
  }

  void static_graph() {
    Options options = small_buckets();
    options.static_graph = true;
    averages<float>("static_graph", options, exact_from(2));
  }

  void no_sync() {
    Products products(
        world_, [](std::size_t) { return ddp::DType::Float32; }, small_buckets());
    for (int step = 0; step < kSteps; step += 2) {
      {
        const auto local = products.model().no_sync();
        products.backward(golden_.gradient(world_.rank(), step));
      }
      products.backward(golden_.gradient(world_.rank(), step + 1), true);
      products.model().synchronize();
      golden_.compare("no_sync." + std::to_string(step + 1), {step, step + 1}, products.all<float>(),
                      exact_from(2, step));
    }
    golden_.report("no_sync");
  }

  void unused() {
    Options options = small_buckets();
    options.find_unused_parameters = true;
    averages<float>("unused", options, exact_from(kNever), {}, [](int rank, int step) -> std::vector<std::size_t> {
      if (step % 2 == 1) return {};
      return rank % 2 == 1 ? std::vector<std::size_t>{2, 5} : std::vector<std::size_t>{5};
    });
  }

  void join() {
    for (const bool initial : {true, false}) {
      const std::string name = initial ? "join" : "join_effective";
      Products products(
          world_, [](std::size_t) { return ddp::DType::Float32; }, small_buckets());
      ddp::JoinOptions options;
      options.divide_by_initial_world_size = initial;
      products.model().join(
          [&] {
            for (int step = 0; step < kSteps - world_.rank() % 3; ++step) {
              products.model().before_forward();
              products.backward(golden_.gradient(world_.rank(), step));
              products.model().synchronize();
              if (world_.rank() != 0) continue;
              golden_.compare(name + "." + std::to_string(step), {step}, products.all<float>(), exact_from(1, step));
            }
          },
          options);
      golden_.report(name);
    }
  }

  void hooks() {
    // PyTorch's allreduce hook divides by N, whereas its DistributedDataParallel multiplies by 1/N.
    const bool is_power_of_two = (world_.size() & (world_.size() - 1)) == 0;
    averages<float>("allreduce_hook", small_buckets(), exact_from(is_power_of_two ? 1 : kNever),
                    [](auto& model) { model.register_comm_hook(ddp::allreduce_hook); });
    // PyTorch rounds when converting to 16 bits, after multiplying by 1/N, and after each of N - 1
    // additions. libddp rounds only at the conversion and at the end.
    const double roundings = world_.size() + 2;
    averages<float>(
        "fp16_hook", small_buckets(),
        [&](int) {
          return Tolerance{roundings * 0x1p-11, roundings * 0x1p-25};
        },
        [](auto& model) { model.register_comm_hook(ddp::fp16_compress_hook); });
    averages<float>(
        "bf16_hook", small_buckets(), [&](int) { return Tolerance{roundings * 0x1p-8}; },
        [](auto& model) { model.register_comm_hook(ddp::bf16_compress_hook); });
  }

  void train();

 private:
  ddp::ProcessGroup world_;
  Golden golden_;
};

// A network of 8 inputs, 16 units with tanh and one output. The loss is the mean squared error.
struct Network {
  static constexpr std::size_t kIn = 8;
  static constexpr std::size_t kUnits = 16;
  static constexpr std::size_t kCount = kIn * kUnits + kUnits + kUnits + 1;
  // All values in a row: the weight from input i to unit u is at i * kUnits + u, then the units'
  // biases, the weights to the output, and its bias.
  std::vector<float> values;
  std::vector<float> gradients = std::vector<float>(kCount);

  std::vector<ddp::Parameter> parameters() {
    std::vector<ddp::Parameter> result;
    std::size_t at = 0;
    for (const std::size_t count : {kIn * kUnits, kUnits, kUnits, std::size_t{1}}) {
      result.emplace_back("layer" + std::to_string(result.size()), &values[at], &gradients[at], count);
      at += count;
    }
    return result;
  }

  // Returns the loss of these samples, and replaces the gradients.
  double backward(const std::vector<float>& x, const std::vector<float>& y) {
    const float* const biases = &values[kIn * kUnits];
    const float* const out = biases + kUnits;
    std::fill(gradients.begin(), gradients.end(), 0.0F);
    float* const to_biases = &gradients[kIn * kUnits];
    float* const to_out = to_biases + kUnits;
    double loss = 0;
    for (std::size_t sample = 0; sample < y.size(); ++sample) {
      float units[kUnits];
      float output = values[kCount - 1];
      for (std::size_t u = 0; u < kUnits; ++u) {
        float sum = biases[u];
        for (std::size_t i = 0; i < kIn; ++i) sum += x[sample * kIn + i] * values[i * kUnits + u];
        units[u] = std::tanh(sum);
        output += units[u] * out[u];
      }
      const float error = output - y[sample];
      loss += static_cast<double>(error) * static_cast<double>(error) / static_cast<double>(y.size());
      const float to_output = 2 * error / static_cast<float>(y.size());
      gradients[kCount - 1] += to_output;
      for (std::size_t u = 0; u < kUnits; ++u) {
        to_out[u] += to_output * units[u];
        const float to_sum = to_output * out[u] * (1 - units[u] * units[u]);
        to_biases[u] += to_sum;
        for (std::size_t i = 0; i < kIn; ++i) gradients[i * kUnits + u] += to_sum * x[sample * kIn + i];
      }
    }
    return loss;
  }
};

class SGD {
 public:
  explicit SGD(float momentum) : momentum_(momentum) {}
  void step(Network& network) {
    for (std::size_t i = 0; i < Network::kCount; ++i) {
      velocity_[i] = momentum_ * velocity_[i] + network.gradients[i];
      network.values[i] -= 0.02F * velocity_[i];
    }
  }

 private:
  float momentum_;
  std::vector<float> velocity_ = std::vector<float>(Network::kCount);
};

void Cases::train() {
  const auto x_of = [&](int rank) { return golden_.input<float>("x." + std::to_string(rank), kBatch * Network::kIn); };
  const auto y_of = [&](int rank) { return golden_.input<float>("y." + std::to_string(rank), kBatch); };
  std::vector<float> all_x, all_y;
  for (int rank = 0; rank < world_.size(); ++rank) {
    for (const float value : x_of(rank)) all_x.push_back(value);
    for (const float value : y_of(rank)) all_y.push_back(value);
  }
  for (const auto& [name, momentum] : {std::pair{"sgd", 0.0F}, {"momentum", 0.9F}}) {
    const std::vector<double> pytorchs = golden_.result<double>(std::string(name) + ".losses", kTrainingSteps);
    Network network{golden_.input<float>("mlp", Network::kCount)};
    Network alone = network;  // one process with all ranks' samples
    SGD sgd(momentum), sgd_alone(momentum);
    ddp::DistributedDataParallel model(world_, network.parameters(), small_buckets());
    double worst = 0;
    for (int step = 0; step < kTrainingSteps; ++step) {
      double loss = network.backward(x_of(world_.rank()), y_of(world_.rank()));
      for (std::size_t i = 4; i-- > 0;) model.mark_ready(i);
      model.synchronize();
      sgd.step(network);
      world_.all_reduce({&loss, 1}, ddp::ReduceOp::Avg);
      const double alones = alone.backward(all_x, all_y);
      sgd_alone.step(alone);
      const std::string what = std::string(name) + ", step " + std::to_string(step) + ": loss " + std::to_string(loss);
      const double want = pytorchs[static_cast<std::size_t>(step)];
      // Relative to the first loss: late losses are differences of larger numbers.
      worst = std::max(worst, std::abs(loss - want) / pytorchs.front());
      expect(std::abs(loss - want) <= 1e-6 * pytorchs.front(), what + ", PyTorch has " + std::to_string(want));
      expect(std::abs(loss - alones) <= 1e-6 * pytorchs.front(), what + ", one process has " + std::to_string(alones));
    }
    expect(pytorchs.back() < 0.7 * pytorchs.front(), std::string(name) + " learns");
    char text[200];
    std::snprintf(text, sizeof(text), "%s: losses %.6f to %.6f differ from PyTorch's at most by %.1e of the first",
                  name, pytorchs.front(), pytorchs.back(), worst);
    say(text);
  }
}

}  // namespace

int main(int, char** argv) {
  const std::map<std::string, void (Cases::*)()> cases = {
      {"plain", &Cases::plain},
      {"mixed", &Cases::mixed},
      {"bucket_view", &Cases::bucket_view},
      {"static_graph", &Cases::static_graph},
      {"no_sync", &Cases::no_sync},
      {"unused", &Cases::unused},
      {"join", &Cases::join},
      {"hooks", &Cases::hooks},
      {"train", &Cases::train},
  };
  try {
    ddp::Session session = ddp::init_process_group({.backend = argv[3]});
    Cases here(argv[1], session.world());
    (here.*cases.at(argv[2]))();
  } catch (const std::exception& e) {
    expect(false, e.what());
  }
  return all_right ? 0 : 1;
}
