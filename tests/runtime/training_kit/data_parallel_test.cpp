// SPDX-License-Identifier: BSD-3-Clause
#include "ddp/training/data_parallel.hpp"

#include <atomic>
#include <catch2/catch.hpp>
#include <set>
#include <stdexcept>

using Catch::Matchers::Contains;
using ddp::Buffer;
using ddp::Chunk;
using ddp::DataParallel;
using ddp::ReplicaError;

namespace {

std::vector<std::size_t> sizes(const std::vector<Chunk>& chunks) {
  std::vector<std::size_t> result;
  std::size_t next = 0;
  for (const Chunk& c : chunks) {
    CHECK((c.rows == 0 || c.first == next));
    next += c.rows;
    result.push_back(c.rows);
  }
  return result;
}

// y = x * weights, from two inputs to three outputs. Numbers are small and whole: a sum has the same bits in any order.
constexpr std::size_t kInputs = 2;
constexpr std::size_t kOutputs = 3;
struct Model {
  std::vector<float> weights = std::vector<float>(kInputs * kOutputs);
  std::vector<float> gradients = std::vector<float>(kInputs * kOutputs);
  std::vector<ddp::Parameter> parameters() { return {{"weights", weights.data(), gradients.data(), weights.size()}}; }
  // Also the gradient of sum(y * y) / 2.
  void forward_backward(const float* x, float* y, std::size_t rows) {
    for (std::size_t r = 0; r < rows; ++r) {
      for (std::size_t o = 0; o < kOutputs; ++o) {
        float sum = 0;
        for (std::size_t i = 0; i < kInputs; ++i) sum += x[r * kInputs + i] * weights[i * kOutputs + o];
        y[r * kOutputs + o] = sum;
        for (std::size_t i = 0; i < kInputs; ++i) gradients[i * kOutputs + o] += x[r * kInputs + i] * sum;
      }
    }
  }
};

DataParallel::Replicas parameters_of(std::vector<Model>& models) {
  DataParallel::Replicas result;
  for (Model& model : models) result.push_back(model.parameters());
  return result;
}

std::vector<float> counted(std::size_t count, float from) {
  std::vector<float> values(count);
  for (float& value : values) value = from++;
  return values;
}

}  // namespace

// Printed by torch.zeros(n, 2).chunk(k) of PyTorch 2.15.0.
TEST_CASE("data parallel: rows are split as torch.chunk splits them", "[runtime][unit]") {
  using Sizes = std::vector<std::size_t>;
  CHECK(sizes(ddp::chunk(5, 4)) == Sizes{2, 2, 1});
  CHECK(sizes(ddp::chunk(7, 4)) == Sizes{2, 2, 2, 1});
  CHECK(sizes(ddp::chunk(9, 8)) == Sizes{2, 2, 2, 2, 1});
  CHECK(sizes(ddp::chunk(3, 8)) == Sizes{1, 1, 1});
  CHECK(sizes(ddp::chunk(16, 3)) == Sizes{6, 6, 4});
  CHECK(sizes(ddp::chunk(8, 2)) == Sizes{4, 4});
  CHECK(sizes(ddp::chunk(1, 1)) == Sizes{1});
  CHECK(sizes(ddp::chunk(0, 3)) == Sizes{0, 0, 0});
  CHECK_THROWS_AS(ddp::chunk(3, 0), ddp::Error);
}

TEST_CASE("data parallel: replicas get the results of one model on the whole batch", "[runtime][unit]") {
  const std::size_t replicas = GENERATE(1U, 2U, 3U, 8U);
  const std::size_t rows = GENERATE(0U, 1U, 2U, 5U, 7U, 12U, 100U);
  std::vector<float> x = counted(rows * kInputs, -3);
  Model whole;
  whole.weights = {1, -2, 3, 0, 2, -1};
  std::vector<float> expected(rows * kOutputs);

  DataParallel parallel(replicas);
  std::vector<Model> models(replicas);
  models[0].weights = whole.weights;
  std::vector<float> y(expected.size());
  for (int step = 0; step < 3; ++step) {
    whole.forward_backward(x.data(), expected.data(), rows);
    const DataParallel::Replicas all = parameters_of(models);
    parallel.replicate(all);
    const std::vector<Buffer> inputs = parallel.scatter(x, rows);
    std::vector<std::vector<float>> outputs(inputs.size());
    const std::vector<Chunk> chunks = parallel.chunks(rows);
    parallel.parallel_apply(chunks, [&](std::size_t replica, Chunk chunk) {
      outputs[replica].resize(chunk.rows * kOutputs);
      models[replica].forward_backward(static_cast<float*>(inputs[replica].data), outputs[replica].data(), chunk.rows);
    });
    std::vector<Buffer> parts(outputs.begin(), outputs.end());
    parallel.gather(parts, y);
    CHECK(y == expected);
    parallel.reduce_gradients(all, chunks.size());
    CHECK(models[0].gradients == whole.gradients);
    for (std::size_t r = 1; r < replicas; ++r) {
      CHECK(models[r].weights == whole.weights);
      models[r].gradients.assign(models[r].gradients.size(), 0);
    }
    for (Model* model : {&whole, &models[0]}) {
      for (std::size_t i = 0; i < model->weights.size(); ++i) model->weights[i] = static_cast<float>(step) - 1;
      model->gradients.assign(model->gradients.size(), 0);
    }
  }
}

TEST_CASE("data parallel: every replica keeps its thread", "[runtime][unit]") {
  DataParallel parallel(4);
  std::vector<std::set<std::thread::id>> seen(4);
  for (int step = 0; step < 50; ++step) {
    parallel.parallel_apply(parallel.chunks(step % 5 == 0 ? 2U : 4U),
                            [&](std::size_t replica, Chunk) { seen[replica].insert(std::this_thread::get_id()); });
  }
  std::set<std::thread::id> all = {std::this_thread::get_id()};
  for (const auto& ids : seen) {
    CHECK(ids.size() == 1);
    all.insert(ids.begin(), ids.end());
  }
  CHECK(all.size() == 5);
}

TEST_CASE("data parallel: a replica's exception comes with its number once all others have ended", "[runtime][unit]") {
  DataParallel parallel(4);
  const std::vector<Chunk> chunks = parallel.chunks(4);
  std::atomic<int> ended{0};
  const auto fail = [&](const std::function<void(std::size_t)>& body) -> ReplicaError {
    ended = 0;
    try {
      parallel.parallel_apply(chunks, [&](std::size_t replica, Chunk) {
        if (replica != 1 && replica != 3) {
          ++ended;
          return;
        }
        body(replica);
      });
    } catch (const ReplicaError& e) {
      CHECK(ended == 2);
      return e;
    }
    throw std::logic_error("nothing was thrown");
  };
  const ReplicaError plain = fail([](std::size_t r) { throw std::out_of_range("no token " + std::to_string(r)); });
  CHECK(plain.replica() == 1);
  CHECK(plain.status() == ddp::Status::System);
  CHECK(plain.what() == std::string("DataParallel: replica 1: no token 1"));
  const ReplicaError ours = fail([](std::size_t r) {
    if (r == 3) throw ddp::Error(ddp::Status::Timeout, "too late");
  });
  CHECK(ours.replica() == 3);
  CHECK(ours.status() == ddp::Status::Timeout);
  CHECK_THAT(fail([](std::size_t) { throw 7; }).what(), Contains("unknown kind"));
  // The original exception is nested in it, and does not affect the next step.
  try {
    parallel.parallel_apply(chunks, [](std::size_t, Chunk) { throw std::out_of_range("inside"); });
    FAIL("nothing was thrown");
  } catch (const ReplicaError& e) {
    CHECK(e.replica() == 0);
    CHECK_THROWS_AS(std::rethrow_if_nested(e), std::out_of_range);
  }
  ended = 0;
  parallel.parallel_apply(chunks, [&](std::size_t, Chunk) { ++ended; });
  CHECK(ended == 4);
}

TEST_CASE("data parallel: replicas that differ are refused by the parameter's name", "[runtime][unit]") {
  DataParallel parallel(2);
  float value = 1;
  float other = 2;
  std::vector<float> two = {3, 4};
  const auto refused = [&](const DataParallel::Replicas& models) -> std::string {
    try {
      parallel.replicate(models);
    } catch (const ddp::Error& e) {
      CHECK(e.status() == ddp::Status::Mismatch);
      CHECK_THROWS_AS(parallel.reduce_gradients(models), ddp::Error);
      return e.what();
    }
    return "accepted";
  };
  CHECK_THAT(refused({{{"a", &value, &other, 1}}, {{"a", two.data(), two.data(), 2}}}), Contains("parameter 0 (a)"));
  CHECK_THAT(refused({{{"a", &value, &other, 1}}, {{"a", &other, static_cast<float*>(nullptr), 1}}}),
             Contains("parameter 0 (a)"));
  CHECK_THAT(refused({{{"a", &value, &other, 1}}, {}}), Contains("replica 1 has 0"));
  CHECK(value == 1);
  CHECK(other == 2);
}

TEST_CASE("data parallel: sizes that do not match are refused", "[runtime][unit]") {
  CHECK_THROWS_AS(DataParallel(0), ddp::Error);
  DataParallel parallel(2);
  std::vector<float> five(5);
  std::vector<float> four(4);
  std::vector<double> wide(4);
  CHECK_THROWS_AS(parallel.scatter(five, 2), ddp::Error);
  CHECK_THROWS_AS(parallel.scatter(five, 0), ddp::Error);
  CHECK_THROWS_AS(parallel.scatter(four, 2, {Buffer(five.data(), 2)}), ddp::Error);
  CHECK_THROWS_AS(parallel.scatter(four, 2, {Buffer(five.data(), 2), Buffer(five.data(), 3)}), ddp::Error);
  CHECK_THROWS_AS(parallel.gather({Buffer(four)}, five), ddp::Error);
  CHECK_THROWS_AS(parallel.gather({Buffer(wide)}, four), ddp::Error);
  CHECK_THROWS_AS(parallel.parallel_apply(ddp::chunk(3, 3), [](std::size_t, Chunk) {}), ddp::Error);
  const Buffer on_device(four.data(), 4, ddp::DType::Float32, {ddp::DeviceKind::Cuda, 0});
  try {
    parallel.gather({on_device}, four);
    FAIL("memory of a device was copied");
  } catch (const ddp::Error& e) {
    CHECK_THAT(e.what(), Contains("MemoryOperations"));
  }
}

// Memory of the host that is declared to be a device's: the test is about which functions copy and add.
TEST_CASE("data parallel: memory of devices is copied and added by the caller's functions", "[runtime][unit]") {
  std::vector<std::string> calls;
  const auto log = [&calls](const char* what, const Buffer& to, const Buffer& from) {
    calls.push_back(what + std::to_string(from.device.index) + std::to_string(to.device.index));
  };
  DataParallel parallel(
      2, {[&](const Buffer& to, const Buffer& from) {
            log("copy", to, from);
            ddp::detail::copy_on_host({to.data, to.count, to.dtype}, {from.data, from.count, from.dtype});
          },
          [&](const Buffer& to, const Buffer& from) {
            log("add", to, from);
            ddp::detail::add_on_host({to.data, to.count, to.dtype}, {from.data, from.count, from.dtype});
          }});
  const auto on = [](std::vector<double>& v, int device) {
    return Buffer(v.data(), v.size(), ddp::DType::Float64, {ddp::DeviceKind::Cuda, device});
  };
  std::vector<double> batch = {1, 2, 3, 4, 5, 6}, left(4), right(2), together(6);
  parallel.scatter(on(batch, 0), 3, {on(left, 0), on(right, 1)});
  parallel.gather({on(left, 0), on(right, 1)}, on(together, 0));
  CHECK(together == batch);
  std::vector<double> value = {7}, gradient = {1}, other_value = {0}, other_gradient = {2};
  DataParallel::Replicas models = {{{"w", value.data(), gradient.data(), 1}},
                                   {{"w", other_value.data(), other_gradient.data(), 1}}};
  models[1][0].device = {ddp::DeviceKind::Cuda, 1};
  parallel.replicate(models);
  parallel.reduce_gradients(models);
  CHECK(other_value[0] == 7);
  CHECK(gradient[0] == 3);
  CHECK(calls == std::vector<std::string>{"copy00", "copy01", "copy00", "copy10", "copy01", "add10"});
}
