// SPDX-License-Identifier: BSD-3-Clause
// One rank of a job that normalises batches: `batch_norm_worker SCENARIO [FILE]`. Prints a line
// "wrong: ..." for each check that fails, and then exits with 1. Prints nothing if all succeed.
#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <functional>
#include <map>
#include <random>
#include <sstream>
#include <string>
#include <vector>

#include "ddp/ddp.hpp"
#include "ddp/training.hpp"
#include "tests/runtime/job/scenario.hpp"

namespace {

using ddp::test::all_right;
using ddp::test::expect;
using Values = std::vector<double>;

struct Facts {
  std::size_t steps = 0;
  std::size_t rows = 0;
  std::size_t channels = 0;
  std::size_t length = 0;
  std::string type;
  double eps = 0;
  double momentum = 0;

  std::size_t row() const { return channels * length; }
  std::size_t batch() const { return rows * row(); }
};

// For each element type: its stored form, and conversions from and to double.
struct Float64 {
  using Parameter = double;
  using Stored = double;
  static constexpr ddp::DType kType = ddp::DType::Float64;
  static constexpr double kTolerance = 1e-12;
  static double put(double x) { return x; }
  static double get(double x) { return x; }
};
struct Float32 {
  using Parameter = float;
  using Stored = float;
  static constexpr ddp::DType kType = ddp::DType::Float32;
  static constexpr double kTolerance = 2e-6;
  static float put(double x) { return static_cast<float>(x); }
  static double get(float x) { return static_cast<double>(x); }
};
struct BFloat16 {
  using Parameter = float;
  using Stored = std::uint16_t;
  static constexpr ddp::DType kType = ddp::DType::BFloat16;
  static constexpr double kTolerance = 1.0 / 128;  // one step of its 8 bits
  static std::uint16_t put(double x) {             // for values that the type can represent
    return static_cast<std::uint16_t>(std::bit_cast<std::uint32_t>(static_cast<float>(x)) >> 16);
  }
  static double get(std::uint16_t x) { return static_cast<double>(std::bit_cast<float>(std::uint32_t{x} << 16)); }
};

struct Range {
  std::size_t first;
  std::size_t end;
};
// Ways to divide the rows: 0 evenly; 1 more for higher ranks and none for rank 0; 2 all for the
// last rank.
constexpr int kSplits = 3;
Range rows_of(int split, std::size_t rows, int rank, int size) {
  const auto border = [&](int r) -> std::size_t {
    const auto n = static_cast<std::size_t>(size);
    const auto k = static_cast<std::size_t>(r);
    if (split == 0) return rows * k / n;
    if (split == 1 && n > 1) return rows * (k * (k + 1) / 2 - k) / (n * (n - 1) / 2);
    return r == size ? rows : 0;
  };
  return {border(rank), border(rank + 1)};
}

// Returns one rank's rows, in either layout.
template <typename Element>
std::vector<typename Element::Stored> part(const Values& batch, std::size_t step, const Facts& f, Range rows,
                                           bool channels_last) {
  std::vector<typename Element::Stored> result;
  for (std::size_t n = rows.first; n < rows.end; ++n) {
    const double* row = batch.data() + step * f.batch() + n * f.row();
    for (std::size_t i = 0; i < f.row(); ++i) {
      const std::size_t at = channels_last ? i % f.channels * f.length + i / f.channels : i;
      result.push_back(Element::put(row[at]));
    }
  }
  return result;
}

template <typename Element>
void compare(const std::string& what, const std::vector<typename Element::Stored>& got,
             const std::vector<typename Element::Stored>& want, double tolerance = Element::kTolerance) {
  expect(got.size() == want.size(), what + ": another size");
  for (std::size_t i = 0; i < want.size(); ++i) {
    const double right = Element::get(want[i]);
    const double off = std::abs(Element::get(got[i]) - right);
    if (off <= tolerance * std::max(1.0, std::abs(right))) continue;
    expect(false, what + "[" + std::to_string(i) + "] is " + std::to_string(Element::get(got[i])) + ", should be " +
                      std::to_string(right));
    return;
  }
}

template <typename T>
std::vector<T> to(const Values& values) {
  return {values.begin(), values.end()};
}

// ---- against PyTorch's results ----

class Golden {
 public:
  explicit Golden(const std::string& path) : file_(path) {}
  Facts facts(const std::string& name) const {
    Facts f;
    std::istringstream in(file_.metadata(name).value());
    in >> f.steps >> f.rows >> f.channels >> f.length >> f.type >> f.eps >> f.momentum;
    return f;
  }
  Values read(const std::string& name, const std::vector<std::int64_t>& shape) const {
    std::int64_t count = 1;
    for (const std::int64_t n : shape) count *= n;
    Values values(static_cast<std::size_t>(count));
    file_.read(name, values, shape);
    return values;
  }

 private:
  ddp::Checkpoint file_;
};

template <typename Element>
void check_case(const Golden& golden, const std::string& name, const ddp::ProcessGroup& world, int split,
                bool channels_last) {
  using T = typename Element::Parameter;
  const Facts f = golden.facts(name);
  const auto steps = static_cast<std::int64_t>(f.steps);
  const std::vector<std::int64_t> batch = {static_cast<std::int64_t>(f.rows), static_cast<std::int64_t>(f.channels),
                                           static_cast<std::int64_t>(f.length)};
  const std::vector<std::int64_t> all = {steps, batch[0], batch[1], batch[2]};
  const std::vector<std::int64_t> each = {batch[1]};
  const std::string label = name + ", split " + std::to_string(split) + (channels_last ? ", channels last: " : ": ");
  const auto tensor = [&](const char* what) { return golden.read(name + "." + what, all); };
  const auto channel = [&](const char* what) { return to<T>(golden.read(name + "." + what, each)); };
  const bool affine = name != "bare";
  const bool tracked = name != "bare";
  const double tolerance = std::is_same_v<T, float> ? 3e-6 : 1e-12;

  std::vector<T> weight, bias, weight_grad(f.channels), bias_grad(f.channels), mean(f.channels), var(f.channels, 1);
  std::int64_t batches = 0;
  ddp::BatchNormTensors<T> tensors;
  if (affine) {
    weight = channel("weight");
    bias = channel("bias");
    tensors.weight = weight.data();
    tensors.bias = bias.data();
    tensors.weight_grad = weight_grad.data();
    tensors.bias_grad = bias_grad.data();
  }
  if (tracked) {
    tensors.running_mean = mean.data();
    tensors.running_var = var.data();
    tensors.num_batches_tracked = &batches;
  }
  ddp::BatchNormOptions options;
  options.eps = f.eps;
  options.cumulative_average = f.momentum < 0;
  if (f.momentum >= 0) options.momentum = f.momentum;
  options.channels_last = channels_last;
  ddp::SyncBatchNorm<T> norm(world, f.channels, tensors, options);

  const Values x = tensor("x"), dy = tensor("dy"), y = tensor("y"), dx = tensor("dx");
  const Range rows = rows_of(split, f.rows, world.rank(), world.size());
  const auto step = [&](std::size_t s, const Values& want_y, const Values& want_dx, std::size_t at) {
    auto input = part<Element>(x, s, f, rows, channels_last);
    auto gradient = part<Element>(dy, s, f, rows, channels_last);
    std::vector<typename Element::Stored> output(input.size());
    const auto buffer = [](auto& v) { return ddp::Buffer(v.data(), v.size(), Element::kType); };
    norm.forward(buffer(input), buffer(output), f.length);
    compare<Element>(label + "y", output, part<Element>(want_y, at, f, rows, channels_last));
    norm.backward(buffer(input), buffer(gradient), buffer(gradient));  // in place
    compare<Element>(label + "dx", gradient, part<Element>(want_dx, at, f, rows, channels_last));
  };
  for (std::size_t s = 0; s < f.steps; ++s) {
    step(s, y, dx, s);
    // The next step finds the tensors in other memory.
    const auto move = [](T*& place, std::vector<T>& values) {
      if (place == nullptr) return;
      std::vector<T> before = values;
      values.swap(before);
      before.assign(before.size(), -1e9);
      place = values.data();
    };
    move(tensors.weight, weight);
    move(tensors.bias, bias);
    move(tensors.weight_grad, weight_grad);
    move(tensors.bias_grad, bias_grad);
    move(tensors.running_mean, mean);
    move(tensors.running_var, var);
    norm.set_tensors(tensors);
  }
  using Parameter = std::conditional_t<std::is_same_v<T, float>, Float32, Float64>;
  if (affine) {
    // Each rank computes its share of these gradients; their sum over the ranks is the whole
    // gradient.
    world.all_reduce(weight_grad);
    world.all_reduce(bias_grad);
    compare<Parameter>(label + "weight_grad", weight_grad, channel("weight_grad"), 10 * tolerance);
    compare<Parameter>(label + "bias_grad", bias_grad, channel("bias_grad"), 10 * tolerance);
  }
  if (!tracked) return;
  compare<Parameter>(label + "running_mean", mean, channel("running_mean"), tolerance);
  compare<Parameter>(label + "running_var", var, channel("running_var"), tolerance);
  expect(batches == steps, label + "num_batches_tracked is " + std::to_string(batches));
  norm.eval();
  step(0, golden.read(name + ".eval_y", batch), golden.read(name + ".eval_dx", batch), 0);
  expect(batches == steps, label + "eval counts batches");
}

void golden(ddp::Session& session, const std::string& path) {
  const Golden file(path);
  for (int split = 0; split < kSplits; ++split) {
    for (const bool channels_last : {false, true}) {
      for (const char* name : {"plain", "rows", "bare"}) {
        check_case<Float64>(file, name, session.world(), split, channels_last);
      }
      for (const char* name : {"float32", "far"})
        check_case<Float32>(file, name, session.world(), split, channels_last);
      check_case<BFloat16>(file, "bfloat16", session.world(), split, channels_last);
    }
  }
}

// ---- against one process with the whole batch ----

// The statistics that decide have the same bits on every rank.
void expect_same_bits(const ddp::ProcessGroup& world, Values& own, const std::string& label) {
  Values everyones(own.size() * static_cast<std::size_t>(world.size()));
  world.all_gather(own, everyones);
  for (std::size_t i = 0; i < everyones.size(); ++i) {
    expect(everyones[i] == own[i % own.size()], label + "ranks have other bits");
  }
}

// Random shapes, some with more values than one block. Every rank knows the whole batch.
void whole(ddp::Session& session, const std::string& seed) {
  const ddp::ProcessGroup world = session.world();
  const ddp::ProcessGroup alone = world.split(world.rank());
  std::mt19937_64 dice(std::stoul(seed));
  const auto draw = [&](std::size_t below) { return 1 + static_cast<std::size_t>(dice() % below); };
  for (int round = 0; round < 12; ++round) {
    Facts f;
    f.rows = 1 + draw(40);
    f.channels = draw(round % 3 == 0 ? 600 : 5);
    f.length = round % 3 == 1 ? 1 + draw(6000) : draw(9);  // long or many, never both: that would be gigabytes
    const bool channels_last = dice() % 2 == 0;
    const int split = static_cast<int>(dice() % kSplits);
    std::normal_distribution<double> normal(1e3, 1);
    Values x(f.batch()), dy(f.batch());
    for (double& value : x) value = normal(dice);
    for (double& value : dy) value = normal(dice) - 1e3;
    ddp::BatchNormOptions options;
    options.channels_last = channels_last;
    const auto run = [&](const ddp::ProcessGroup& group, Range rows) {
      struct Result {
        Values y, dx, weight_grad, bias_grad, mean, var;
      } r;
      Values weight(f.channels, 1.5), input = part<Float64>(x, 0, f, rows, channels_last),
                                      gradient = part<Float64>(dy, 0, f, rows, channels_last);
      r.y.resize(input.size());
      r.dx.resize(input.size());
      r.weight_grad.resize(f.channels);
      r.bias_grad.resize(f.channels);
      r.mean.resize(f.channels);
      r.var.resize(f.channels, 1);
      ddp::SyncBatchNorm<double> norm(
          group, f.channels,
          {weight.data(), nullptr, r.weight_grad.data(), r.bias_grad.data(), r.mean.data(), r.var.data(), nullptr},
          options);
      norm.forward(input, r.y, f.length);
      norm.backward(input, gradient, r.dx);
      return r;
    };
    const Range rows = rows_of(split, f.rows, world.rank(), world.size());
    auto together = run(world, rows);
    const auto single = run(alone, {0, f.rows});
    const auto mine = [&](const Values& values) {
      const auto at = [&](std::size_t row) { return values.begin() + static_cast<std::ptrdiff_t>(row * f.row()); };
      return Values(at(rows.first), at(rows.end));
    };
    const std::string label = "seed " + seed + ", round " + std::to_string(round) + ": ";
    world.all_reduce(together.weight_grad);
    world.all_reduce(together.bias_grad);
    compare<Float64>(label + "y", together.y, mine(single.y), 1e-9);
    compare<Float64>(label + "dx", together.dx, mine(single.dx), 1e-9);
    compare<Float64>(label + "weight_grad", together.weight_grad, single.weight_grad, 1e-9);
    compare<Float64>(label + "bias_grad", together.bias_grad, single.bias_grad, 1e-9);
    compare<Float64>(label + "mean", together.mean, single.mean, 1e-12);
    compare<Float64>(label + "var", together.var, single.var, 1e-9);
    expect_same_bits(world, together.var, label);
  }
}

// ---- misuse ----

void refused(const std::string& expected, const std::function<void()>& body,
             ddp::Status status = ddp::Status::InvalidArgument) {
  try {
    body();
    expect(false, "not refused: " + expected);
  } catch (const ddp::Error& e) {
    expect(e.status() == status && std::string(e.what()).find(expected) != std::string::npos,
           "refused with " + std::to_string(static_cast<int>(e.status())) + " " + e.what() + " instead of " + expected);
  }
}

// Fails on every rank, no matter which rank has the single value; the next batch succeeds.
void too_few(ddp::Session& session, const std::string&) {
  const ddp::ProcessGroup world = session.world();
  std::vector<double> mean(2, 7), var(2, 7);
  std::int64_t batches = 0;
  ddp::SyncBatchNorm<double> norm(world, 2, {nullptr, nullptr, nullptr, nullptr, mean.data(), var.data(), &batches});
  const std::string ranks = "all " + std::to_string(world.size()) + " ranks of world together have ";
  for (const int holder : {world.size() - 1, -1}) {
    std::vector<double> x(world.rank() == holder ? 2 : 0, 5), y(x.size());
    refused(ranks + (holder < 0 ? "0 values per channel" : "1 value per channel"), [&] { norm.forward(x, y); });
    refused("backward without a forward", [&] { norm.backward(x, y, y); });
  }
  expect(batches == 0 && mean[0] == 7 && var[1] == 7, "a refused batch moved the running statistics");
  std::vector<double> x = {1, 2, 3, 4}, y(4);
  norm.forward(x, y);
  expect(batches == 1 && mean[0] != 7, "the batch after a refused one is lost");
}

// The last rank has built a different model.
void other_channels(ddp::Session& session, const std::string&) {
  const ddp::ProcessGroup world = session.world();
  const int last = world.size() - 1;
  const std::size_t channels = world.rank() == last ? 3 : 2;
  std::vector<double> x(channels * 4, 1), y(x.size());
  ddp::SyncBatchNorm<double> norm(world, channels);
  for (int attempt = 0; attempt < 2; ++attempt) {
    refused(
        "SyncBatchNorm has 2 channels on rank 0 but 3 on rank " + std::to_string(last) +
            ": every rank must build the same model",
        [&] { norm.forward(x, y); }, ddp::Status::Mismatch);
  }
  Values same = {1, 2, 3, 4}, normalised(4);
  ddp::SyncBatchNorm<double>(world, 2).forward(same, normalised);  // the group still works
  expect(normalised[0] != 0, "the batch after a refused one is lost");
}

void mistakes(ddp::Session& session, const std::string&) {
  const ddp::ProcessGroup world = session.world();
  std::vector<float> x(12), y(12), other(11), mean(3);
  std::vector<double> wide(12);
  ddp::SyncBatchNorm<float> norm(world, 3);
  refused("there are no channels", [&] { ddp::SyncBatchNorm<float>(world, 0); });
  refused("both, or neither", [&] {
    ddp::BatchNormTensors<float> tensors;
    tensors.running_mean = mean.data();
    ddp::SyncBatchNorm<float>(world, 3, tensors);
  });
  refused("eps is", [&] { ddp::SyncBatchNorm<float>(world, 3, {}, {-1, 0.1, false, false}); });
  refused("momentum is", [&] { ddp::SyncBatchNorm<float>(world, 3, {}, {1e-5, std::nan(""), false, false}); });
  refused("must be above 0", [&] { ddp::SyncBatchNorm<float>(world, 3, {}, {1e-5, 0, false, false}); });
  refused("not a whole number of rows of 3 channels x 5", [&] { norm.forward(x, y, 5); });
  refused("not a whole number of rows of 3 channels x 0", [&] { norm.forward(x, y, 0); });
  refused("output is 11 float32, its input 12 float32", [&] { norm.forward(x, other); });
  refused("the input is float64, the weights and statistics float32", [&] { norm.forward(wide, wide); });
  refused("backward without a forward", [&] { norm.backward(x, y, y); });
  refused("not in CPU memory", [&] {
    norm.forward({x.data(), 12, ddp::DType::Float32, {ddp::DeviceKind::Cuda, 0}},
                 {y.data(), 12, ddp::DType::Float32, {ddp::DeviceKind::Cuda, 0}});
  });
  norm.forward(x, y);
  std::vector<float> more(15);
  refused("backward's input has 5 rows, the last forward's had 4", [&] { norm.backward(more, more, more); });
  refused("output gradient is 11 float32", [&] { norm.backward(x, other, y); });
  norm.backward(x, y, y);
}

// Without running statistics: as in PyTorch, the batch of this process alone.
void bare_eval(ddp::Session& session, const std::string&) {
  const ddp::ProcessGroup world = session.world();
  const ddp::ProcessGroup alone = world.split(world.rank());
  const double first = world.rank();
  Values x = {first, 3, 9, 2, 5 * first, 1}, dy = {1, 2, 3, 4, 5, 7}, y(6), dx(6), want_y(6), want_dx(6);
  ddp::SyncBatchNorm<double> norm(world, 2), reference(alone, 2);
  norm.eval();
  norm.forward(x, y);
  norm.backward(x, dy, dx);
  reference.forward(x, want_y);
  reference.backward(x, dy, want_dx);
  compare<Float64>("y", y, want_y);
  compare<Float64>("dx", dx, want_dx);
  Values one = {1, 2}, none;
  refused("this rank has 1 value per channel", [&] { norm.forward(one, one); });
  norm.forward(none, none);
  norm.backward(none, none, none);
}

}  // namespace

int main(int argc, char** argv) {
  const std::map<std::string, std::function<void(ddp::Session&, const std::string&)>> scenarios = {
      {"golden", golden},     {"whole", whole},        {"too_few", too_few}, {"other_channels", other_channels},
      {"mistakes", mistakes}, {"bare_eval", bare_eval}};
  ddp::Session session = ddp::init_process_group();
  scenarios.at(argv[1])(session, argc > 2 ? argv[2] : "");
  return all_right ? 0 : 1;
}
