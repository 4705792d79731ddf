// SPDX-License-Identifier: BSD-3-Clause
// Gradients in GPU memory, averaged by NCCL on a stream of the program while the host does other
// work. The CUDA driver is opened at run time, so that this file compiles without CUDA. Your
// program would include cuda_runtime.h, whose cudaStream_t is the driver's stream.
//
//   ddprun --nproc_per_node gpu ./cuda     one GPU for each rank
#include <dlfcn.h>

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <ddp/ddp.hpp>
#include <stdexcept>
#include <string>
#include <vector>

// The driver functions used here. Each returns 0 for success.
struct Driver {
  int (*init)(unsigned flags);
  int (*device_get)(int* device, int ordinal);
  int (*primary_context_retain)(void** context, int device);
  int (*context_set_current)(void* context);
  int (*stream_create)(void** stream, unsigned flags);
  int (*stream_synchronize)(void* stream);
  int (*stream_destroy)(void* stream);
  int (*memory_allocate)(std::uint64_t* address, std::size_t size);
  int (*memory_free)(std::uint64_t address);
  int (*copy_to_device)(std::uint64_t to, const void* from, std::size_t size, void* stream);
  int (*copy_to_host)(void* to, std::uint64_t from, std::size_t size, void* stream);

  Driver() {
    const char* named = std::getenv("DDP_CUDA_LIBRARY");  // libddp uses this variable too
    library_ = dlopen(named != nullptr ? named : "libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
    if (library_ == nullptr) throw std::runtime_error("there is no CUDA driver here");
    take(init, "cuInit");
    take(device_get, "cuDeviceGet");
    take(primary_context_retain, "cuDevicePrimaryCtxRetain");
    take(context_set_current, "cuCtxSetCurrent");
    take(stream_create, "cuStreamCreate");
    take(stream_synchronize, "cuStreamSynchronize");
    take(stream_destroy, "cuStreamDestroy_v2");
    take(memory_allocate, "cuMemAlloc_v2");
    take(memory_free, "cuMemFree_v2");
    take(copy_to_device, "cuMemcpyHtoDAsync_v2");
    take(copy_to_host, "cuMemcpyDtoHAsync_v2");
  }

  static void check(int result) {
    if (result != 0) throw std::runtime_error("CUDA's driver says error " + std::to_string(result));
  }

 private:
  template <typename Function>
  void take(Function& function, const char* name) {
    function = reinterpret_cast<Function>(dlsym(library_, name));
    if (function == nullptr) throw std::runtime_error(std::string("CUDA's driver has no ") + name);
  }
  void* library_;
};

// Trains weight k to become k % 10. Rank r's data is off by r, so that together the ranks find the
// middle. A real program's backward would leave the gradients in GPU memory; here the host computes
// them and copies them there.
void train(const ddp::Session& session, const Driver& cuda, void* stream, int gpu) {
  constexpr std::size_t kCount = 1000;
  std::vector<float> weights(kCount, 0), gradients(kCount);
  std::uint64_t address = 0;
  Driver::check(cuda.memory_allocate(&address, kCount * sizeof(float)));
  const ddp::Buffer on_gpu(reinterpret_cast<void*>(address), kCount, ddp::DType::Float32, {ddp::DeviceKind::Cuda, gpu});

  const ddp::StreamGuard current(stream, gpu);  // orders libddp's operations with the work on this stream
  const auto too_much = static_cast<float>(session.rank());
  for (int step = 0; step <= 20; ++step) {
    float loss = 0;
    for (std::size_t k = 0; k < kCount; ++k) {
      const float error = weights[k] - (static_cast<float>(k % 10) + too_much);
      loss += error * error / kCount;
      gradients[k] = 2 * error;
    }
    Driver::check(cuda.copy_to_device(address, gradients.data(), kCount * sizeof(float), stream));
    ddp::Work average = session.world().all_reduce_async(on_gpu, ddp::ReduceOp::Avg);  // after the copy
    session.world().all_reduce({&loss, 1}, ddp::ReduceOp::Avg);                        // over Gloo, while NCCL works
    average.wait();  // the stream waits, the host does not
    Driver::check(cuda.copy_to_host(gradients.data(), address, kCount * sizeof(float), stream));
    Driver::check(cuda.stream_synchronize(stream));
    for (std::size_t k = 0; k < kCount; ++k) weights[k] -= 0.2F * gradients[k];
    if (session.rank() == 0 && step % 10 == 0) std::printf("step %2d: loss %.4f\n", step, loss);
  }
  std::printf("rank %d of %d on GPU %d: weight 7 is %.3f\n", session.rank(), session.world_size(), gpu, weights[7]);
  Driver::check(cuda.memory_free(address));
}

int main() try {
  const Driver cuda;
  Driver::check(cuda.init(0));
  ddp::InitOptions options;
  options.backend = "cpu:gloo,cuda:nccl";
  ddp::Session session = ddp::init_process_group(options);
  const int gpu = session.local_rank();  // also libddp's choice if options.device names none
  int device = 0;
  void *context = nullptr, *stream = nullptr;
  Driver::check(cuda.device_get(&device, gpu));
  Driver::check(cuda.primary_context_retain(&context, device));
  Driver::check(cuda.context_set_current(context));
  Driver::check(cuda.stream_create(&stream, 1));  // non-blocking: independent of the default stream
  train(session, cuda, stream, gpu);
  Driver::check(cuda.stream_destroy(stream));
} catch (const std::exception& error) {
  std::fprintf(stderr, "%s\n", error.what());
  return 1;
}
