// SPDX-License-Identifier: BSD-3-Clause
// Scenarios with steps that are captured in a CUDA graph and replayed.
#include <atomic>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "tests/runtime/device/gpu_parameters.hpp"
#include "tests/runtime/job/scenario.hpp"
#include "tests/support/environment.hpp"
#include "tests/support/sanitizer.hpp"

namespace ddp::test {
namespace {

const std::vector<std::size_t> kCounts = {100, 7, 33, 1, 1024};
constexpr std::size_t kAll = 100 + 7 + 33 + 1 + 1024;

// A model whose backward is a copy of the step's input. The input's memory stays, as a graph's has to.
struct Trainer {
  Trainer(Setting& s, std::uint64_t steps)
      : setting(s), parameters(s, kCounts), model(s.group, parameters.list, small_buckets()), all(s.gpu, steps * kAll) {
    for (const std::size_t count : kCounts) inputs.push_back(std::make_unique<DeviceArray<float>>(s.gpu, count));
  }

  // Sets what differs from step to step and from rank to rank.
  void begin(std::uint64_t step) {
    const auto rank = static_cast<std::uint64_t>(setting.group.rank());
    for (std::size_t i = 0; i < inputs.size(); ++i) {
      inputs[i]->write(numbers(kCounts[i], step * 1000 + rank * 100 + i), setting.stream);
    }
  }
  void step() {
    for (std::size_t i = inputs.size(); i-- > 0;) {
      setting.gpu.copy(parameters.gradients[i]->data(), inputs[i]->data(), kCounts[i] * sizeof(float), setting.stream);
      model.mark_ready(i);
    }
    model.synchronize();
  }
  // Copies the step's averages to `all`, in the order of the stream.
  void keep(std::uint64_t step) {
    auto* to = static_cast<float*>(all.data()) + step * kAll;
    for (std::size_t i = 0; i < kCounts.size(); to += kCounts[i++]) {
      setting.gpu.copy(to, parameters.gradients[i]->data(), kCounts[i] * sizeof(float), setting.stream);
    }
  }

  Setting& setting;
  GpuParameters parameters;
  std::vector<std::unique_ptr<DeviceArray<float>>> inputs;
  DistributedDataParallel model;
  DeviceArray<float> all;  // each step's averages
};

// Takes as many steps with one trainer, and with another as replays of its second step. The host waits for none of
// them.
void compare(Setting& s, Trainer& plain, Trainer& replayed, std::uint64_t steps) {
  replayed.begin(0);
  replayed.step();
  replayed.keep(0);
  replayed.begin(1);
  const Floats before = replayed.parameters.gradients[0]->read(s.stream);
  s.gpu.begin_capture(s.stream);
  replayed.step();
  void* const graph = s.gpu.end_capture(s.stream);
  expect(graph != nullptr, "the step is captured");
  if (graph == nullptr) return;
  expect(replayed.parameters.gradients[0]->read(s.stream) == before, "nothing ran during the capture");
  for (std::uint64_t step = 0; step < steps; ++step) {
    plain.begin(step);
    plain.step();
    plain.keep(step);
    if (step == 0) continue;
    replayed.begin(step);
    s.gpu.launch(graph, s.stream);
    replayed.keep(step);
  }
  expect(replayed.all.read(s.stream) == plain.all.read(s.stream), "the same averages, bit for bit");
}

void replays() {
  // A thousand take up to a minute, ten times as long with a sanitizer, and forty times with ThreadSanitizer.
  const std::uint64_t steps = testing::number_from("DDPRUN_GRAPH_STEPS", testing::kIsThreadSanitized ? 51UL : 201UL);
  Setting s;
  Trainer plain(s, steps), replayed(s, steps);
  compare(s, plain, replayed, steps);
  // The group works on outside of the graph.
  DeviceArray<float> one(s.gpu, Floats(4, 1), s.stream);
  s.group.all_reduce(s.buffer(one));
  expect(one.read(s.stream) == Floats(4, static_cast<float>(s.group.size())), "an operation after all replays");
}

void replays_hooks() {
  Setting s;
  Trainer plain(s, 30), replayed(s, 30);
  plain.model.register_comm_hook(allreduce_hook);
  replayed.model.register_comm_hook(allreduce_hook);
  compare(s, plain, replayed, 30);
}

// Runs body in a capture. What is refused leaves the capture as it was.
template <typename Body>
void in_capture(Setting& s, const std::string& what, const Body& body) {
  s.gpu.synchronize(s.stream);
  s.gpu.begin_capture(s.stream);
  body();
  expect(s.gpu.end_capture(s.stream) != nullptr, what + ": the capture goes on");
}

template <typename Body>
void refused_in_capture(Setting& s, const std::string& what, const Body& body) {
  in_capture(s, what, [&] { report_failure(what, body); });
}

void graph_refusals() {
  Setting s;
  Trainer trainer(s, 1);
  DistributedDataParallelOptions unused;
  unused.find_unused_parameters = true;
  GpuParameters other(s, {8});
  DistributedDataParallel any(s.group, other.list, unused);
  refused_in_capture(s, "first step", [&] { trainer.model.mark_ready(4); });
  refused_in_capture(s, "unused", [&] { any.mark_ready(0); });
  refused_in_capture(s, "barrier", [&] { s.group.barrier(); });
  CheckpointFolder folder(variable("FOLDER") + std::to_string(s.group.rank()));
  refused_in_capture(s, "checkpoint", [&] { folder.save(1, state_dict(other.list)); });
}

// Operations of a graph and others are not mixed up, and those that run are watched beside the capture.
void keeps_apart() {
  dup2(STDOUT_FILENO, STDERR_FILENO);  // the test reads what libddp says of the last capture
  Setting s;
  DeviceArray<float> inside(s.gpu, Floats(8, 1), s.stream), outside(s.gpu, Floats(8, 1), s.stream);
  s.group.all_reduce(s.buffer(outside));
  s.gpu.synchronize(s.stream);
  void* const other = s.gpu.make_stream();
  std::atomic<bool> released = false;
  s.gpu.hold(s.stream, &released);
  const Work running = s.group.all_reduce_async(s.buffer(outside));
  StreamGuard guard(other, s.gpu.index());
  s.gpu.begin_capture(other);
  expect(!running.is_completed(), "an operation is asked for beside a capture");
  report_failure("outside", [&] { running.wait(); });
  const auto size = static_cast<float>(s.group.size());
  released = true;
  while (!running.is_completed()) {
  }
  const Work captured = s.group.all_reduce_async(s.buffer(inside));
  report_failure("the host", [&] { captured.synchronize(); });
  captured.wait();
  void* const graph = s.gpu.end_capture(other);
  expect(graph != nullptr, "the capture ends well");
  if (graph == nullptr) return;
  expect(inside.read(other) == Floats(8, 1), "a captured operation does not run");
  s.gpu.launch(graph, other);
  s.gpu.launch(graph, other);
  expect(inside.read(other) == Floats(8, size * size), "it runs with each replay");
  expect(outside.read(other) == Floats(8, size * size), "the other one has run twice");
  // A capture that is given up leaves an operation behind, which nothing waits for. The driver finds that, but not with
  // NCCL 2.28 and 2.32, which add a node of their own behind the kernel.
  s.gpu.begin_capture(other);
  static_cast<void>(s.group.all_reduce_async(s.buffer(inside)));
  const bool is_refused = s.gpu.end_capture(other) == nullptr;
  expect(is_refused || !variable("TEST_ONE_GPU").empty(), "a capture needs all that it has begun");
  const Work after = s.group.all_reduce_async(s.buffer(inside));
  while (!after.is_completed()) {
  }
}

// A rank dies while the others replay: NCCL's error ends what they wait for.
void loses_a_rank() {
  Setting s;
  DeviceArray<float> array(s.gpu, Floats(8, 1), s.stream);
  s.group.all_reduce(s.buffer(array));
  s.gpu.synchronize(s.stream);
  s.gpu.begin_capture(s.stream);
  s.group.all_reduce(s.buffer(array));
  void* const graph = s.gpu.end_capture(s.stream);
  s.gpu.launch(graph, s.stream);
  s.gpu.synchronize(s.stream);
  say("ready");
  if (s.group.rank() == 1) {
    for (;;) pause();
  }
  s.gpu.launch(graph, s.stream);
  s.gpu.synchronize(s.stream);  // returns because the communicator is aborted
  report_failure("the next one", [&] { s.group.all_reduce(s.buffer(array)); });
  say("done");
}

}  // namespace

Programs device_graph_programs() {
  return {
      {"device graph replays", replays},           {"device graph replays hooks", replays_hooks},
      {"device graph refusals", graph_refusals},   {"device graph keeps apart", keeps_apart},
      {"device graph loses a rank", loses_a_rank},
  };
}

}  // namespace ddp::test
