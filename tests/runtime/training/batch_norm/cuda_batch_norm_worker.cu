// SPDX-License-Identifier: BSD-3-Clause
// One rank that normalises batches on the first GPU and compares the results with the CPU's
// SyncBatchNorm on the same rows. Prints "wrong: ..." and exits with 1 if they differ; exits with
// 77 if there is no GPU. Compiled wherever nvcc exists, because it uses all of
// ddp/sync_batch_norm.cuh.
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <random>
#include <string>
#include <vector>

#include "ddp/ddp.hpp"
#include "ddp/sync_batch_norm.cuh"
#include "tests/runtime/job/scenario.hpp"

namespace {

using ddp::test::all_right;
using ddp::test::expect;

void cuda(cudaError_t error) {
  if (error == cudaSuccess) return;
  std::printf("wrong: %s\n", cudaGetErrorString(error));
  std::exit(1);
}

// An array in GPU memory.
template <typename T>
class OnGpu {
 public:
  explicit OnGpu(const std::vector<T>& values) : count_(values.size()) {
    cuda(cudaMalloc(reinterpret_cast<void**>(&data_), (count_ + 1) * sizeof(T)));
    cuda(cudaMemcpy(data_, values.data(), count_ * sizeof(T), cudaMemcpyHostToDevice));
  }
  ~OnGpu() { cudaFree(data_); }
  OnGpu(const OnGpu&) = delete;
  OnGpu& operator=(const OnGpu&) = delete;
  T* data() const { return data_; }
  std::vector<T> read() const {
    std::vector<T> values(count_);
    cuda(cudaMemcpy(values.data(), data_, count_ * sizeof(T), cudaMemcpyDeviceToHost));
    return values;
  }

 private:
  T* data_ = nullptr;
  std::size_t count_;
};

template <typename T>
void compare(const std::string& what, const std::vector<T>& got, const std::vector<double>& want, double tolerance) {
  for (std::size_t i = 0; i < want.size(); ++i) {
    const double value = static_cast<double>(got[i]);
    if (std::abs(value - want[i]) <= tolerance * std::max(1.0, std::abs(want[i]))) continue;
    expect(false, what + "[" + std::to_string(i) + "] is " + std::to_string(value) + ", on the CPU " +
                      std::to_string(want[i]));
    return;
  }
}

// Higher ranks have a few more rows; rank 0 has none if there are several ranks.
template <typename Element, typename T>
void check(const ddp::ProcessGroup& world, std::size_t channels, std::size_t length, bool channels_last,
           bool cumulative, double tolerance) {
  const auto rank = static_cast<std::size_t>(world.rank());
  const std::size_t rows = 3 * (world.size() == 1 ? 5 : rank);
  const std::size_t count = rows * channels * length;
  std::mt19937_64 dice(rank + 1);
  std::normal_distribution<double> normal(0, 1);
  const double mean_of_all = sizeof(Element) == 2 ? 0 : 3000;
  const auto draw = [&](double mean) {
    std::vector<Element> values;
    for (std::size_t i = 0; i < count; ++i) values.push_back(static_cast<Element>(static_cast<T>(normal(dice) + mean)));
    return values;
  };
  const auto wide = [](const std::vector<Element>& values) {
    std::vector<double> result;
    for (const Element value : values) result.push_back(static_cast<double>(static_cast<T>(value)));
    return result;
  };
  ddp::BatchNormOptions options;
  options.channels_last = channels_last;
  options.cumulative_average = cumulative;

  std::vector<double> weight(channels, 1.5), bias(channels, 0.25), weight_grad(channels), bias_grad(channels),
      mean(channels), var(channels, 1);
  ddp::SyncBatchNorm<double> reference(
      world, channels,
      {weight.data(), bias.data(), weight_grad.data(), bias_grad.data(), mean.data(), var.data(), nullptr}, options);
  OnGpu<T> gpu_weight(std::vector<T>(channels, T(1.5))), gpu_bias(std::vector<T>(channels, T(0.25))),
      gpu_weight_grad(std::vector<T>(channels, T(0))), gpu_bias_grad(std::vector<T>(channels, T(0))),
      gpu_mean(std::vector<T>(channels, T(0))), gpu_var(std::vector<T>(channels, T(1)));
  std::int64_t batches = 0;
  ddp::CudaSyncBatchNorm<T> norm(world, channels,
                                 {gpu_weight.data(), gpu_bias.data(), gpu_weight_grad.data(), gpu_bias_grad.data(),
                                  gpu_mean.data(), gpu_var.data(), &batches},
                                 options);
  cudaStream_t stream = nullptr;
  cuda(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
  const std::string label = std::to_string(sizeof(Element)) + " bytes, " + std::to_string(channels) + " x " +
                            std::to_string(length) + (channels_last ? ", channels last: " : ": ");
  for (int step = 0; step < 3; ++step) {
    if (step == 2) {
      norm.eval();
      reference.eval();
    }
    const std::vector<Element> x = draw(mean_of_all), dy = draw(0);
    std::vector<double> wide_x = wide(x), wide_dy = wide(dy), y(count), dx(count);
    reference.forward(wide_x, y, length);
    reference.backward(wide_x, wide_dy, dx);
    const OnGpu<Element> gpu_x(x), gpu_dy(dy), gpu_y(dy);
    norm.forward(gpu_x.data(), gpu_y.data(), {rows, length}, stream);
    norm.backward(gpu_x.data(), gpu_dy.data(), gpu_dy.data(), stream);
    cuda(cudaStreamSynchronize(stream));
    const auto read = [](const OnGpu<Element>& values) {
      std::vector<T> result;
      for (const Element value : values.read()) result.push_back(static_cast<T>(value));
      return result;
    };
    compare(label + "y", read(gpu_y), y, tolerance);
    compare(label + "dx", read(gpu_dy), dx, tolerance);
    compare(label + "running_mean", gpu_mean.read(), mean, tolerance);
    compare(label + "running_var", gpu_var.read(), var, tolerance);
    compare(label + "weight_grad", gpu_weight_grad.read(), weight_grad, 20 * tolerance);
    compare(label + "bias_grad", gpu_bias_grad.read(), bias_grad, 20 * tolerance);
  }
  expect(batches == 2, label + "batches are not counted");
  cuda(cudaStreamDestroy(stream));
}

}  // namespace

int main() {
  int gpus = 0;
  if (cudaGetDeviceCount(&gpus) != cudaSuccess || gpus == 0) {
    std::printf("skipped: there is no GPU on this machine\n");
    return 77;
  }
  const char* const rank = std::getenv("RANK");
  // NCCL accepts several ranks on one GPU only from different hosts.
  if (rank != nullptr) setenv("NCCL_HOSTID", rank, 1);
  ddp::InitOptions options;
  options.backend = "cpu:gloo,cuda:nccl";
  options.device = "cuda:0";
  ddp::Session session = ddp::init_process_group(options);
  for (const bool channels_last : {false, true}) {
    for (const auto& [channels, length] : {std::pair<std::size_t, std::size_t>{3, 5000}, {70, 9}, {33, 1}, {1, 1}}) {
      check<float, float>(session.world(), channels, length, channels_last, false, 1e-4);
      check<double, double>(session.world(), channels, length, channels_last, true, 1e-9);
      check<__half, float>(session.world(), channels, length, channels_last, false, 4e-3);
      check<__nv_bfloat16, float>(session.world(), channels, length, channels_last, false, 3e-2);
    }
  }
  return all_right ? 0 : 1;
}
