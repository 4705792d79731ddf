// SPDX-License-Identifier: BSD-3-Clause
#include "tests/runtime/device/test_gpu.hpp"

#include <dlfcn.h>
#include <sched.h>

#include <cstdio>
#include <cstdlib>

namespace ddp::test {
namespace {

void* library() {
  const char* given = std::getenv("DDP_CUDA_LIBRARY");
  static void* const handle = dlopen(given != nullptr ? given : "libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
  if (handle != nullptr) return handle;
  std::printf("wrong: no CUDA driver\n");
  std::exit(4);
}

// Calls a function of the driver by name. The arguments must have exactly the types that it takes.
template <typename... Arguments>
int result_of(const char* name, Arguments... arguments) {
  const auto function = reinterpret_cast<int (*)(Arguments...)>(dlsym(library(), name));
  return function != nullptr ? function(arguments...) : -1;
}

template <typename... Arguments>
void driver(const char* name, Arguments... arguments) {
  const int result = result_of(name, arguments...);
  if (result == 0) return;
  std::printf("wrong: %s came to %d\n", name, result);
  std::exit(4);
}

std::uint64_t address(const void* pointer) { return reinterpret_cast<std::uint64_t>(pointer); }

}  // namespace

Gpu::Gpu(int index) : index_(index) {
  int device = 0;
  void* context = nullptr;
  driver("cuInit", 0U);
  driver("cuDeviceGet", &device, index);
  driver("cuDevicePrimaryCtxRetain", &context, device);
  driver("cuCtxSetCurrent", context);
}

Gpu::~Gpu() {
  for (void* graph : graphs_) driver("cuGraphExecDestroy", graph);
  for (void* stream : streams_) driver("cuStreamDestroy_v2", stream);
}

void* Gpu::make_stream() {
  void* stream = nullptr;
  constexpr unsigned kNonBlocking = 1;
  driver("cuStreamCreate", &stream, kNonBlocking);
  streams_.push_back(stream);
  return stream;
}

void Gpu::synchronize(void* stream) { driver("cuStreamSynchronize", stream); }

void* Gpu::allocate(std::size_t size) {
  std::uint64_t at = 0;
  driver("cuMemAlloc_v2", &at, size);
  return reinterpret_cast<void*>(at);
}

void Gpu::free(void* pointer) { driver("cuMemFree_v2", address(pointer)); }

void Gpu::upload(void* to, const void* from, std::size_t size, void* stream) {
  driver("cuMemcpyHtoDAsync_v2", address(to), from, size, stream);
}

void Gpu::copy(void* to, const void* from, std::size_t size, void* stream) {
  driver("cuMemcpyDtoDAsync_v2", address(to), address(from), size, stream);
}

void Gpu::download(void* to, const void* from, std::size_t size, void* stream) {
  driver("cuMemcpyDtoHAsync_v2", to, address(from), size, stream);
  synchronize(stream);
}

void Gpu::hold(void* stream, const std::atomic<bool>* released) {
  void (*const wait)(void*) = [](void* flag) {
    while (!*static_cast<const std::atomic<bool>*>(flag)) sched_yield();
  };
  driver("cuLaunchHostFunc", stream, wait, const_cast<void*>(static_cast<const void*>(released)));
}

void Gpu::mark(void* stream, std::atomic<bool>* reached) {
  void (*const set)(void*) = [](void* flag) { *static_cast<std::atomic<bool>*>(flag) = true; };
  driver("cuLaunchHostFunc", stream, set, static_cast<void*>(reached));
}

void Gpu::begin_capture(void* stream) {
  constexpr int kGlobal = 0;
  driver("cuStreamBeginCapture_v2", stream, kGlobal);
}

void* Gpu::end_capture(void* stream) {
  void* graph = nullptr;
  if (result_of("cuStreamEndCapture", stream, &graph) != 0 || graph == nullptr) return nullptr;
  void* executable = nullptr;
  driver("cuGraphInstantiateWithFlags", &executable, graph, 0ULL);
  driver("cuGraphDestroy", graph);
  graphs_.push_back(executable);
  return executable;
}

void Gpu::launch(void* graph, void* stream) { driver("cuGraphLaunch", graph, stream); }

}  // namespace ddp::test
