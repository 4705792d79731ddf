// SPDX-License-Identifier: BSD-3-Clause
// One rank of a job that steps optimizers, started by optimizer_job_test: argv[1] names the
// scenario, argv[2] a folder for files. Each rank compares its results with a plain optimizer that
// saw the same gradients.
#include <unistd.h>

#include <chrono>
#include <cmath>
#include <cstring>
#include <limits>
#include <map>
#include <string>
#include <vector>

#include "ddp/ddp.hpp"
#include "ddp/training.hpp"
#include "tests/runtime/job/scenario.hpp"

namespace {

using ddp::test::expect;
using ddp::test::report_failure;
using ddp::test::say;

// Returns a number in (-1, 1), without a pattern that a wrong split could match by chance.
double number(std::size_t step, std::size_t parameter, std::size_t i) {
  std::uint64_t x = step * 1000003 + parameter * 10007 + i + 1;
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9U;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebU;
  return static_cast<double>(x >> 11) * 0x1p-52 - 1;
}

// Parameters of float32, and every third of float64, each in separate memory.
class Model {
 public:
  explicit Model(const std::vector<std::size_t>& sizes) {
    for (std::size_t p = 0; p < sizes.size(); ++p) {
      const std::string name = "parameter " + std::to_string(p);
      if (p % 3 == 2) {
        auto& [value, grad] = doubles_[p];
        value.resize(sizes[p]);
        grad.resize(sizes[p]);
        parameters_.emplace_back(name, value.data(), grad.data(), sizes[p]);
      } else {
        auto& [value, grad] = floats_[p];
        value.resize(sizes[p]);
        grad.resize(sizes[p]);
        parameters_.emplace_back(name, value.data(), grad.data(), sizes[p]);
      }
    }
    fill(0, &ddp::Parameter::value);
  }
  const std::vector<ddp::Parameter>& parameters() const { return parameters_; }

  void backward(std::size_t step) { fill(step, &ddp::Parameter::grad); }

  bool same_values(const Model& other) const {
    for (std::size_t p = 0; p < parameters_.size(); ++p) {
      const ddp::Parameter& mine = parameters_[p];
      const std::size_t bytes = mine.count * ddp::element_size(mine.dtype);
      if (bytes > 0 && std::memcmp(mine.value, other.parameters_[p].value, bytes) != 0) return false;
    }
    return true;
  }

 private:
  void fill(std::size_t step, void* ddp::Parameter::*memory) {
    for (std::size_t p = 0; p < parameters_.size(); ++p) {
      for (std::size_t i = 0; i < parameters_[p].count; ++i) {
        if (p % 3 == 2) {
          static_cast<double*>(parameters_[p].*memory)[i] = number(step, p, i);
        } else {
          static_cast<float*>(parameters_[p].*memory)[i] = static_cast<float>(number(step, p, i));
        }
      }
    }
  }

  template <typename T>
  using Memory = std::map<std::size_t, std::pair<std::vector<T>, std::vector<T>>>;
  Memory<float> floats_;
  Memory<double> doubles_;
  std::vector<ddp::Parameter> parameters_;
};

const std::vector<std::vector<std::size_t>> kShapes = {
    {1},                                // fewer elements than ranks
    {3, 1, 2},                          // fewer elements than most worlds have ranks
    {100, 7, 33, 0, 1, 1024, 5, 17},    // uneven
    {1, 1, 1, 1, 1, 1, 1, 1, 1, 5000},  // one is nearly everything
};

template <typename Plain>
void compare(const ddp::ProcessGroup& group, const std::vector<std::size_t>& sizes, std::size_t steps,
             const typename Plain::Options& options) {
  Model plain_model(sizes), model(sizes);
  Plain plain(plain_model.parameters(), options);
  ddp::ZeroRedundancyOptimizer<Plain> optimizer(group, model.parameters(), options);
  for (std::size_t step = 1; step <= steps; ++step) {
    plain_model.backward(step);
    model.backward(step);
    plain.step();
    optimizer.step();
    if (model.same_values(plain_model)) continue;
    expect(false, "step " + std::to_string(step) + " of " + std::to_string(sizes.size()) + " parameters");
    return;
  }
}

void same_bits(ddp::Session& session) {
  ddp::SGDOptions sgd;
  sgd.momentum = 0.9;
  for (const std::vector<std::size_t>& sizes : kShapes) {
    compare<ddp::AdamW>(session.world(), sizes, 50, {});
    compare<ddp::SGD>(session.world(), sizes, 50, sgd);
    compare<ddp::SGD>(session.world(), sizes, 5, {});  // plain SGD has no state at all
  }
}

// Takes several exchanges per step, the last of them not full.
void large(ddp::Session& session) { compare<ddp::AdamW>(session.world(), {3'000'001, 10, 500'003}, 3, {}); }

// Groups of parameters whose options change during training.
void groups(ddp::Session& session) {
  Model plain_model(kShapes[2]), model(kShapes[2]);
  const auto in_groups = [](const Model& m) {
    std::vector<ddp::ParameterGroup<ddp::AdamWOptions>> groups(2);
    for (std::size_t p = 0; p < m.parameters().size(); ++p) groups[p % 2].parameters.push_back(m.parameters()[p]);
    groups[1].options.weight_decay = 0;
    return groups;
  };
  ddp::AdamW plain(in_groups(plain_model));
  ddp::ZeroRedundancyOptimizer optimizer(session.world(), in_groups(model));
  for (std::size_t step = 1; step <= 10; ++step) {
    plain.set_lr(0.1 / static_cast<double>(step));
    optimizer.set_lr(0.1 / static_cast<double>(step));
    plain_model.backward(step);
    model.backward(step);
    plain.step();
    optimizer.step();
  }
  expect(model.same_values(plain_model), "ten steps of two groups");
}

// On 4 ranks: the state of four ranks continues on three, that state on one, and that one on four.
void resharded(ddp::Session& session, const std::string& folder) {
  const ddp::ProcessGroup world = session.world();
  const ddp::ProcessGroup three = world.split(world.rank() < 3 ? 0 : ddp::kNoColor);
  Model plain_model(kShapes[2]), model(kShapes[2]);
  ddp::AdamW plain(plain_model.parameters());
  const auto both = [&](std::size_t first, auto& optimizer) {
    for (std::size_t step = first; step < first + 5; ++step) {
      plain_model.backward(step);
      plain.step();
      model.backward(step);
      optimizer.step();
    }
    expect(model.same_values(plain_model), "five steps from " + std::to_string(first));
    expect(optimizer.steps_taken() == static_cast<std::int64_t>(first + 4), "steps are counted on");
  };

  ddp::ZeroRedundancyOptimizer of_four(world, model.parameters());
  both(1, of_four);
  const ddp::OptimizerState at_2 = of_four.state_dict(2);
  expect(at_2.tensors().empty() == (world.rank() != 2), "the state is on the root only");
  if (world.rank() == 2) ddp::save_checkpoint(folder + "/of_four", at_2.tensors(), {});
  world.barrier();
  if (three) {
    ddp::ZeroRedundancyOptimizer of_three(three, model.parameters());
    of_three.load_state_dict(ddp::Checkpoint(folder + "/of_four"));
    both(6, of_three);
    const ddp::OptimizerState at_0 = of_three.state_dict();
    if (three.rank() == 0) {
      // The collected state equals the plain optimizer's.
      const ddp::OptimizerState expected = plain.state_dict();
      expect(at_0.tensors().size() == expected.tensors().size(), "as many tensors as the plain one's");
      for (const ddp::Tensor& t : expected.tensors()) {
        std::vector<char> mine(8 * 1024);
        const std::size_t count = t.shape.empty() ? 1 : static_cast<std::size_t>(t.shape[0]);
        at_0.read(t.name, {mine.data(), count, t.dtype}, t.shape);
        const std::size_t bytes = count * ddp::element_size(t.dtype);
        expect(bytes == 0 || std::memcmp(mine.data(), t.data, bytes) == 0, t.name + " is the plain one's");
      }
      ddp::AdamW alone(model.parameters());
      alone.load_state_dict(at_0);
      both(11, alone);
      ddp::save_checkpoint(folder + "/of_one", alone.state_dict().tensors(), {});
    }
  }
  world.barrier();
  // Rank 0 has taken all the steps; the other ranks take over its values.
  for (const Model* m : {&plain_model, &model}) {
    for (const ddp::Parameter& p : m->parameters()) world.broadcast({p.value, p.count, p.dtype});
  }
  const ddp::Checkpoint of_one(folder + "/of_one");
  plain.load_state_dict(of_one);
  ddp::ZeroRedundancyOptimizer again(world, model.parameters());
  again.load_state_dict(of_one);
  both(16, again);
}

// Together the ranks' parts contain every tensor exactly once.
void parts(ddp::Session& session) {
  const ddp::ProcessGroup world = session.world();
  Model model(kShapes[2]);
  ddp::ZeroRedundancyOptimizer optimizer(world, model.parameters());
  model.backward(1);
  optimizer.step();
  std::map<std::string, std::vector<int>> seen;
  for (const ddp::Parameter& p : model.parameters()) {
    for (const char* state : {".exp_avg", ".exp_avg_sq"}) seen["optimizer." + p.name + state].resize(p.count);
  }
  seen["optimizer.step"].resize(1);
  std::size_t bytes = 0;
  for (const ddp::OptimizerTensor& t : optimizer.tensors()) {
    std::vector<int>& elements = seen.at(t.name);
    expect(elements.size() == t.count && t.first + t.buffer.count <= t.count, t.name + " lies within the tensor");
    for (std::size_t i = 0; i < t.buffer.count; ++i) ++elements[t.first + i];
    bytes += t.buffer.bytes();
    expect(!t.is_scalar || *static_cast<std::int64_t*>(t.buffer.data) == 1, "one step is counted");
  }
  std::size_t all_bytes = 0;
  for (const ddp::Parameter& p : model.parameters()) all_bytes += 2 * p.count * ddp::element_size(p.dtype);
  const auto ranks = static_cast<std::size_t>(world.size());
  expect(bytes <= all_bytes / ranks + 64, "no rank has more than its share");
  for (auto& [name, elements] : seen) {
    world.all_reduce(elements);
    for (const int times : elements) {
      if (times != 1) expect(false, name + " is not there once");
    }
  }
}

void mismatch(ddp::Session& session) {
  Model model(session.rank() == 1 ? std::vector<std::size_t>{5, 8} : std::vector<std::size_t>{5, 7});
  report_failure("other parameters", [&] { ddp::ZeroRedundancyOptimizer(session.world(), model.parameters()); });
  session.world().barrier();  // the group is still usable
}

// On 2 ranks: rank 1 takes part in the first exchange of the second step, but not in the second.
void half_a_step(ddp::Session& session, bool dies) {
  ddp::GroupOptions options;
  if (!dies) options.timeout = std::chrono::seconds(2);
  const ddp::ProcessGroup pair = session.new_group({0, 1}, options);
  ddp::Store store = session.store();
  const std::vector<std::size_t> sizes = {3'000'001};
  Model model(sizes), before(sizes);
  ddp::ZeroRedundancyOptimizer optimizer(pair, model.parameters());
  model.backward(1);
  before.backward(1);
  optimizer.step();
  ddp::AdamW plain(before.parameters());
  plain.step();
  model.backward(2);
  before.backward(2);
  if (session.rank() == 1) {
    std::vector<std::uint8_t> mine(2 << 20), all(4 << 20);
    pair.all_gather(mine, all);
    if (!dies) store.wait({"rank 0 has seen it"}, std::chrono::minutes(1));
    _exit(0);
  }
  report_failure("a step", [&] { optimizer.step(); });
  expect(model.same_values(before), "the parameters are as they were before the step that failed");
  if (!dies) {
    // A rank that dies may lose what it has sent, so this is checked only if it lives.
    const auto grad = [](const Model& m) { return static_cast<const float*>(m.parameters()[0].grad); };
    expect(grad(model)[0] != grad(before)[0], "the first exchange had succeeded");
  }
  store.set("rank 0 has seen it", "");
  _exit(ddp::test::all_right ? 0 : 1);
}

void clip(ddp::Session& session) {
  const ddp::ProcessGroup world = session.world();
  const auto ranks = static_cast<std::size_t>(world.size()), rank = static_cast<std::size_t>(world.rank());
  for (const double norm_type : {1.0, 2.0, 3.0, ddp::kInfinityNorm}) {
    Model whole(kShapes[2]), mine(kShapes[2]);
    whole.backward(1);
    mine.backward(1);
    std::vector<ddp::Parameter> share;  // the last of four ranks has no parameters
    for (std::size_t p = 0; p < 8; ++p) {
      if (p % (ranks > 1 ? ranks - 1 : 1) == rank) share.push_back(mine.parameters()[p]);
    }
    const double expected = ddp::clip_grad_norm(whole.parameters(), 0.5, norm_type);
    const double norm = ddp::clip_grad_norm(world, share, 0.5, norm_type);
    const std::string what = "the norm of kind " + std::to_string(norm_type);
    expect(std::fabs(norm / expected - 1) < 1e-14, what);
    std::vector<double> of_this = {norm}, of_all(ranks);
    world.all_gather(of_this, of_all);
    for (const double other : of_all) expect(other == norm, what + " is the same bits on every rank");
    for (const ddp::Parameter& p : share) {
      for (const ddp::Parameter& q : whole.parameters()) {
        if (p.name != q.name || p.dtype != ddp::DType::Float32 || p.count == 0) continue;
        expect(std::fabs(static_cast<float*>(p.grad)[0] - static_cast<float*>(q.grad)[0]) < 1e-6F, p.name);
      }
    }
    // A NaN on one rank becomes the norm on all ranks.
    if (rank == 0) static_cast<float*>(mine.parameters()[0].grad)[3] = std::numeric_limits<float>::quiet_NaN();
    expect(std::isnan(ddp::get_total_norm(world, share, norm_type)), what + " of what is no number");
  }
}

// Only the last rank overflows, in a share of the gradients that the other ranks do not see.
void overflow(ddp::Session& session) {
  const ddp::ProcessGroup world = session.world();
  Model model({10});
  const ddp::GradScalerOptions options = ddp::GradScalerOptions::apex();
  ddp::GradScaler together(options, world), alone(options);
  ddp::AdamW first(model.parameters()), second(model.parameters());
  const bool is_last = world.rank() == world.size() - 1;
  const auto backward = [&](bool overflows) {
    model.backward(1);
    if (overflows && is_last) static_cast<float*>(model.parameters()[0].grad)[9] = -HUGE_VALF;
  };
  backward(true);
  expect(!together.step(first), "all leave the step out");
  together.update();
  expect(together.get_scale() == 32768, "all lower the scale");
  backward(true);
  expect(alone.step(second) == !is_last, "without a group only the one that overflows leaves it out");
  backward(false);
  expect(together.step(first), "all take the next step");
  together.update();
  expect(first.steps_taken() == 1, "and that one only");
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 3) return 2;
  const std::string folder = argv[2];
  const ddp::test::Scenarios scenarios = {
      {"same bits", same_bits},
      {"large", large},
      {"groups", groups},
      {"resharded", [&](ddp::Session& session) { resharded(session, folder); }},
      {"parts", parts},
      {"mismatch", mismatch},
      {"death", [](ddp::Session& session) { half_a_step(session, true); }},
      {"stuck", [](ddp::Session& session) { half_a_step(session, false); }},
      {"clip", clip},
      {"overflow", overflow},
  };
  try {
    ddp::Session session = ddp::init_process_group();
    scenarios.at(argv[1])(session);
    session.world().barrier();
  } catch (const std::exception& e) {
    say(std::string("error: ") + e.what());
    return 1;
  }
  return ddp::test::all_right ? 0 : 1;
}
