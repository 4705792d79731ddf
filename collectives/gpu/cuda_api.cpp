// SPDX-License-Identifier: BSD-3-Clause
#include "collectives/gpu/cuda_api.hpp"

#include <dlfcn.h>

#include <string>

#include "rendezvous/base/shared_library.hpp"
#include "rendezvous/worker_contract.hpp"

namespace ddp::collectives {

using rendezvous::library_names;
using rendezvous::SharedLibrary;

namespace {

// The _v2 suffixes are the driver's own: cuda.h maps the plain names to them.
CudaApi cuda_table(const SharedLibrary& library) {
  CudaApi api = {};
  library.find("cuInit", api.init);
  library.find("cuGetErrorString", api.get_error_string);
  library.find("cuDeviceGetCount", api.device_get_count);
  library.find("cuDeviceGet", api.device_get);
  library.find("cuDevicePrimaryCtxRetain", api.primary_context_retain);
  library.find("cuDevicePrimaryCtxRelease_v2", api.primary_context_release);
  library.find("cuCtxPushCurrent_v2", api.context_push);
  library.find("cuCtxPopCurrent_v2", api.context_pop);
  library.find("cuStreamCreateWithPriority", api.stream_create_with_priority);
  library.find("cuStreamDestroy_v2", api.stream_destroy);
  library.find("cuStreamSynchronize", api.stream_synchronize);
  library.find("cuStreamQuery", api.stream_query);
  library.find("cuCtxSynchronize", api.context_synchronize);
  library.find("cuStreamWaitEvent", api.stream_wait_event);
  library.find("cuEventCreate", api.event_create);
  library.find("cuEventDestroy_v2", api.event_destroy);
  library.find("cuEventRecord", api.event_record);
  library.find("cuEventQuery", api.event_query);
  library.find_if_there("cuStreamGetCaptureInfo_v2", api.stream_get_capture_info);
  library.find("cuThreadExchangeStreamCaptureMode", api.thread_exchange_capture_mode);
  library.find("cuCtxGetStreamPriorityRange", api.context_get_stream_priority_range);
  library.find("cuMemAlloc_v2", api.memory_allocate);
  library.find("cuMemFree_v2", api.memory_free);
  library.find("cuMemHostAlloc", api.host_memory_allocate);
  library.find("cuMemFreeHost", api.host_memory_free);
  library.find("cuMemcpyHtoDAsync_v2", api.copy_to_device);
  library.find("cuMemcpyDtoHAsync_v2", api.copy_to_host);
  library.find("cuMemcpyDtoDAsync_v2", api.copy_on_device);
  library.find("cuMemsetD8Async", api.set_bytes);
  return api;
}

constexpr char kCudaAdvice[] = "is there an NVIDIA driver? DDP_CUDA_LIBRARY names its libcuda.so.1 if it is elsewhere";

}  // namespace

bool cuda_is_initialised() {
  using rendezvous::contract::kCudaLibrary;
  for (const std::string& name : library_names(kCudaLibrary, {"libcuda.so.1"})) {
    void* const library = dlopen(name.c_str(), RTLD_NOW | RTLD_LOCAL | RTLD_NOLOAD);
    if (library == nullptr) continue;
    const auto count = reinterpret_cast<CudaResult (*)(int*)>(dlsym(library, "cuDeviceGetCount"));
    int devices = 0;
    const bool is_initialised = count != nullptr && count(&devices) != CudaResult::NotInitialized;
    dlclose(library);
    if (is_initialised) return true;
  }
  return false;
}

CudaApi open_cuda(const char* path) { return cuda_table(SharedLibrary("the CUDA driver", {path}, kCudaAdvice)); }

const CudaApi& cuda_api() {
  static const CudaApi api = cuda_table(SharedLibrary(
      "the CUDA driver", library_names(rendezvous::contract::kCudaLibrary, {"libcuda.so.1"}), kCudaAdvice));
  return api;
}

}  // namespace ddp::collectives
