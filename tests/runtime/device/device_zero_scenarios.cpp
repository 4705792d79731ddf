// SPDX-License-Identifier: BSD-3-Clause
// Scenarios with ZeroRedundancyOptimizer on GPU memory, next to plain optimizers there.
#include <atomic>
#include <cmath>
#include <cstdint>
#include <limits>
#include <string>
#include <vector>

#include "tests/runtime/device/gpu_parameters.hpp"
#include "tests/runtime/job/scenario.hpp"

namespace ddp::test {
namespace {

const std::vector<std::vector<std::size_t>> kShapes = {
    {1},                              // fewer elements than ranks
    {3, 1, 2},                        // some ranks have none
    {100, 7, 33, 0, 1, 1024, 5, 17},  // uneven
    {1, 1, 1, 20'000},                // one is nearly everything
};

// Every rank has all gradients: the same bits as the plain optimizer's.
template <typename Plain>
void compare(Setting& s, const std::string& name, const typename Plain::Options& options) {
  for (std::size_t shape = 0; shape < kShapes.size(); ++shape) {
    GpuParameters plain(s, kShapes[shape]), sharded(s, kShapes[shape]);
    Plain all(plain.list, options);
    ZeroRedundancyOptimizer<Plain> part(s.group, sharded.list, options);
    for (std::uint64_t step = 1; step <= 4; ++step) {
      plain.set_gradients(step);
      sharded.set_gradients(step);
      all.set_lr(options.lr / static_cast<double>(step));
      part.set_lr(options.lr / static_cast<double>(step));
      all.step();
      part.step();
    }
    expect(sharded.read() == plain.read(), name + " of shape " + std::to_string(shape));
    expect(part.steps_taken() == 4, name + ": steps are counted");
  }
}

void computes_what_the_plain_one_does() {
  Setting s;
  SGDOptions sgd;
  sgd.lr = 0.1;
  compare<SGD>(s, "SGD", sgd);  // which has no state
  sgd.momentum = 0.9;
  compare<SGD>(s, "SGD with momentum", sgd);
  compare<AdamW>(s, "AdamW", {});
}

// Each gradient is averaged on the rank only that steps it. Buckets are small, so that parts cut them, and are made
// again after the first step.
void reduces_to_owners() {
  Setting s;
  const auto rank = static_cast<std::uint64_t>(s.group.rank());
  for (const bool clips : {false, true}) {
    const std::vector<std::size_t> counts = {100, 7, 33, 1, 1024, 5, 17};
    GpuParameters plain(s, counts), sharded(s, counts);
    DistributedDataParallel whole(s.group, plain.list, small_buckets());
    DistributedDataParallel cut(s.group, sharded.list, small_buckets());
    AdamW all(plain.list);
    ZeroRedundancyOptimizer part(s.group, sharded.list);
    cut.register_comm_hook(part.reduce_hook());
    cuda::GradientNorm norm_of_all(plain.list);
    cuda::GradientNorm norm_of_shares(s.group, part.share());
    for (std::uint64_t step = 1; step <= 4; ++step) {
      plain.set_gradients(step * 10 + rank);
      sharded.set_gradients(step * 10 + rank);
      for (const std::size_t i : {3U, 6U, 5U, 4U, 2U, 1U, 0U}) {
        whole.mark_ready(i);
        cut.mark_ready(i);
      }
      whole.synchronize();
      cut.synchronize();
      if (clips) {
        norm_of_all.clip(1);
        norm_of_shares.clip(1);
        const double difference = std::abs(norm_of_all.value() - norm_of_shares.value());
        expect(difference <= 1e-12 * norm_of_all.value(), "the norm of all shares, to the order of additions");
      }
      all.step();
      part.step();
    }
    const std::vector<Floats> mine = sharded.read();
    const std::vector<Floats> wanted = plain.read();
    if (!clips && variable("TEST_ONE_GPU").empty()) expect(mine == wanted, "the same bits");
    for (std::size_t i = 0; i < mine.size(); ++i) {
      for (std::size_t k = 0; k < mine[i].size(); ++k) {
        if (std::abs(mine[i][k] - wanted[i][k]) > 1e-5F) return expect(false, "parameter " + std::to_string(i));
      }
    }
  }
}

// The state goes to one rank, from there to a plain optimizer and to a new sharded one, and both go on.
void hands_over_its_state() {
  Setting s;
  GpuParameters plain(s, kShapes[2]), sharded(s, kShapes[2]);
  AdamW all(plain.list);
  ZeroRedundancyOptimizer first(s.group, sharded.list);
  const int last = s.group.size() - 1;
  for (std::uint64_t step = 1; step <= 2; ++step) {
    plain.set_gradients(step);
    sharded.set_gradients(step);
    all.step();
    first.step();
  }
  const OptimizerState state = first.state_dict(last);
  expect(state.tensors().empty() == (s.group.rank() != last), "the state is on the root only");
  AdamW taken(plain.list);
  if (s.group.rank() == last) taken.load_state_dict(state);
  ZeroRedundancyOptimizer second(s.group, sharded.list);
  second.load_state_dict(all.state_dict());
  plain.set_gradients(3);
  sharded.set_gradients(3);
  s.group.rank() == last ? taken.step() : all.step();
  second.step();
  expect(sharded.read() == plain.read(), "both go on from the same state");
  expect(second.steps_taken() == 3, "steps are counted on");
}

// An overflow in one rank's share leaves out the step of all.
void leaves_out_steps() {
  Setting s;
  GpuParameters model(s, {8, 8, 8});
  const std::vector<Floats> before = model.read();
  ZeroRedundancyOptimizer optimizer(s.group, model.list);
  cuda::GradScaler scaler(s.gpu.index(), {}, s.group);
  for (const bool overflows : {true, false}) {
    model.set_gradients(1);
    if (overflows && s.group.rank() == s.group.size() - 1) {
      model.gradients[1]->write(Floats(8, std::numeric_limits<float>::infinity()), s.stream);
    }
    scaler.unscale(optimizer);
    scaler.step(optimizer);
    scaler.update();
    expect((model.read() == before) == overflows, overflows ? "the step is left out" : "the next one is taken");
  }
  expect(optimizer.steps_taken() == 1, "one step was taken");
}

// Gradients come late on the stream; the host goes on.
void follows_the_stream() {
  Setting s;
  GpuParameters model(s, {1000, 24});
  SGDOptions options;
  options.lr = 1;
  ZeroRedundancyOptimizer<SGD> optimizer(s.group, model.list, options);
  DeviceArray<float> ones(s.gpu, Floats(1000, 1), s.stream);
  optimizer.step();  // what is done once; gradients are 0
  const Floats before = model.values[0]->read(s.stream);
  std::atomic<bool> released = false;
  std::atomic<bool> reached = false;
  s.gpu.hold(s.stream, &released);
  s.gpu.copy(model.gradients[0]->data(), ones.data(), 1000 * sizeof(float), s.stream);
  optimizer.step();
  optimizer.step();
  s.gpu.mark(s.stream, &reached);
  expect(!reached, "the host does not wait");
  released = true;
  const Floats after = model.values[0]->read(s.stream);
  for (std::size_t i = 0; i < after.size(); ++i) {
    if (after[i] != before[i] - 1 - 1) return expect(false, "two steps behind the gradients");
  }
}

// Parts go in several chunks, to where the values are now.
void exchanges_in_chunks() {
  Setting s;
  GpuParameters model(s, kShapes[2]), other(s, kShapes[2]);
  const ddp::detail::ParameterRow row(model.list);
  const auto ranks = static_cast<std::size_t>(s.group.size());
  const std::size_t share = ddp::detail::ParameterRow::aligned((row.bytes() + ranks - 1) / ranks);
  cuda::detail::ShardExchange exchange(s.group, s.gpu.index(), row, share, 256 * ranks);
  for (const GpuParameters* parameters : {&model, &other, &model}) {
    for (const auto& value : parameters->values) {
      value->write(Floats(value->count(), static_cast<float>(s.group.rank())), s.stream);
    }
    exchange.run(parameters->list);
    for (std::size_t i = 0; i < parameters->list.size(); ++i) {
      const Floats values = parameters->values[i]->read(s.stream);
      for (std::size_t k = 0; k < values.size(); ++k) {
        const std::size_t owner = (row.offset(i) + k * sizeof(float)) / share;
        if (values[k] != static_cast<float>(owner)) return expect(false, "element " + std::to_string(k));
      }
    }
  }
}

void refuses_what_differs() {
  Setting s;
  GpuParameters model(s, {static_cast<std::size_t>(4 + s.group.rank())});
  report_failure("other parameters", [&] { ZeroRedundancyOptimizer optimizer(s.group, model.list); });
  GpuParameters two(s, {4, 6});
  ZeroRedundancyOptimizer swapped(s.group, {two.list[1], two.list[0]});
  const std::int64_t shape = 6;
  const ddp_grad_slice slice = {1, 0, 6, &shape, 1, nullptr};  // as the model has it
  const ddp_grad_bucket bucket = {
      0, 1, {two.gradients[1]->data(), 6, DDP_FLOAT32, {DDP_CUDA, s.gpu.index()}}, &slice, 1};
  report_failure("another order", [&] { swapped.reduce_hook()->start(GradBucket(bucket)); });
}

}  // namespace

Programs device_zero_programs() {
  return {
      {"device zero computes what the plain one does", computes_what_the_plain_one_does},
      {"device zero reduces to owners", reduces_to_owners},
      {"device zero hands over its state", hands_over_its_state},
      {"device zero leaves out steps", leaves_out_steps},
      {"device zero follows the stream", follows_the_stream},
      {"device zero exchanges in chunks", exchanges_in_chunks},
      {"device zero refuses what differs", refuses_what_differs},
  };
}

}  // namespace ddp::test
