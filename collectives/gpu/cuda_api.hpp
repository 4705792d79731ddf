// SPDX-License-Identifier: BSD-3-Clause
// The CUDA driver as a table of function pointers, like nccl_api.hpp: contexts, streams, events and a little memory.
// Streams and events are the CUDA runtime's too. Device pointers are uint64_t, as in the driver.
//
// The library is $DDP_CUDA_LIBRARY if that is set, else libcuda.so.1. Safe from any thread.
#pragma once

#include <cstddef>
#include <cstdint>

namespace ddp::collectives {

struct CudaContext;
struct CudaEvent;
struct CudaStream;

// Any other value is a failure, which get_error_string describes.
enum class CudaResult : std::int32_t { Success = 0, NotInitialized = 3, NoDevice = 100, NotReady = 600 };

constexpr unsigned kCudaNonBlockingStream = 1;  // neither waits for the legacy default stream nor makes it wait
constexpr unsigned kCudaEventWithoutTime = 2;   // cudaEventDisableTiming: cheaper

constexpr unsigned kCudaPortableMemory = 1;  // host memory that is pinned for all contexts

// CUstreamCaptureStatus, CUstreamCaptureMode
enum class CudaCapture : std::int32_t { None = 0, Active = 1, Invalidated = 2 };
enum class CudaCaptureMode : std::int32_t { Global = 0, ThreadLocal = 1, Relaxed = 2 };

struct CudaApi {
  CudaResult (*init)(unsigned flags);
  CudaResult (*get_error_string)(CudaResult, const char** text);
  CudaResult (*device_get_count)(int*);
  CudaResult (*device_get)(int* device, int ordinal);
  CudaResult (*primary_context_retain)(CudaContext**, int device);
  CudaResult (*primary_context_release)(int device);
  CudaResult (*context_push)(CudaContext*);
  CudaResult (*context_pop)(CudaContext**);
  CudaResult (*stream_create_with_priority)(CudaStream**, unsigned flags, int priority);
  CudaResult (*stream_destroy)(CudaStream*);
  CudaResult (*stream_synchronize)(CudaStream*);
  CudaResult (*stream_query)(CudaStream*);
  CudaResult (*context_synchronize)();
  CudaResult (*stream_wait_event)(CudaStream*, CudaEvent*, unsigned flags);
  CudaResult (*event_create)(CudaEvent**, unsigned flags);
  CudaResult (*event_destroy)(CudaEvent*);
  CudaResult (*event_record)(CudaEvent*, CudaStream*);
  CudaResult (*event_query)(CudaEvent*);
  // Captures of CUDA graphs. The first is null in drivers before CUDA 11.3.
  CudaResult (*stream_get_capture_info)(CudaStream*, CudaCapture*, std::uint64_t* id, void** graph,
                                        const void*** dependencies, std::size_t* dependency_count);
  CudaResult (*thread_exchange_capture_mode)(CudaCaptureMode*);
  CudaResult (*context_get_stream_priority_range)(int* least, int* greatest);
  CudaResult (*memory_allocate)(std::uint64_t* address, std::size_t);
  CudaResult (*memory_free)(std::uint64_t address);
  CudaResult (*host_memory_allocate)(void** memory, std::size_t, unsigned flags);
  CudaResult (*host_memory_free)(void* memory);
  CudaResult (*copy_to_device)(std::uint64_t to, const void* from, std::size_t, CudaStream*);
  CudaResult (*copy_to_host)(void* to, std::uint64_t from, std::size_t, CudaStream*);
  CudaResult (*copy_on_device)(std::uint64_t to, std::uint64_t from, std::size_t, CudaStream*);
  CudaResult (*set_bytes)(std::uint64_t address, unsigned char value, std::size_t, CudaStream*);
};

// Opens one library; throws rendezvous::Error.
CudaApi open_cuda(const char* path);
// Returns whether some code of this process has called cuInit(). Does not load the driver.
bool cuda_is_initialised();
// Returns the process's table, opened by the first call. Throws rendezvous::Error saying what to install.
const CudaApi& cuda_api();

}  // namespace ddp::collectives
