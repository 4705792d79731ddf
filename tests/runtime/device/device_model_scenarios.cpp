// SPDX-License-Identifier: BSD-3-Clause
// Scenarios with DistributedDataParallel on GPU memory, as a user's program has it. TEST_BACKEND is "nccl" or
// "cpu:gloo,cuda:nccl". Each scenario makes a session of its own.
#include <atomic>
#include <cmath>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "tests/runtime/device/device_setting.hpp"
#include "tests/runtime/job/scenario.hpp"

namespace ddp::test {
namespace {

using Floats = std::vector<float>;

bool has_cpu_backend() { return variable("TEST_BACKEND") != "nccl"; }

bool close(const Floats& values, float expected) {
  for (const float value : values) {
    if (std::abs(value - expected) > 1e-5F * std::abs(expected)) return false;
  }
  return true;
}

// Parameters on the GPU, each filled with one value, with gradients or without.
struct Net {
  enum class Gradients { Own, InBuckets };

  Net(Setting& s, const std::vector<std::size_t>& counts, Gradients kind, float value) {
    for (const std::size_t count : counts) {
      values.push_back(std::make_unique<DeviceArray<float>>(s.gpu, Floats(count, value), s.stream));
      gradients.push_back(std::make_unique<DeviceArray<float>>(s.gpu, kind == Gradients::Own ? count : 0));
      ddp::Parameter p;
      p.name = "p" + std::to_string(parameters.size());
      p.value = values.back()->data();
      p.grad = gradients.back()->data();
      p.count = count;
      p.device = {ddp::DeviceKind::Cuda, s.gpu.index()};
      parameters.push_back(p);
    }
  }

  std::vector<std::unique_ptr<DeviceArray<float>>> values;
  std::vector<std::unique_ptr<DeviceArray<float>>> gradients;
  std::vector<ddp::Parameter> parameters;
};

// Options with a small first bucket and further ones of 4000 bytes.
ddp::DistributedDataParallelOptions small_buckets() {
  ddp::DistributedDataParallelOptions options;
  options.first_bucket_bytes = 1;
  options.bucket_bytes = 4000;
  return options;
}

Floats gradient_of(Setting& s, ddp::DistributedDataParallel& model, const Net& net, std::size_t i, void* stream) {
  Floats values(net.parameters[i].count);
  if (!values.empty()) s.gpu.download(values.data(), model.gradient(i), values.size() * sizeof(float), stream);
  return values;
}

void produce(Setting& s, ddp::DistributedDataParallel& model, const Net& net, std::size_t i, float value) {
  const Floats values(net.parameters[i].count, value);
  if (!values.empty()) s.gpu.upload(model.gradient(i), values.data(), values.size() * sizeof(float), s.stream);
}

float rank_of(const Setting& s) { return static_cast<float>(s.group.rank()); }
float average_rank(const Setting& s) { return static_cast<float>(s.group.size() - 1) / 2; }

// Values are rank 0's from the start, and gradients the average after each step: in the caller's memory, in buckets,
// and in rebuilt buckets; for empty parameters and for large ones.
void averages() {
  Setting s(variable("TEST_BACKEND"));
  const std::vector<std::size_t> counts = {5, 300'000, 1000, 0, 7};
  for (const std::string way : {"own", "in buckets", "in buckets that move"}) {
    Net net(s, counts, way == "own" ? Net::Gradients::Own : Net::Gradients::InBuckets, rank_of(s) + 1);
    ddp::DistributedDataParallelOptions options = small_buckets();
    options.gradient_as_bucket_view = way == "in buckets that move";
    ddp::DistributedDataParallel model(s.group, net.parameters, options);
    expect(model.bucket_count() > 1, way + ": there are buckets");
    for (const auto& value : net.values) expect(close(value->read(s.stream), 1), way + ": values are rank 0's");
    for (int step = 1; step <= 3; ++step) {
      const auto value = [&](std::size_t i) { return static_cast<float>(step) * static_cast<float>(i + 1); };
      for (const std::size_t i : {2U, 4U, 3U, 1U, 0U}) {
        produce(s, model, net, i, value(i) * (rank_of(s) + 1));
        model.mark_ready(i);
      }
      model.synchronize();
      for (std::size_t i = 0; i < counts.size(); ++i) {
        expect(close(gradient_of(s, model, net, i, s.stream), value(i) * (average_rank(s) + 1)),
               way + ": gradient " + std::to_string(i) + " in step " + std::to_string(step));
      }
    }
  }
}

// Averages equal values, which is exact. `bits` is 1.5 in the type.
template <typename T>
void check_type(Setting& s, ddp::DType dtype, T bits, const std::string& type) {
  DeviceArray<T> value(s.gpu, std::vector<T>(9, s.group.rank() == 0 ? bits : T()), s.stream);
  DeviceArray<T> gradient(s.gpu, std::vector<T>(9, bits), s.stream);
  ddp::Parameter p;
  p.value = value.data();
  p.grad = gradient.data();
  p.count = 9;
  p.dtype = dtype;
  p.device = {ddp::DeviceKind::Cuda, s.gpu.index()};
  ddp::DistributedDataParallel model(s.group, {p});
  expect(value.read(s.stream) == std::vector<T>(9, bits), type + " values");
  model.mark_ready(0);
  model.synchronize();
  expect(gradient.read(s.stream) == std::vector<T>(9, bits), type + " gradients");
}

void types() {
  Setting s(variable("TEST_BACKEND"));
  check_type<float>(s, ddp::DType::Float32, 1.5F, "float32");
  check_type<double>(s, ddp::DType::Float64, 1.5, "float64");
  check_type<std::uint16_t>(s, ddp::DType::Float16, 0x3e00, "float16");
  check_type<std::uint16_t>(s, ddp::DType::BFloat16, 0x3fc0, "bfloat16");
}

// The kernels of the last gradient do not run yet, but the previous bucket is reduced already. A separate stream shows
// it: it reads that bucket after an operation issued behind its reduction.
void overlaps() {
  Setting s(variable("TEST_BACKEND"));
  Net net(s, {1000, 1000}, Net::Gradients::InBuckets, 0);
  ddp::DistributedDataParallel model(s.group, net.parameters, small_buckets());
  DeviceArray<float> source(s.gpu, Floats(1000, 4 * rank_of(s)), s.stream);
  DeviceArray<float> probe(s.gpu, Floats(1, 1), s.stream);
  s.group.all_reduce(s.buffer(probe));  // the first operation waits for the other ranks
  s.gpu.synchronize(s.stream);
  void* const other = s.gpu.make_stream();
  for (int step = 0; step < 2; ++step) {
    std::atomic<bool> released = false;
    produce(s, model, net, 1, 2 * rank_of(s));
    model.mark_ready(1);
    s.gpu.hold(s.stream, &released);
    s.gpu.copy(model.gradient(0), source.data(), 1000 * sizeof(float), s.stream);
    {
      const ddp::StreamGuard guard(other, s.gpu.index());
      s.group.all_reduce(s.buffer(probe));
      expect(close(gradient_of(s, model, net, 1, other), 2 * average_rank(s)),
             "a bucket is reduced while the rest of backward is still to run");
    }
    model.mark_ready(0);
    model.synchronize();
    std::atomic<bool> after = false;
    s.gpu.mark(s.stream, &after);
    expect(!after, "the host does not wait in synchronize(), the stream does");
    released = true;
    s.gpu.synchronize(s.stream);
    expect(close(gradient_of(s, model, net, 0, s.stream), 4 * average_rank(s)), "and all is averaged behind it");
  }
}

// Two gradients of one bucket come from two streams, of which the first is late.
void comes_from_two_streams() {
  Setting s(variable("TEST_BACKEND"));
  Net net(s, {1000, 1000}, Net::Gradients::Own, 0);
  ddp::DistributedDataParallel model(s.group, net.parameters);
  DeviceArray<float> source(s.gpu, Floats(1000, 2 * rank_of(s)), s.stream);
  produce(s, model, net, 0, 2 * rank_of(s));
  for (int i = 1; i >= 0; --i) model.mark_ready(static_cast<std::size_t>(i));
  model.synchronize();
  s.gpu.synchronize(s.stream);
  void* const other = s.gpu.make_stream();
  std::atomic<bool> released = false;
  s.gpu.hold(s.stream, &released);
  for (std::size_t i = 0; i < 2; ++i) {
    s.gpu.copy(model.gradient(i), source.data(), 1000 * sizeof(float), i == 1 ? s.stream : other);
  }
  model.mark_ready(1);
  {
    const ddp::StreamGuard guard(other, s.gpu.index());
    model.mark_ready(0);
    model.synchronize();
    released = true;
    for (std::size_t i = 0; i < 2; ++i) {
      expect(close(gradient_of(s, model, net, i, other), 2 * average_rank(s)),
             "gradient " + std::to_string(i) + " of two streams");
    }
  }
}

// Only rank 0 uses p1, and elsewhere its gradient counts too; no rank uses p2.
void has_unused_parameters() {
  Setting s(variable("TEST_BACKEND"));
  for (const auto kind : {Net::Gradients::Own, Net::Gradients::InBuckets}) {
    Net net(s, {100, 100, 100}, kind, 0);
    ddp::DistributedDataParallelOptions options = small_buckets();
    options.find_unused_parameters = true;
    ddp::DistributedDataParallel model(s.group, net.parameters, options);
    const auto n = static_cast<float>(s.group.size());
    for (int step = 0; step < 2; ++step) {
      for (std::size_t i = 0; i < 3; ++i) produce(s, model, net, i, i == 1 && s.group.rank() != 0 ? 3 : 6);
      if (s.group.rank() == 0) model.mark_ready(1);
      model.mark_ready(0);
      model.synchronize();
      expect(close(gradient_of(s, model, net, 0, s.stream), 6), "used by all");
      expect(close(gradient_of(s, model, net, 1, s.stream), 3 + 3 / n), "used by one");
      expect(close(gradient_of(s, model, net, 2, s.stream), 6), "used by none: as it was");
    }
  }
}

// Buffers in both kinds of memory, if the group reaches both. One rank has more input than the others.
void has_buffers_and_joins() {
  Setting s(variable("TEST_BACKEND"));
  Net net(s, {100}, Net::Gradients::Own, 0);
  DeviceArray<std::int64_t> count(s.gpu, {s.group.rank()}, s.stream);
  DeviceArray<float> mean(s.gpu, Floats(10, rank_of(s)), s.stream);
  std::vector<double> on_host(3, s.group.rank());
  ddp::DistributedDataParallelOptions options;
  const auto add = [&](void* data, std::size_t size, ddp::DType dtype, ddp::Device device) {
    ddp::Parameter buffer;
    buffer.value = data;
    buffer.count = size;
    buffer.dtype = dtype;
    buffer.device = device;
    options.buffers.push_back(buffer);
  };
  const ddp::Device gpu = {ddp::DeviceKind::Cuda, s.gpu.index()};
  add(count.data(), 1, ddp::DType::Int64, gpu);
  if (has_cpu_backend()) add(on_host.data(), on_host.size(), ddp::DType::Float64, {});
  add(mean.data(), 10, ddp::DType::Float32, gpu);
  ddp::DistributedDataParallel model(s.group, net.parameters, options);
  const auto are_those_of = [&](int rank, const std::string& when) {
    expect(count.read(s.stream) == std::vector<std::int64_t>{rank}, "an integer on the GPU " + when);
    expect(close(mean.read(s.stream), static_cast<float>(rank)), "floats on the GPU " + when);
    if (has_cpu_backend()) expect(on_host == std::vector<double>(3, rank), "doubles on the host " + when);
  };
  are_those_of(0, "are rank 0's");
  const int steps = s.group.rank() + 1;
  model.join([&] {
    for (int step = 0; step < steps; ++step) {
      model.before_forward();
      produce(s, model, net, 0, 1);
      model.mark_ready(0);
      model.synchronize();
      const auto active = static_cast<float>(s.group.size() - step);
      expect(close(gradient_of(s, model, net, 0, s.stream), active / static_cast<float>(s.group.size())),
             "ranks without input add nothing in step " + std::to_string(step));
    }
    if (s.group.rank() + 1 == s.group.size()) {  // the last rank with input, whose model all ranks take
      count.write({s.group.rank()}, s.stream);
      mean.write(Floats(10, rank_of(s)), s.stream);
      on_host.assign(3, s.group.rank());
      net.values[0]->write(Floats(100, rank_of(s)), s.stream);
    }
  });
  are_those_of(s.group.size() - 1, "are the last rank's");
  expect(close(net.values[0]->read(s.stream), static_cast<float>(s.group.size() - 1)), "values are the last rank's");
}

void model_refusals() {
  Setting s(variable("TEST_BACKEND"));
  Net net(s, {10, 10}, Net::Gradients::Own, 0);
  Floats on_host(10);
  const auto make = [&](const ddp::ProcessGroup& group, const std::vector<ddp::Parameter>& parameters) {
    const ddp::DistributedDataParallel model(group, parameters);
  };
  std::vector<ddp::Parameter> mixed = net.parameters;
  mixed[1] = ddp::Parameter("host", on_host.data(), on_host.size());
  report_failure("two places", [&] { make(s.group, mixed); });
  std::vector<ddp::Parameter> elsewhere = net.parameters;
  elsewhere[1].device.index = s.gpu.index() + 1;
  report_failure("another device", [&] { make(s.group, elsewhere); });
  if (!has_cpu_backend()) return;
  std::vector<int> all;
  for (int rank = 0; rank < s.group.size(); ++rank) all.push_back(rank);
  ddp::GroupOptions options;
  options.backend = "gloo";
  options.name = "on the CPU";
  const ddp::ProcessGroup on_cpu = s.session.new_group(all, options);
  report_failure("no backend", [&] { make(on_cpu, net.parameters); });
}

// Trains y = w x + b with different data on each rank, in CPU memory and on the GPU. The losses are equal.
struct Line {
  float w = 3;
  float b = -2;
  float w_gradient = 0;
  float b_gradient = 0;
  float loss = 0;

  void backward(const Setting& s, int step) {
    w_gradient = b_gradient = loss = 0;
    constexpr int kBatch = 8;
    for (int i = 0; i < kBatch; ++i) {
      const float x = std::sin(static_cast<float>(step * 97 + s.group.rank() * 31 + i * 7));
      const float error = w * x + b - (0.5F * x + 0.25F);
      loss += error * error / kBatch;
      w_gradient += 2 * error * x / kBatch;
      b_gradient += 2 * error / kBatch;
    }
  }
  void update(float w_average, float b_average) {
    w -= 0.1F * w_average;
    b -= 0.1F * b_average;
  }
};

void trains_as_on_the_cpu() {
  Setting s("cpu:gloo,cuda:nccl");
  Line host;
  Line device;
  ddp::DistributedDataParallel on_host(
      s.group, {{"w", &host.w, &host.w_gradient, 1}, {"b", &host.b, &host.b_gradient, 1}}, small_buckets());
  Net net(s, {1, 1}, Net::Gradients::InBuckets, 0);
  ddp::DistributedDataParallel on_device(s.group, net.parameters, small_buckets());
  float last = 0;
  for (int step = 0; step < 20; ++step) {
    host.backward(s, step);
    device.backward(s, step);
    expect(std::abs(host.loss - device.loss) <= 1e-5F * std::abs(host.loss), "loss of step " + std::to_string(step));
    produce(s, on_device, net, 1, device.b_gradient);
    on_device.mark_ready(1);
    on_host.mark_ready(1);
    produce(s, on_device, net, 0, device.w_gradient);
    on_device.mark_ready(0);
    on_host.mark_ready(0);
    on_host.synchronize();
    on_device.synchronize();
    host.update(host.w_gradient, host.b_gradient);
    device.update(gradient_of(s, on_device, net, 0, s.stream)[0], gradient_of(s, on_device, net, 1, s.stream)[0]);
    last = device.loss;
  }
  expect(last < 0.5F, "it learns");
}

// One step of a model whose gradients are in its buckets.
void take_step(Setting& s, ddp::DistributedDataParallel& model, const Net& net, const std::string& what) {
  for (std::size_t i = net.parameters.size(); i-- > 0;) {
    produce(s, model, net, i, rank_of(s));
    model.mark_ready(i);
  }
  model.synchronize();
  for (std::size_t i = 0; i < net.parameters.size(); ++i) {
    expect(close(gradient_of(s, model, net, i, s.stream), average_rank(s)), what + ": gradient " + std::to_string(i));
  }
}

// With DDP_NCCL_REGISTER: buckets of another model, of a rank that has freed other memory than the rest, and of a new
// group after the first one was aborted in the middle of a step.
void registers_buckets() {
  Setting s(variable("TEST_BACKEND"));
  Net net(s, {1000, 1000}, Net::Gradients::InBuckets, 1);
  auto first = std::make_unique<ddp::DistributedDataParallel>(s.group, net.parameters, small_buckets());
  take_step(s, *first, net, "the first model");
  if (s.group.rank() == 0) first.reset();
  say("one rank has freed its buckets");
  {
    ddp::DistributedDataParallel second(s.group, net.parameters, small_buckets());
    take_step(s, second, net, "where ranks have freed other memory");
  }
  std::vector<int> all;
  for (int rank = 0; rank < s.group.size(); ++rank) all.push_back(rank);
  say("another group");
  ddp::GroupOptions options;
  options.backend = variable("TEST_BACKEND");
  ddp::ProcessGroup again = s.session.new_group(all, options);
  {
    ddp::DistributedDataParallel ended(again, net.parameters, small_buckets());
    take_step(s, ended, net, "in another group");
    ended.mark_ready(1);  // the model ends in the middle of a step, which aborts the group
  }
  first.reset();
}

// A rank that asks for registered buckets where another one does not, and one that asks for something else.
void registers_on_one_rank() {
  Setting s(variable("TEST_BACKEND"));
  Net net(s, {10}, Net::Gradients::InBuckets, 1);
  setenv("DDP_NCCL_REGISTER", s.group.rank() == 0 ? "0" : "1", 1);
  report_failure("unlike", [&] { ddp::DistributedDataParallel(s.group, net.parameters); });
  setenv("DDP_NCCL_REGISTER", s.group.rank() == 0 ? "0" : "yes", 1);
  report_failure("neither", [&] { ddp::DistributedDataParallel(s.group, net.parameters); });
}

}  // namespace

Programs device_model_programs() {
  return {
      {"device model registers", registers_buckets},
      {"device model registers on one rank", registers_on_one_rank},
      {"device model averages", averages},
      {"device model types", types},
      {"device model overlaps", overlaps},
      {"device model on two streams", comes_from_two_streams},
      {"device model unused", has_unused_parameters},
      {"device model buffers", has_buffers_and_joins},
      {"device model refusals", model_refusals},
      {"device model trains", trains_as_on_the_cpu},
  };
}

}  // namespace ddp::test
