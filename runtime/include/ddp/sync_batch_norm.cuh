// SPDX-License-Identifier: BSD-3-Clause
/// @file
/// SyncBatchNorm on the memory of a GPU, for programs that nvcc compiles. Its kernels and both
/// exchanges, which go through the group over NCCL, run on the stream it is given; the host does
/// not wait. A channel's numbers are computed in double, by the same functions as on the CPU
/// (ddp/batch_norm_math.hpp). Elements are computed in float, or in double if they are double, all
/// relative to a value of their channel, so that a mean far from zero costs no precision.
///
///     ddp::CudaSyncBatchNorm<float> norm(session.world(), channels, tensors);    // pointers to the GPU's memory
///     norm.forward(x, y, {rows, height * width}, stream);                        // float*, __half*, __nv_bfloat16*
///     norm.backward(x, grad_y, grad_x, stream);
#pragma once

#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_runtime.h>

#include <cstddef>
#include <cstdint>
#include <string>
#include <type_traits>

#include "ddp/batch_norm_math.hpp"
#include "ddp/buffer.hpp"
#include "ddp/cuda.hpp"
#include "ddp/error.hpp"
#include "ddp/process_group.hpp"
#include "ddp/sync_batch_norm.hpp"

namespace ddp {

/// Size of a batch on this rank: rows x channels x length elements, or rows x length x channels.
struct BatchSize {
  std::size_t rows = 0;    ///< number of rows; may be 0, the rank takes part all the same
  std::size_t length = 1;  ///< number of values for each row and channel
};

namespace detail::cuda_batch_norm {

using batch_norm::InputGradient;
using batch_norm::Moments;
using batch_norm::Normalisation;

inline void check(cudaError_t error, const char* what) {
  if (error == cudaSuccess) return;
  throw Error(Status::System, std::string("SyncBatchNorm: ") + what + ": " + cudaGetErrorString(error));
}

// Type in which elements are computed.
template <typename Element>
using Math = std::conditional_t<std::is_same_v<Element, double>, double, float>;

template <typename Element>
__device__ Math<Element> get(Element x) {
  return static_cast<Math<Element>>(x);
}
template <typename Element>
__device__ Element put(Math<Element> x) {
  return static_cast<Element>(x);
}

struct Shape {
  std::size_t rows;
  std::size_t channels;
  std::size_t length;
  bool channels_last;
};

// Visits the values of one channel that a thread reads, by their place in memory, without a division for each.
class Walk {
 public:
  __device__ Walk(const Shape& shape, std::size_t channel, std::size_t first, std::size_t step)
      : shape_(shape),
        channel_(channel),
        row_(first / shape.length),
        at_(first % shape.length),
        rows_(step / shape.length),
        ats_(step % shape.length) {}
  __device__ bool more() const { return row_ < shape_.rows; }
  __device__ std::size_t place() const {
    return shape_.channels_last ? (row_ * shape_.length + at_) * shape_.channels + channel_
                                : (row_ * shape_.channels + channel_) * shape_.length + at_;
  }
  __device__ void next() {
    row_ += rows_;
    at_ += ats_;
    if (at_ < shape_.length) return;
    at_ -= shape_.length;
    ++row_;
  }

 private:
  const Shape& shape_;
  std::size_t channel_;
  std::size_t row_;
  std::size_t at_;
  std::size_t rows_;
  std::size_t ats_;
};

// threadIdx.x counts channels and threadIdx.y the values of one, so that neighbours in a warp read neighbours in
// memory.
inline dim3 block_for(const Shape& shape) {
  return shape.channels_last || shape.length == 1 ? dim3(32, 16) : dim3(1, 512);
}
inline dim3 grid_for(const Shape& shape, dim3 block, std::size_t slices) {
  return dim3(static_cast<unsigned>((shape.channels + block.x - 1) / block.x), static_cast<unsigned>(slices));
}
__device__ inline std::size_t my_channel() { return std::size_t{blockIdx.x} * blockDim.x + threadIdx.x; }

// Combines one value of each thread of a channel into the first thread's. The order is always the same.
template <typename Value, typename Combine>
__device__ Value over_threads(const Value& mine, Combine combine) {
  extern __shared__ double memory[];
  Value* values = reinterpret_cast<Value*>(memory);
  const unsigned self = threadIdx.y * blockDim.x + threadIdx.x;
  values[self] = mine;
  for (unsigned half = blockDim.y / 2; half > 0; half /= 2) {
    __syncthreads();
    if (threadIdx.y < half) values[self] = combine(values[self], values[self + half * blockDim.x]);
  }
  return values[self];
}

template <typename Element>
__global__ void moments(const Element* x, Shape shape, double* told) {
  const std::size_t channel = my_channel();
  Moments mine;
  if (channel < shape.channels && shape.rows > 0) {
    const Math<Element> pivot = get(x[Walk(shape, channel, 0, 1).place()]);
    Math<Element> count = 0;
    Math<Element> mean = 0;
    Math<Element> deviations = 0;
    for (Walk walk(shape, channel, threadIdx.y, blockDim.y); walk.more(); walk.next()) {
      const Math<Element> value = get(x[walk.place()]) - pivot;
      const Math<Element> before = value - mean;
      count += 1;
      mean += before / count;
      deviations += before * (value - mean);
    }
    mine = {static_cast<double>(count), static_cast<double>(pivot) + static_cast<double>(mean),
            static_cast<double>(deviations)};
  }
  const Moments all = over_threads(mine, [](const Moments& a, const Moments& b) { return merge(a, b); });
  if (threadIdx.y > 0 || channel >= shape.channels) return;
  told[channel] = all.mean;
  told[shape.channels + channel] = all.deviations;
  if (channel == 0) told[2 * shape.channels] = all.count;
}

// Results of the last forward that backward needs, one for each channel.
struct Saved {
  double count;
  double mean;
  double inverse_deviation;
};

struct Sums {
  double dy;
  double dy_distance;
};

template <typename T>
struct Channels {
  BatchNormTensors<T> tensors;
  std::size_t count;
  double eps;
  Saved* saved;
  Normalisation* normalisations;

  __device__ double weight(std::size_t c) const { return tensors.weight ? static_cast<double>(tensors.weight[c]) : 1; }
  __device__ void save(std::size_t c, double count_of_values, double mean, double variance) const {
    saved[c] = {count_of_values, mean, batch_norm::inverse_deviation(variance, eps)};
    const double bias = tensors.bias ? static_cast<double>(tensors.bias[c]) : 0;
    normalisations[c] = {mean, saved[c].inverse_deviation * weight(c), bias};
  }
};

template <typename T>
__global__ void combine(Channels<T> channels, const double* gathered, std::size_t ranks, double momentum) {
  const std::size_t c = my_channel();
  if (c >= channels.count) return;
  const Moments all = batch_norm::moments_of_ranks(gathered, ranks, channels.count, c);
  channels.save(c, all.count, all.mean, all.count > 0 ? all.deviations / all.count : 0);
  const BatchNormTensors<T>& tensors = channels.tensors;
  if (tensors.running_mean == nullptr || all.count < 2) return;
  const double unbiased = all.deviations / (all.count - 1);
  tensors.running_mean[c] = static_cast<T>(batch_norm::moved(tensors.running_mean[c], all.mean, momentum));
  tensors.running_var[c] = static_cast<T>(batch_norm::moved(tensors.running_var[c], unbiased, momentum));
}

template <typename T>
__global__ void take_running(Channels<T> channels) {
  const std::size_t c = my_channel();
  if (c >= channels.count) return;
  channels.save(c, 1, channels.tensors.running_mean[c], channels.tensors.running_var[c]);
}

// A double as two numbers of the elements' type: its rounded value, and the rest.
template <typename M>
struct Split {
  __device__ explicit Split(double x) : high(static_cast<M>(x)), low(static_cast<M>(x - static_cast<double>(high))) {}
  __device__ M distance_of(M x) const { return (x - high) - low; }
  M high;
  M low;
};

template <typename Element>
__global__ void normalise(const Element* x, Element* y, Shape shape, const Normalisation* normalisations) {
  const std::size_t channel = my_channel();
  if (channel >= shape.channels) return;
  using M = Math<Element>;
  const Normalisation n = normalisations[channel];
  const Split<M> mean(n.mean);
  const M scale = static_cast<M>(n.scale);
  const M shift = static_cast<M>(n.shift);
  const std::size_t first = std::size_t{blockIdx.y} * blockDim.y + threadIdx.y;
  for (Walk walk(shape, channel, first, std::size_t{gridDim.y} * blockDim.y); walk.more(); walk.next()) {
    const std::size_t at = walk.place();
    y[at] = put<Element>(mean.distance_of(get(x[at])) * scale + shift);
  }
}

template <typename Element>
__global__ void gradient_sums(const Element* x, const Element* dy, Shape shape, const Saved* saved, Sums* sums) {
  const std::size_t channel = my_channel();
  using M = Math<Element>;
  Sums mine = {0, 0};
  if (channel < shape.channels) {
    const Split<M> mean(saved[channel].mean);
    M sum = 0;
    M sum_distance = 0;
    for (Walk walk(shape, channel, threadIdx.y, blockDim.y); walk.more(); walk.next()) {
      const std::size_t at = walk.place();
      const M gradient = get(dy[at]);
      sum += gradient;
      sum_distance += gradient * mean.distance_of(get(x[at]));
    }
    mine = {static_cast<double>(sum), static_cast<double>(sum_distance)};
  }
  const Sums all = over_threads(mine, [](const Sums& a, const Sums& b) {
    return Sums{a.dy + b.dy, a.dy_distance + b.dy_distance};
  });
  if (threadIdx.y == 0 && channel < shape.channels) sums[channel] = all;
}

// own has this rank's sums; all has the sums of all ranks, or is null if the statistics do not depend on the input.
template <typename T>
__global__ void prepare_backward(Channels<T> channels, const Sums* own, const Sums* all, InputGradient* gradients) {
  const std::size_t c = my_channel();
  if (c >= channels.count) return;
  const BatchNormTensors<T>& tensors = channels.tensors;
  const Saved saved = channels.saved[c];
  if (tensors.weight_grad != nullptr) {
    const double before = static_cast<double>(tensors.weight_grad[c]);
    tensors.weight_grad[c] = static_cast<T>(before + own[c].dy_distance * saved.inverse_deviation);
  }
  if (tensors.bias_grad != nullptr) {
    tensors.bias_grad[c] = static_cast<T>(static_cast<double>(tensors.bias_grad[c]) + own[c].dy);
  }
  const Sums sums = all != nullptr ? all[c] : Sums{0, 0};
  gradients[c] = batch_norm::input_gradient(saved.mean, saved.inverse_deviation, channels.weight(c), saved.count,
                                            sums.dy, sums.dy_distance);
}

template <typename Element>
__global__ void input_gradients(const Element* x, const Element* dy, Element* dx, Shape shape,
                                const InputGradient* gradients) {
  const std::size_t channel = my_channel();
  if (channel >= shape.channels) return;
  using M = Math<Element>;
  const InputGradient g = gradients[channel];
  const Split<M> mean(g.mean);
  const M scale = static_cast<M>(g.scale);
  const M mean_dy = static_cast<M>(g.mean_dy);
  const M slope = static_cast<M>(g.slope);
  const std::size_t first = std::size_t{blockIdx.y} * blockDim.y + threadIdx.y;
  for (Walk walk(shape, channel, first, std::size_t{gridDim.y} * blockDim.y); walk.more(); walk.next()) {
    const std::size_t at = walk.place();
    dx[at] = put<Element>((get(dy[at]) - mean_dy - mean.distance_of(get(x[at])) * slope) * scale);
  }
}

// Memory of the GPU that is current when it is made.
template <typename T>
class Array {
 public:
  explicit Array(std::size_t count) : count_(count) {
    check(cudaMalloc(reinterpret_cast<void**>(&data_), count * sizeof(T)), "cudaMalloc");
  }
  ~Array() { cudaFree(data_); }
  Array(const Array&) = delete;
  Array& operator=(const Array&) = delete;

  T* data() const { return data_; }
  Buffer doubles(int device) const {
    return {data_, count_ * sizeof(T) / sizeof(double), DType::Float64, {DeviceKind::Cuda, device}};
  }

 private:
  T* data_ = nullptr;
  std::size_t count_;
};

}  // namespace detail::cuda_batch_norm

/// Batch normalisation over the rows of all ranks of a group with a backend for CUDA memory. It
/// works on the GPU that is current when it is made, which must also be current at every call. One
/// thread at a time, the group's deadline and errors. T is the type of the weights and statistics,
/// which are in the GPU's memory (num_batches_tracked is in the host's). It differs from
/// SyncBatchNorm in four ways: ranks' numbers of channels are not compared; eval() needs running
/// statistics; with fewer than 2 values for a channel in all, which only the GPU knows, training
/// gives the bias and leaves the running statistics as they are; elements are computed in float,
/// unless they are double.
template <typename T>
class CudaSyncBatchNorm {
  static_assert(std::is_same_v<T, float> || std::is_same_v<T, double>, "weights and statistics are float or double");

 public:
  /// Makes a batch normalisation, with the same number of channels on every rank. The tensors' memory
  /// must stay, or set_tensors() names other memory. It allocates all memory here, and none later.
  CudaSyncBatchNorm(const ProcessGroup& group, std::size_t channels, const BatchNormTensors<T>& tensors = {},
                    const BatchNormOptions& options = {})
      : group_(group),
        ranks_(static_cast<std::size_t>(group.size())),
        channels_(checked(channels, tensors)),
        tensors_(tensors),
        options_(options),
        told_(batch_norm::told_by_rank(channels)),
        gathered_(batch_norm::told_by_rank(channels) * ranks_),
        saved_(channels),
        normalisations_(channels),
        own_sums_(channels),
        sums_(channels),
        gradients_(channels) {
    detail::cuda_batch_norm::check(cudaGetDevice(&device_), "cudaGetDevice");
  }

  /// Sets where the tensors are from now on, all of them, as SyncBatchNorm::set_tensors() does.
  void set_tensors(const BatchNormTensors<T>& tensors) {
    checked(channels_, tensors);
    tensors_ = tensors;
  }
  /// Normalises by the batch's statistics from now on, as at first; they update the running ones.
  void train() { training_ = true; }
  /// Normalises by the running statistics from now on, without any exchange. Throws Error with
  /// Status::InvalidArgument if there are none.
  void eval() {
    if (tensors_.running_mean == nullptr) {
      throw Error(Status::InvalidArgument, "SyncBatchNorm: eval needs running statistics");
    }
    training_ = false;
  }

  /// Enqueues the normalisation. Element is T, or with T = float also __half or __nv_bfloat16.
  /// Collective in training. Input and output must stay until the stream has done it.
  template <typename Element>
  void forward(const Element* input, Element* output, BatchSize size, cudaStream_t stream = nullptr) {
    namespace kernels = detail::cuda_batch_norm;
    check_element<Element>();
    if (size.length == 0) throw Error(Status::InvalidArgument, "SyncBatchNorm: a length of 0");
    shape_ = {size.rows, channels_, size.length, options_.channels_last};
    const StreamGuard current(stream, device_);
    if (training_) {
      kernels::moments<<<one_slice(), block(), shared<batch_norm::Moments>(), stream>>>(input, shape_, told_.data());
      launched("moments");
      group_.all_gather(told_.doubles(device_), gathered_.doubles(device_));
      kernels::combine<<<by_channel(), kThreads, 0, stream>>>(channels(), gathered_.data(), ranks_, next_momentum());
      launched("combine");
    } else {
      kernels::take_running<<<by_channel(), kThreads, 0, stream>>>(channels());
      launched("take_running");
    }
    kernels::normalise<<<slices(), block(), 0, stream>>>(input, output, shape_, normalisations_.data());
    launched("normalise");
    of_batch_ = training_;
    forwarded_ = true;
  }

  /// Enqueues the backward of the last forward(), whose input is given again; grad_input may be grad_output. Collective
  /// after a forward in training.
  template <typename Element>
  void backward(const Element* input, const Element* grad_output, Element* grad_input, cudaStream_t stream = nullptr) {
    namespace kernels = detail::cuda_batch_norm;
    check_element<Element>();
    if (!forwarded_) throw Error(Status::InvalidArgument, "SyncBatchNorm: backward without a forward before it");
    const StreamGuard current(stream, device_);
    kernels::gradient_sums<<<one_slice(), block(), shared<kernels::Sums>(), stream>>>(input, grad_output, shape_,
                                                                                      saved_.data(), own_sums_.data());
    launched("gradient_sums");
    if (of_batch_) {
      kernels::check(cudaMemcpyAsync(sums_.data(), own_sums_.data(), channels_ * sizeof(kernels::Sums),
                                     cudaMemcpyDeviceToDevice, stream),
                     "cudaMemcpyAsync");
      group_.all_reduce(sums_.doubles(device_));
    }
    kernels::prepare_backward<<<by_channel(), kThreads, 0, stream>>>(
        channels(), own_sums_.data(), of_batch_ ? sums_.data() : nullptr, gradients_.data());
    launched("prepare_backward");
    kernels::input_gradients<<<slices(), block(), 0, stream>>>(input, grad_output, grad_input, shape_,
                                                               gradients_.data());
    launched("input_gradients");
  }

 private:
  static constexpr unsigned kThreads = 128;

  template <typename Element>
  static void check_element() {
    constexpr bool narrow = std::is_same_v<Element, __half> || std::is_same_v<Element, __nv_bfloat16>;
    static_assert(std::is_same_v<Element, T> || (narrow && std::is_same_v<T, float>),
                  "elements are of the weights' type, or of 16 bits with float weights");
  }
  static std::size_t checked(std::size_t channels, const BatchNormTensors<T>& tensors) {
    if (channels == 0) throw Error(Status::InvalidArgument, "SyncBatchNorm: there are no channels");
    if ((tensors.running_mean == nullptr) != (tensors.running_var == nullptr)) {
      throw Error(Status::InvalidArgument, "SyncBatchNorm: running_mean and running_var are given both, or neither");
    }
    return channels;
  }
  static void launched(const char* kernel) { detail::cuda_batch_norm::check(cudaGetLastError(), kernel); }

  double next_momentum() {
    std::int64_t& batches = tensors_.num_batches_tracked != nullptr ? *tensors_.num_batches_tracked : own_count_;
    ++batches;
    return options_.cumulative_average ? 1 / static_cast<double>(batches) : options_.momentum;
  }
  detail::cuda_batch_norm::Channels<T> channels() const {
    return {tensors_, channels_, options_.eps, saved_.data(), normalisations_.data()};
  }
  dim3 block() const { return detail::cuda_batch_norm::block_for(shape_); }
  dim3 one_slice() const { return detail::cuda_batch_norm::grid_for(shape_, block(), 1); }
  // Enough blocks for any GPU, whatever the number of channels.
  dim3 slices() const {
    const std::size_t needed = (shape_.rows * shape_.length + block().y - 1) / block().y;
    return detail::cuda_batch_norm::grid_for(shape_, block(), needed < 1 ? 1 : needed > 64 ? 64 : needed);
  }
  dim3 by_channel() const { return dim3(static_cast<unsigned>((channels_ + kThreads - 1) / kThreads)); }
  template <typename Value>
  std::size_t shared() const {
    return std::size_t{block().x} * block().y * sizeof(Value);
  }

  ProcessGroup group_;
  std::size_t ranks_;
  std::size_t channels_;
  BatchNormTensors<T> tensors_;
  BatchNormOptions options_;
  int device_ = 0;
  bool training_ = true;
  bool of_batch_ = false;   // the last forward was one in training
  bool forwarded_ = false;  // there was one
  std::int64_t own_count_ = 0;
  detail::cuda_batch_norm::Shape shape_ = {};
  detail::cuda_batch_norm::Array<double> told_;
  detail::cuda_batch_norm::Array<double> gathered_;
  detail::cuda_batch_norm::Array<detail::cuda_batch_norm::Saved> saved_;
  detail::cuda_batch_norm::Array<batch_norm::Normalisation> normalisations_;
  detail::cuda_batch_norm::Array<detail::cuda_batch_norm::Sums> own_sums_;
  detail::cuda_batch_norm::Array<detail::cuda_batch_norm::Sums> sums_;
  detail::cuda_batch_norm::Array<batch_norm::InputGradient> gradients_;
};

}  // namespace ddp
