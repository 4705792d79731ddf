// SPDX-License-Identifier: BSD-3-Clause
// Trains a byte-level GPT on GPUs, in llm.c's manner: forward and backward written out, cuBLAS for products of
// matrices, and libddp for the rest: gradients averaged while backward runs, float32 master weights of a bf16 model,
// clipping, AdamW with its state spread over the ranks (ZeRO-1), and checkpoints from GPU memory that the step does not
// wait for.
//
//   nvcc -O3 -std=c++17 --extended-lambda -arch=native gpt.cu -o gpt $(pkg-config --cflags --libs ddp) -lcublas
//   ddprun --nproc_per_node gpu ./gpt --data FILE --type bf16 --width 768 --heads 12 --layers 12 --context 1024
//
// A compiler without CUDA makes a program for CPUs of the same lines, where a kernel is a loop:
//
//   g++ -O2 -std=c++17 -x c++ gpt.cu -o gpt $(pkg-config --cflags --libs ddp)
//
// Model, data and weights are those of apps/train, and so are the losses of --type float.
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <ddp/ddp.hpp>
#include <ddp/sampler.hpp>
#include <fstream>
#include <functional>
#include <iterator>
#include <map>
#include <memory>
#include <optional>
#include <random>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

// ---- The machine: one GPU and its stream, or the CPU ----

#ifdef __CUDACC__
#include <cublas_v2.h>
#include <cuda_runtime.h>
#define DEVICE __device__
#define HOST_DEVICE __host__ __device__
#else
#define DEVICE
#define HOST_DEVICE
#endif

// The upper half of a float, which is what __nv_bfloat16 is.
struct bfloat {
  std::uint16_t bits = 0;
  bfloat() = default;
  HOST_DEVICE bfloat(float value) {
    std::uint32_t word = 0;
    memcpy(&word, &value, sizeof(word));
    bits = value != value ? 0x7fc0 : static_cast<std::uint16_t>((word + 0x7fff + (word >> 16 & 1)) >> 16);
  }
  HOST_DEVICE operator float() const {
    const std::uint32_t word = static_cast<std::uint32_t>(bits) << 16;
    float value = 0;
    memcpy(&value, &word, sizeof(value));
    return value;
  }
};

// The threads that work on one row together: a block of a GPU. On the CPU there is one.
struct Row {
  std::size_t thread = 0, threads = 1;
#ifdef __CUDACC__
  template <typename Op>
  __device__ float reduce(float x, Op op) const {
    __shared__ float parts[32];
    for (int distance = 16; distance > 0; distance /= 2) x = op(x, __shfl_xor_sync(0xffffffffU, x, distance));
    if (thread % 32 == 0) parts[thread / 32] = x;
    __syncthreads();
    x = parts[0];
    for (std::size_t i = 1; i < threads / 32; ++i) x = op(x, parts[i]);
    __syncthreads();
    return x;
  }
  __device__ float sum(float x) const {
    return reduce(x, [](float a, float b) { return a + b; });
  }
  __device__ float max(float x) const {
    return reduce(x, [](float a, float b) { return fmaxf(a, b); });
  }
#else
  float sum(float x) const { return x; }
  float max(float x) const { return x; }
#endif
};

#ifdef __CUDACC__
constexpr unsigned kThreads = 128;

void check(cudaError_t error) {
  if (error != cudaSuccess) throw std::runtime_error(std::string("CUDA: ") + cudaGetErrorString(error));
}
void check(cublasStatus_t status) {
  if (status != CUBLAS_STATUS_SUCCESS) throw std::runtime_error("cuBLAS: status " + std::to_string(status));
}

template <typename F>
__global__ void run_each(std::size_t count, F f) {
  const std::size_t i = static_cast<std::size_t>(blockIdx.x) * blockDim.x + threadIdx.x;
  if (i < count) f(i);
}
template <typename F>
__global__ void run_rows(F f) {
  f(static_cast<std::size_t>(blockIdx.x), Row{threadIdx.x, blockDim.x});
}

class Machine {
 public:
  explicit Machine(int gpu) : gpu_(gpu) {
    check(cudaSetDevice(gpu));
    check(cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking));
    check(cublasCreate(&blas_));
    check(cublasSetStream(blas_, stream_));
    guard_.emplace(stream_, gpu);  // what libddp does is in the order of this stream
  }
  ddp::Device device() const { return {ddp::DeviceKind::Cuda, gpu_}; }

  void* allocate(std::size_t bytes) const {
    void* memory = nullptr;
    check(cudaMalloc(&memory, bytes));
    check(cudaMemsetAsync(memory, 0, bytes, stream_));
    return memory;
  }
  void upload(void* to, const void* from, std::size_t bytes) const {
    check(cudaMemcpyAsync(to, from, bytes, cudaMemcpyHostToDevice, stream_));
    check(cudaStreamSynchronize(stream_));
  }
  void download(void* to, const void* from, std::size_t bytes) const {
    check(cudaMemcpyAsync(to, from, bytes, cudaMemcpyDeviceToHost, stream_));
    check(cudaStreamSynchronize(stream_));
  }
  // f(i) for each i.
  template <typename F>
  void each(std::size_t count, F f) const {
    run_each<<<static_cast<unsigned>((count + kThreads - 1) / kThreads), kThreads, 0, stream_>>>(count, f);
    check(cudaGetLastError());
  }
  // f(i, row) for each row i, by a block of threads.
  template <typename F>
  void rows(std::size_t count, F f) const {
    run_rows<<<static_cast<unsigned>(count), kThreads, 0, stream_>>>(f);
    check(cudaGetLastError());
  }
  // cuBLAS: matrices lie column by column, sums are of 32 bits.
  template <typename T>
  void gemm(bool flip_a, bool flip_b, int m, int n, int k, const T* a, int lda, long long next_a, const T* b, int ldb,
            long long next_b, float beta, T* c, int ldc, long long next_c, int batch) const {
    const float alpha = 1;
    const cudaDataType_t type = sizeof(T) == 2 ? CUDA_R_16BF : CUDA_R_32F;
    check(cublasGemmStridedBatchedEx(blas_, flip_a ? CUBLAS_OP_T : CUBLAS_OP_N, flip_b ? CUBLAS_OP_T : CUBLAS_OP_N, m,
                                     n, k, &alpha, a, type, lda, next_a, b, type, ldb, next_b, &beta, c, type, ldc,
                                     next_c, batch, CUBLAS_COMPUTE_32F, CUBLAS_GEMM_DEFAULT));
  }

 private:
  int gpu_;
  cudaStream_t stream_ = nullptr;
  cublasHandle_t blas_ = nullptr;
  std::optional<ddp::StreamGuard> guard_;
};

constexpr char kBackend[] = "cpu:ddp,cuda:nccl";
using MasterWeights = ddp::cuda::MasterWeights;
using GradientNorm = ddp::cuda::GradientNorm;

#else

class Machine {
 public:
  explicit Machine(int) {}
  ddp::Device device() const { return {}; }

  void* allocate(std::size_t bytes) const { return std::calloc(bytes, 1); }
  void upload(void* to, const void* from, std::size_t bytes) const { std::memcpy(to, from, bytes); }
  void download(void* to, const void* from, std::size_t bytes) const { std::memcpy(to, from, bytes); }
  template <typename F>
  void each(std::size_t count, F f) const {
    for (std::size_t i = 0; i < count; ++i) f(i);
  }
  template <typename F>
  void rows(std::size_t count, F f) const {
    for (std::size_t i = 0; i < count; ++i) f(i, Row{});
  }
  // What cuBLAS computes, argument for argument.
  template <typename T>
  void gemm(bool flip_a, bool flip_b, int m, int n, int k, const T* a, int lda, long long next_a, const T* b, int ldb,
            long long next_b, float beta, T* c, int ldc, long long next_c, int batch) const {
    const auto at = [](const T* x, bool flip, long long i, long long j, int ld) {
      return static_cast<float>(flip ? x[j + i * ld] : x[i + j * ld]);
    };
    for (; batch > 0; --batch, a += next_a, b += next_b, c += next_c) {
      for (int j = 0; j < n; ++j) {
        for (int i = 0; i < m; ++i) {
          float sum = beta != 0 ? beta * static_cast<float>(c[i + static_cast<long long>(j) * ldc]) : 0;
          for (int p = 0; p < k; ++p) sum += at(a, flip_a, i, p, lda) * at(b, flip_b, p, j, ldb);
          c[i + static_cast<long long>(j) * ldc] = sum;
        }
      }
    }
  }
};

constexpr char kBackend[] = "ddp";
using MasterWeights = ddp::MasterWeights;
struct GradientNorm {
  explicit GradientNorm(const std::vector<ddp::Parameter>& of) : parameters(of) {}
  void clip(double limit) const { ddp::clip_grad_norm(parameters, limit); }
  const std::vector<ddp::Parameter>& parameters;
};
#endif

// Memory of the machine, zeros at first. It stays until the process ends, as all of it is needed until then.
template <typename T>
T* make(const Machine& machine, std::size_t count) {
  return static_cast<T*>(machine.allocate(count * sizeof(T)));
}

// ---- The model ----

struct Shape {
  int context = 64, layers = 2, heads = 4, width = 96;
};

template <typename T>
struct Tensor {
  std::string name;
  std::vector<std::int64_t> shape;
  float deviation = 0;  // normal distribution of the first values; 0: all are `constant`
  float constant = 0;
  T* value = nullptr;
  T* gradient = nullptr;
  std::size_t index = 0;

  std::size_t count() const {
    std::size_t count = 1;
    for (const std::int64_t n : shape) count *= static_cast<std::size_t>(n);
    return count;
  }
};

// Rows are bytes of sequences, one sequence after the other. A matrix lies row by row.
template <typename T>
struct Gpt {
  using Ready = std::function<void(std::size_t index)>;  // not a template's: nvcc's lambdas may have no local types
  static constexpr int kBytes = 256;
  static constexpr float kDeviation = 0.05F;

  struct Norm {
    std::size_t gain, bias;
    float *mean, *scale;  // one number for each row
  };
  struct Linear {
    std::size_t weight, bias;
    int in, out;
  };
  struct Block {
    Norm norm1, norm2;
    Linear qkv, project, widen, narrow;
    // What forward keeps for backward: the block's input, and what follows it.
    T *x, *normal1, *queries, *weights, *attended, *middle, *normal2, *wide, *active;
  };

  Gpt(const Machine& m, const Shape& shape, int sequences) : machine(m), s(shape), batch(sequences) {
    rows = static_cast<std::size_t>(batch * s.context);
    bytes = add("bytes", {kBytes, s.width}, kDeviation);
    positions = add("positions", {s.context, s.width}, kDeviation);
    const float joining = kDeviation / std::sqrt(2 * static_cast<float>(s.layers));
    for (int i = 0; i < s.layers; ++i) {
      const std::string name = "block" + std::to_string(i);
      Block b;
      b.norm1 = norm_of(name + ".norm1");
      b.qkv = linear_of(name + ".qkv", s.width, 3 * s.width, kDeviation);
      b.project = linear_of(name + ".project", s.width, s.width, joining);
      b.norm2 = norm_of(name + ".norm2");
      b.widen = linear_of(name + ".widen", s.width, 4 * s.width, kDeviation);
      b.narrow = linear_of(name + ".narrow", 4 * s.width, s.width, joining);
      for (T** each : {&b.x, &b.normal1, &b.attended, &b.middle, &b.normal2}) *each = matrix(s.width);
      b.queries = matrix(3 * s.width);
      b.weights = matrix(s.heads * s.context);
      b.wide = matrix(4 * s.width);
      b.active = matrix(4 * s.width);
      blocks.push_back(b);
    }
    norm = norm_of("norm");
    for (T** each : {&last, &normal, &dx, &dnormal, &dattended}) *each = matrix(s.width);
    scores = matrix(kBytes);
    dqueries = matrix(3 * s.width);
    dweights = matrix(s.heads * s.context);
    dwide = matrix(4 * s.width);
    input = make<std::uint8_t>(machine, rows);
    target = make<std::uint8_t>(machine, rows);
    by_byte = make<int>(machine, rows);
    first = make<int>(machine, kBytes + 1);
    losses = make<float>(machine, rows);
    loss = make<float>(machine, 1);
  }

  // Draws the weights, which depend on the seed only.
  void initialise(std::uint64_t seed) {
    std::mt19937_64 random(seed);
    for (const Tensor<T>& t : tensors) {
      std::vector<T> values(t.count(), T(t.constant));
      std::normal_distribution<float> distribution(0, t.deviation != 0 ? t.deviation : 1);
      if (t.deviation != 0) std::generate(values.begin(), values.end(), [&] { return T(distribution(random)); });
      machine.upload(t.value, values.data(), values.size() * sizeof(T));
    }
  }

  // Computes the loss in nats per byte, to `loss`. A window has context + 1 bytes.
  void forward(const std::vector<const std::uint8_t*>& windows) {
    send(windows);
    const T *of_byte = value(bytes), *of_position = value(positions);
    const std::uint8_t* in = input;
    T* x = blocks.empty() ? last : blocks.front().x;
    const std::size_t width = size(s.width), context = size(s.context);
    machine.each(rows * width, [=] DEVICE(std::size_t i) {
      x[i] = float(of_byte[in[i / width] * width + i % width]) +
             float(of_position[i / width % context * width + i % width]);
    });
    for (std::size_t i = 0; i < blocks.size(); ++i) forward(blocks[i], i + 1 < blocks.size() ? blocks[i + 1].x : last);
    forward(norm, last, normal);
    multiply(false, true, rows, kBytes, size(s.width), normal, s.width, of_byte, s.width, scores, kBytes);
    score();
  }

  // Calls ready(index) once the gradient of that tensor is on its way.
  void backward(const Ready& ready) {
    multiply(true, false, size(kBytes), s.width, rows, scores, kBytes, normal, s.width, gradient(bytes), s.width);
    multiply(false, false, rows, s.width, size(kBytes), scores, kBytes, value(bytes), s.width, dnormal, s.width);
    T* const out = dx;
    machine.each(rows * size(s.width), [=] DEVICE(std::size_t i) { out[i] = T(0); });
    backward(norm, last, dnormal, ready);
    for (auto block = blocks.rbegin(); block != blocks.rend(); ++block) backward(*block, ready);
    embed_backward();
    ready(positions);
    ready(bytes);
  }

  const Machine& machine;
  Shape s;
  int batch;
  std::vector<Tensor<T>> tensors;
  float* loss = nullptr;  // what the last forward() found

  // The rest would be private, but nvcc's lambdas cannot be in private functions.
  void forward(Block& b, T* out) {
    forward(b.norm1, b.x, b.normal1);
    forward(b.qkv, b.normal1, b.queries);
    attend(b);
    forward(b.project, b.attended, b.middle, b.x);
    forward(b.norm2, b.middle, b.normal2);
    forward(b.widen, b.normal2, b.wide);
    const T* x = b.wide;
    T* y = b.active;
    machine.each(rows * size(4 * s.width), [=] DEVICE(std::size_t i) {
      const float v = x[i];
      y[i] = 0.5F * v * (1 + tanhf(kGelu * (v + 0.044715F * v * v * v)));
    });
    forward(b.narrow, b.active, out, b.middle);
  }

  void backward(Block& b, const Ready& ready) {
    backward(b.narrow, b.active, dx, dwide, ready);
    const T* x = b.wide;
    T* d = dwide;
    machine.each(rows * size(4 * s.width), [=] DEVICE(std::size_t i) {
      const float v = x[i], t = tanhf(kGelu * (v + 0.044715F * v * v * v));
      d[i] = float(d[i]) * (0.5F * (1 + t) + 0.5F * v * (1 - t * t) * kGelu * (1 + 3 * 0.044715F * v * v));
    });
    backward(b.widen, b.normal2, dwide, dnormal, ready);
    backward(b.norm2, b.middle, dnormal, ready);
    backward(b.project, b.attended, dx, dattended, ready);
    attend_backward(b);
    backward(b.qkv, b.normal1, dqueries, dnormal, ready);
    backward(b.norm1, b.x, dnormal, ready);
  }

  // y = x W + b, plus `residual` if there is one
  void forward(const Linear& l, const T* x, T* y, const T* residual = nullptr) {
    const T* bias = value(l.bias);
    const std::size_t out = size(l.out);
    machine.each(rows * out, [=] DEVICE(std::size_t i) {
      y[i] = float(bias[i % out]) + (residual != nullptr ? float(residual[i]) : 0);
    });
    multiply(false, false, rows, l.out, size(l.in), x, l.in, value(l.weight), l.out, y, l.out, 1);
  }
  void backward(const Linear& l, const T* x, const T* dy, T* to, const Ready& ready) {
    T* dbias = gradient(l.bias);
    const std::size_t all = rows, out = size(l.out);
    machine.rows(out, [=] DEVICE(std::size_t j, Row row) {
      float sum = 0;
      for (std::size_t i = row.thread; i < all; i += row.threads) sum += float(dy[i * out + j]);
      sum = row.sum(sum);
      if (row.thread == 0) dbias[j] = sum;
    });
    ready(l.bias);
    multiply(true, false, size(l.in), l.out, rows, x, l.in, dy, l.out, gradient(l.weight), l.out);
    ready(l.weight);
    multiply(false, true, rows, l.in, size(l.out), dy, l.out, value(l.weight), l.out, to, l.in);
  }

  // y = gain (x - mean) / deviation + bias
  void forward(const Norm& n, const T* x, T* y) {
    const T *gain = value(n.gain), *bias = value(n.bias);
    float *means = n.mean, *scales = n.scale;
    const std::size_t width = size(s.width);
    machine.rows(rows, [=] DEVICE(std::size_t i, Row row) {
      const T* from = x + i * width;
      float sum = 0, squares = 0;
      for (std::size_t j = row.thread; j < width; j += row.threads) sum += float(from[j]);
      const float mean = row.sum(sum) / float(width);
      for (std::size_t j = row.thread; j < width; j += row.threads) {
        squares += (float(from[j]) - mean) * (float(from[j]) - mean);
      }
      const float scale = 1 / sqrtf(row.sum(squares) / float(width) + 1e-5F);
      for (std::size_t j = row.thread; j < width; j += row.threads) {
        y[i * width + j] = (float(from[j]) - mean) * scale * float(gain[j]) + float(bias[j]);
      }
      if (row.thread == 0) means[i] = mean, scales[i] = scale;
    });
  }
  // Adds the gradient of x to dx, where the gradient of the other branch is.
  void backward(const Norm& n, const T* x, const T* dy, const Ready& ready) {
    const T* gain = value(n.gain);
    T *dgain = gradient(n.gain), *dbias = gradient(n.bias), *to = dx;
    const float *means = n.mean, *scales = n.scale;
    const std::size_t all = rows, width = size(s.width);
    machine.rows(width, [=] DEVICE(std::size_t j, Row row) {
      float gains = 0, biases = 0;
      for (std::size_t i = row.thread; i < all; i += row.threads) {
        const float d = dy[i * width + j];
        biases += d;
        gains += d * (float(x[i * width + j]) - means[i]) * scales[i];
      }
      gains = row.sum(gains);
      biases = row.sum(biases);
      if (row.thread == 0) dgain[j] = gains, dbias[j] = biases;
    });
    ready(n.bias);
    ready(n.gain);
    machine.rows(rows, [=] DEVICE(std::size_t i, Row row) {
      float along_mean = 0, along_x = 0;
      for (std::size_t j = row.thread; j < width; j += row.threads) {
        const float d = float(dy[i * width + j]) * float(gain[j]);
        along_mean += d;
        along_x += d * (float(x[i * width + j]) - means[i]) * scales[i];
      }
      along_mean = row.sum(along_mean) / float(width);
      along_x = row.sum(along_x) / float(width);
      for (std::size_t j = row.thread; j < width; j += row.threads) {
        const float d = float(dy[i * width + j]) * float(gain[j]);
        const float centred = (float(x[i * width + j]) - means[i]) * scales[i];
        to[i * width + j] = float(to[i * width + j]) + scales[i] * (d - along_mean - centred * along_x);
      }
    });
  }

  // Causal attention. A row of `queries` has query, key and value next to each other, each head after head.
  void attend(Block& b) {
    const int depth = s.width / s.heads, wide = 3 * s.width;
    for_sequences([&](std::size_t q, std::size_t a, std::size_t w) {
      const T* query = b.queries + q;
      heads(false, true, s.context, s.context, depth, query, wide, depth, query + s.width, wide, depth, b.weights + w,
            s.context, s.context * s.context);
      (void)a;
    });
    T* weights = b.weights;
    const std::size_t context = size(s.context);
    const float scale = 1 / std::sqrt(static_cast<float>(depth));
    machine.rows(rows * size(s.heads), [=] DEVICE(std::size_t i, Row row) {
      T* of = weights + i * context;
      const std::size_t seen = i % context + 1;
      float largest = -INFINITY, sum = 0;
      for (std::size_t j = row.thread; j < seen; j += row.threads) largest = fmaxf(largest, float(of[j]));
      largest = row.max(largest);
      for (std::size_t j = row.thread; j < seen; j += row.threads) sum += expf((float(of[j]) - largest) * scale);
      sum = row.sum(sum);
      for (std::size_t j = row.thread; j < context; j += row.threads) {
        of[j] = j < seen ? expf((float(of[j]) - largest) * scale) / sum : 0.0F;
      }
    });
    for_sequences([&](std::size_t q, std::size_t a, std::size_t w) {
      heads(false, false, s.context, depth, s.context, b.weights + w, s.context, s.context * s.context,
            b.queries + q + 2 * s.width, wide, depth, b.attended + a, s.width, depth);
    });
  }
  void attend_backward(Block& b) {
    const int depth = s.width / s.heads, wide = 3 * s.width, square = s.context * s.context;
    for_sequences([&](std::size_t q, std::size_t a, std::size_t w) {
      heads(true, false, s.context, depth, s.context, b.weights + w, s.context, square, dattended + a, s.width, depth,
            dqueries + q + 2 * s.width, wide, depth);
      heads(false, true, s.context, s.context, depth, dattended + a, s.width, depth, b.queries + q + 2 * s.width, wide,
            depth, dweights + w, s.context, square);
    });
    const T* weights = b.weights;
    T* d = dweights;
    const std::size_t context = size(s.context);
    const float scale = 1 / std::sqrt(static_cast<float>(depth));
    machine.rows(rows * size(s.heads), [=] DEVICE(std::size_t i, Row row) {
      float along = 0;
      for (std::size_t j = i * context + row.thread; j < (i + 1) * context; j += row.threads) {
        along += float(d[j]) * float(weights[j]);
      }
      along = row.sum(along);
      for (std::size_t j = i * context + row.thread; j < (i + 1) * context; j += row.threads) {
        d[j] = scale * float(weights[j]) * (float(d[j]) - along);
      }
    });
    for_sequences([&](std::size_t q, std::size_t a, std::size_t w) {
      (void)a;
      heads(false, false, s.context, depth, s.context, dweights + w, s.context, square, b.queries + q + s.width, wide,
            depth, dqueries + q, wide, depth);
      heads(true, false, s.context, depth, s.context, dweights + w, s.context, square, b.queries + q, wide, depth,
            dqueries + q + s.width, wide, depth);
    });
  }

  // Cross-entropy; scores become their gradient.
  void score() {
    T* all = scores;
    const std::uint8_t* right = target;
    float *each = losses, *mean = loss;
    const std::size_t count = rows;
    machine.rows(rows, [=] DEVICE(std::size_t i, Row row) {
      T* of = all + i * kBytes;
      const float of_right = of[right[i]];
      float largest = -INFINITY, sum = 0;
      for (std::size_t j = row.thread; j < kBytes; j += row.threads) largest = fmaxf(largest, float(of[j]));
      largest = row.max(largest);
      for (std::size_t j = row.thread; j < kBytes; j += row.threads) sum += expf(float(of[j]) - largest);
      sum = row.sum(sum);
      for (std::size_t j = row.thread; j < kBytes; j += row.threads) {
        of[j] = (expf(float(of[j]) - largest) / sum - (j == right[i] ? 1.0F : 0.0F)) / float(count);
      }
      if (row.thread == 0) each[i] = logf(sum) - (of_right - largest);
    });
    machine.rows(1, [=] DEVICE(std::size_t, Row row) {
      float sum = 0;
      for (std::size_t i = row.thread; i < count; i += row.threads) sum += each[i];
      sum = row.sum(sum);
      if (row.thread == 0) *mean = sum / float(count);
    });
  }

  // Adds up the gradients of rows: for each position, and for each byte in the order of its rows.
  void embed_backward() {
    T *of_byte = gradient(bytes), *of_position = gradient(positions);
    const T* d = dx;
    const int *list = by_byte, *begin = first;
    const std::size_t count = rows, width = size(s.width), context = size(s.context);
    machine.each(context * width, [=] DEVICE(std::size_t i) {
      float sum = 0;
      for (std::size_t at = i; at < count * width; at += context * width) sum += float(d[at]);
      of_position[i] = sum;
    });
    machine.each(kBytes * width, [=] DEVICE(std::size_t i) {
      float sum = of_byte[i];
      for (int k = begin[i / width]; k < begin[i / width + 1]; ++k)
        sum += float(d[std::size_t(list[k]) * width + i % width]);
      of_byte[i] = sum;
    });
  }

  // Sends the windows, and the numbers of rows sorted by their byte.
  void send(const std::vector<const std::uint8_t*>& windows) {
    std::vector<std::uint8_t> in, out;
    for (const std::uint8_t* window : windows) {
      in.insert(in.end(), window, window + s.context);
      out.insert(out.end(), window + 1, window + s.context + 1);
    }
    std::vector<int> order(rows), begin(kBytes + 1, 0);
    for (const std::uint8_t byte : in) ++begin[byte + 1U];
    for (int i = 0; i < kBytes; ++i) begin[size(i) + 1] += begin[size(i)];
    std::vector<int> next = begin;
    for (std::size_t i = 0; i < rows; ++i) order[size(next[in[i]]++)] = static_cast<int>(i);
    machine.upload(input, in.data(), rows);
    machine.upload(target, out.data(), rows);
    machine.upload(by_byte, order.data(), rows * sizeof(int));
    machine.upload(first, begin.data(), begin.size() * sizeof(int));
  }

  // to = a b (+ to), of which a and b may be transposed: an m x k and a k x n matrix, row by row.
  void multiply(bool flip_a, bool flip_b, std::size_t m, int n, std::size_t k, const T* a, int lda, const T* b, int ldb,
                T* to, int ldc, float beta = 0) {
    machine.gemm(flip_b, flip_a, n, int(m), int(k), b, ldb, 0, a, lda, 0, beta, to, ldc, 0, 1);
  }
  // Multiplies for each head, whose matrices are at these distances.
  void heads(bool flip_a, bool flip_b, int m, int n, int k, const T* a, int lda, int next_a, const T* b, int ldb,
             int next_b, T* to, int ldc, int next_c) {
    machine.gemm(flip_b, flip_a, n, m, k, b, ldb, next_b, a, lda, next_a, 0, to, ldc, next_c, s.heads);
  }
  // Calls f for each sequence with its beginning in queries, in matrices of the model's width, and in weights.
  template <typename F>
  void for_sequences(F f) {
    for (std::size_t i = 0; i < size(batch); ++i) {
      const std::size_t row = i * size(s.context);
      f(row * size(3 * s.width), row * size(s.width), row * size(s.heads * s.context));
    }
  }

  std::size_t add(const std::string& name, std::vector<std::int64_t> shape, float deviation, float constant = 0) {
    Tensor<T> t = {name, std::move(shape), deviation, constant};
    t.index = tensors.size();
    t.value = make<T>(machine, t.count());
    t.gradient = make<T>(machine, t.count());
    tensors.push_back(t);
    return t.index;
  }
  Norm norm_of(const std::string& name) {
    const std::size_t gain = add(name + ".gain", {s.width}, 0, 1);
    return {gain, add(name + ".bias", {s.width}, 0), make<float>(machine, rows), make<float>(machine, rows)};
  }
  Linear linear_of(const std::string& name, int in, int out, float deviation) {
    const std::size_t weight = add(name + ".weight", {in, out}, deviation);
    return {weight, add(name + ".bias", {out}, 0), in, out};
  }
  T* matrix(int columns) { return make<T>(machine, rows * size(columns)); }
  T* value(std::size_t i) { return tensors[i].value; }
  T* gradient(std::size_t i) { return tensors[i].gradient; }
  static std::size_t size(int n) { return static_cast<std::size_t>(n); }

  static constexpr float kGelu = 0.7978845608F;  // sqrt(2 / pi)
  std::size_t rows = 0, bytes = 0, positions = 0;
  std::vector<Block> blocks;
  Norm norm = {};
  T *last = nullptr, *normal = nullptr, *scores = nullptr;
  T *dx = nullptr, *dnormal = nullptr, *dattended = nullptr, *dqueries = nullptr, *dweights = nullptr, *dwide = nullptr;
  std::uint8_t *input = nullptr, *target = nullptr;
  int *by_byte = nullptr, *first = nullptr;
  float* losses = nullptr;
};

// ---- Training ----

// Options, as "--name value".
class Options {
 public:
  Options(int argc, char** argv) {
    for (int i = 1; i < argc; i += 2) {
      const std::string name = argv[i];
      if (values_.count(name) == 0 || i + 1 == argc) throw std::runtime_error(name + ": no such option, or no value");
      values_[name] = argv[i + 1];
    }
  }
  const std::string& text(const std::string& name) const { return values_.at(name); }
  int whole(const std::string& name) const { return std::stoi(values_.at(name)); }
  double number(const std::string& name) const { return std::stod(values_.at(name)); }

 private:
  std::map<std::string, std::string> values_ = {
      {"--data", ""},           {"--type", "float"}, {"--context", "64"},       {"--layers", "2"},
      {"--heads", "4"},         {"--width", "96"},   {"--steps", "200"},        {"--global-batch", "32"},
      {"--lr", "0.003"},        {"--warmup", "20"},  {"--weight-decay", "0.1"}, {"--clip", "1"},
      {"--seed", "1"},          {"--log", ""},       {"--checkpoint", ""},      {"--checkpoint-every", "0"},
      {"--report-every", "20"},
  };
};

std::vector<std::uint8_t> read_data(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  std::vector<std::uint8_t> data{std::istreambuf_iterator<char>(file), {}};
  data.resize(data.size() - data.size() / 10);  // the last tenth is held out
  return data;
}

double learning_rate(int step, const Options& o) {
  const int warmup = o.whole("--warmup");
  if (step <= warmup) return o.number("--lr") * step / warmup;
  const double done = std::min(1.0, static_cast<double>(step - warmup) / (o.whole("--steps") - warmup));
  return o.number("--lr") * (0.55 + 0.45 * std::cos(3.14159265358979323846 * done));
}

template <typename T>
std::vector<ddp::Parameter> parameters_of(const Gpt<T>& gpt) {
  std::vector<ddp::Parameter> result;
  for (const Tensor<T>& t : gpt.tensors) {
    ddp::Parameter p;
    p.name = t.name;
    p.value = t.value;
    p.grad = t.gradient;
    p.count = t.count();
    p.shape = t.shape;
    p.dtype = sizeof(T) == 2 ? ddp::DType::BFloat16 : ddp::DType::Float32;
    p.device = gpt.machine.device();
    result.push_back(p);
  }
  return result;
}

// Only matrices decay.
std::vector<ddp::AdamW::Group> groups_of(const std::vector<ddp::Parameter>& parameters, double weight_decay) {
  std::vector<ddp::AdamW::Group> groups(2);
  for (ddp::AdamW::Group& group : groups) group.options.beta2 = 0.99;
  groups[0].options.weight_decay = weight_decay;
  groups[1].options.weight_decay = 0;
  for (const ddp::Parameter& p : parameters) groups[p.shape.size() > 1 ? 0 : 1].parameters.push_back(p);
  return groups;
}

template <typename T>
void train(const Options& o, const ddp::Session& session, const Machine& machine) {
  const ddp::ProcessGroup world = session.world();
  const int batch = o.whole("--global-batch"), context = o.whole("--context");
  if (batch % world.size() != 0) throw std::runtime_error("--global-batch is no multiple of the number of ranks");
  const std::vector<std::uint8_t> data = read_data(o.text("--data"));
  const std::size_t batches = data.empty() ? 0 : (data.size() - 1) / static_cast<std::size_t>(context * batch);
  if (batches == 0) throw std::runtime_error("--data " + o.text("--data") + ": there is not enough for a step");

  Gpt<T> gpt(machine, {context, o.whole("--layers"), o.whole("--heads"), o.whole("--width")}, batch / world.size());
  gpt.initialise(static_cast<std::uint64_t>(o.whole("--seed")));
  const std::vector<ddp::Parameter> parameters = parameters_of(gpt);
  ddp::DistributedDataParallel model(world, parameters);
  MasterWeights master(parameters);  // float32 copies; a float model has none
  ddp::ZeroRedundancyOptimizer<> optimizer(world, groups_of(master.parameters(), o.number("--weight-decay")));
  GradientNorm norm(master.parameters());

  std::optional<ddp::CheckpointFolder> folder;
  int done = 0;
  if (!o.text("--checkpoint").empty()) {
    folder.emplace(world, o.text("--checkpoint"));
    if (const std::optional<ddp::Checkpoint> newest = folder->latest()) {
      ddp::load_state_dict(master.parameters(), *newest);
      master.write_values();
      optimizer.load_state_dict(*newest);
      done = static_cast<int>(newest->step());
    }
  }

  ddp::DistributedSampler sampler(batches * static_cast<std::size_t>(batch), 1, 0,
                                  static_cast<std::uint64_t>(o.whole("--seed")));
  std::ofstream log;
  log.precision(9);
  if (world.rank() == 0 && !o.text("--log").empty())
    log.open(o.text("--log"), done > 0 ? std::ios::app : std::ios::out);
  for (int step = done + 1; step <= o.whole("--steps"); ++step) {
    // Each rank takes its share of the next windows of the epoch.
    sampler.set_epoch(static_cast<std::uint64_t>(step - 1) / batches);
    const std::vector<std::int64_t> order = sampler.indices();
    std::vector<const std::uint8_t*> windows;
    for (int i = world.rank(); i < batch; i += world.size()) {
      const std::size_t at =
          static_cast<std::size_t>(step - 1) % batches * static_cast<std::size_t>(batch) + std::size_t(i);
      windows.push_back(data.data() + order[at] * context);
    }
    gpt.forward(windows);
    gpt.backward([&](std::size_t i) { model.mark_ready(i); });  // full buckets are averaged meanwhile
    model.synchronize();
    master.read_gradients();
    norm.clip(o.number("--clip"));
    optimizer.set_lr(learning_rate(step, o));
    optimizer.step();
    master.write_values();
    if (log.is_open() || !o.text("--log").empty() || step % o.whole("--report-every") == 0) {
      world.all_reduce(ddp::Buffer(gpt.loss, 1, ddp::DType::Float32, machine.device()), ddp::ReduceOp::Avg);
      float loss = 0;
      machine.download(&loss, gpt.loss, sizeof(loss));  // here the host waits
      if (log.is_open()) log << step << ' ' << loss << std::endl;
      if (world.rank() == 0 && step % o.whole("--report-every") == 0)
        std::printf("step %d  loss %.4f\n", step, double(loss));
      std::fflush(stdout);
    }
    const int every = o.whole("--checkpoint-every");
    if (folder && every > 0 && step % every == 0) {
      const std::vector<ddp::OptimizerTensor> state = optimizer.tensors();  // each rank its own
      std::vector<ddp::TensorSlice> slices;
      for (const ddp::OptimizerTensor& tensor : state) slices.push_back(tensor.slice());
      if (world.rank() == 0) {
        for (const ddp::Tensor& tensor : ddp::state_dict(master.parameters())) slices.push_back(tensor);
      }
      folder->save_async(step, slices);
    }
  }
}

int main(int argc, char** argv) try {
  const Options o(argc, argv);
  ddp::InitOptions options;
  options.backend = kBackend;
  const ddp::Session session = ddp::init_process_group(options);
  const Machine machine(session.local_rank());
  if (o.text("--type") == "bf16") {
    train<bfloat>(o, session, machine);
  } else {
    train<float>(o, session, machine);
  }
} catch (const std::exception& error) {
  std::fprintf(stderr, "gpt: %s\n", error.what());
  return 1;
}
