// SPDX-License-Identifier: BSD-3-Clause
// Compares our declarations of NCCL and the CUDA driver with the real headers; the test is that this file compiles.
#include <cuda.h>
#include <nccl.h>

#include <cstddef>

#include "collectives/gpu/cuda_api.hpp"
#include "collectives/gpu/nccl_api.hpp"
#include "tests/support/called_alike.hpp"

using namespace ddp::collectives;

namespace {

#define SAME_NUMBER(ours, real) static_assert(static_cast<int>(ours) == static_cast<int>(real), #real)
#define SAME_PLACE(ours, real) static_assert(offsetof(NcclConfig, ours) == offsetof(ncclConfig_t, real), #real)

CALLED_ALIKE(NcclApi, get_version, ncclGetVersion);
CALLED_ALIKE(NcclApi, get_unique_id, ncclGetUniqueId);
CALLED_ALIKE(NcclApi, comm_init_rank_config, ncclCommInitRankConfig);
CALLED_ALIKE(NcclApi, comm_finalize, ncclCommFinalize);
CALLED_ALIKE(NcclApi, comm_destroy, ncclCommDestroy);
CALLED_ALIKE(NcclApi, comm_abort, ncclCommAbort);
CALLED_ALIKE(NcclApi, comm_get_async_error, ncclCommGetAsyncError);
CALLED_ALIKE(NcclApi, get_error_string, ncclGetErrorString);
CALLED_ALIKE(NcclApi, get_last_error, ncclGetLastError);
CALLED_ALIKE(NcclApi, group_start, ncclGroupStart);
CALLED_ALIKE(NcclApi, group_end, ncclGroupEnd);
CALLED_ALIKE(NcclApi, red_op_create_pre_mul_sum, ncclRedOpCreatePreMulSum);
CALLED_ALIKE(NcclApi, red_op_destroy, ncclRedOpDestroy);
CALLED_ALIKE(NcclApi, all_reduce, ncclAllReduce);
CALLED_ALIKE(NcclApi, reduce, ncclReduce);
CALLED_ALIKE(NcclApi, broadcast, ncclBroadcast);
CALLED_ALIKE(NcclApi, all_gather, ncclAllGather);
CALLED_ALIKE(NcclApi, reduce_scatter, ncclReduceScatter);
CALLED_ALIKE(NcclApi, send, ncclSend);
CALLED_ALIKE(NcclApi, receive, ncclRecv);
CALLED_ALIKE(NcclApi, comm_split, ncclCommSplit);
#if NCCL_VERSION_CODE >= NCCL_VERSION(2, 19, 3)
CALLED_ALIKE(NcclApi, memory_allocate, ncclMemAlloc);
CALLED_ALIKE(NcclApi, memory_free, ncclMemFree);
CALLED_ALIKE(NcclApi, comm_register, ncclCommRegister);
CALLED_ALIKE(NcclApi, comm_deregister, ncclCommDeregister);
#endif
#if NCCL_VERSION_CODE >= NCCL_VERSION(2, 27, 3)
CALLED_ALIKE(NcclApi, comm_window_register, ncclCommWindowRegister);
CALLED_ALIKE(NcclApi, comm_window_deregister, ncclCommWindowDeregister);
SAME_NUMBER(kNcclSymmetricWindow, NCCL_WIN_COLL_SYMMETRIC);
#endif

SAME_NUMBER(NcclResult::Success, ncclSuccess);
SAME_NUMBER(NcclResult::UnhandledCudaError, ncclUnhandledCudaError);
SAME_NUMBER(NcclResult::SystemError, ncclSystemError);
SAME_NUMBER(NcclResult::InternalError, ncclInternalError);
SAME_NUMBER(NcclResult::InvalidArgument, ncclInvalidArgument);
SAME_NUMBER(NcclResult::InvalidUsage, ncclInvalidUsage);
SAME_NUMBER(NcclResult::RemoteError, ncclRemoteError);
SAME_NUMBER(NcclResult::InProgress, ncclInProgress);
SAME_NUMBER(NcclType::Int8, ncclInt8);
SAME_NUMBER(NcclType::UInt8, ncclUint8);
SAME_NUMBER(NcclType::Int32, ncclInt32);
SAME_NUMBER(NcclType::UInt32, ncclUint32);
SAME_NUMBER(NcclType::Int64, ncclInt64);
SAME_NUMBER(NcclType::UInt64, ncclUint64);
SAME_NUMBER(NcclType::Float16, ncclFloat16);
SAME_NUMBER(NcclType::Float32, ncclFloat32);
SAME_NUMBER(NcclType::Float64, ncclFloat64);
SAME_NUMBER(NcclType::BFloat16, ncclBfloat16);
SAME_NUMBER(NcclReduction::Sum, ncclSum);
SAME_NUMBER(NcclReduction::Product, ncclProd);
SAME_NUMBER(NcclReduction::Max, ncclMax);
SAME_NUMBER(NcclReduction::Min, ncclMin);
SAME_NUMBER(NcclReduction::Average, ncclAvg);
SAME_NUMBER(NcclScalarResidence::Device, ncclScalarDevice);
SAME_NUMBER(NcclScalarResidence::HostImmediate, ncclScalarHostImmediate);
SAME_NUMBER(kNcclUndefined, NCCL_CONFIG_UNDEF_INT);
SAME_NUMBER(kNcclNoColor, NCCL_SPLIT_NOCOLOR);
static_assert(sizeof(NcclUniqueId) == sizeof(ncclUniqueId));

// Our layout is the beginning of the layout of every later release.
static_assert(sizeof(NcclConfig) <= sizeof(ncclConfig_t));
SAME_PLACE(size, size);
SAME_PLACE(magic, magic);
SAME_PLACE(version, version);
SAME_PLACE(blocking, blocking);
SAME_PLACE(cga_cluster_size, cgaClusterSize);
SAME_PLACE(min_ctas, minCTAs);
SAME_PLACE(max_ctas, maxCTAs);
SAME_PLACE(net_name, netName);
SAME_PLACE(split_share, splitShare);
static_assert(NcclConfig{}.magic == ncclConfig_t NCCL_CONFIG_INITIALIZER.magic);

CALLED_ALIKE(CudaApi, init, cuInit);
CALLED_ALIKE(CudaApi, get_error_string, cuGetErrorString);
CALLED_ALIKE(CudaApi, device_get_count, cuDeviceGetCount);
CALLED_ALIKE(CudaApi, device_get, cuDeviceGet);
CALLED_ALIKE(CudaApi, primary_context_retain, cuDevicePrimaryCtxRetain);
CALLED_ALIKE(CudaApi, primary_context_release, cuDevicePrimaryCtxRelease);
CALLED_ALIKE(CudaApi, context_push, cuCtxPushCurrent);
CALLED_ALIKE(CudaApi, context_pop, cuCtxPopCurrent);
CALLED_ALIKE(CudaApi, stream_create_with_priority, cuStreamCreateWithPriority);
CALLED_ALIKE(CudaApi, stream_destroy, cuStreamDestroy);
CALLED_ALIKE(CudaApi, stream_synchronize, cuStreamSynchronize);
CALLED_ALIKE(CudaApi, context_synchronize, cuCtxSynchronize);
CALLED_ALIKE(CudaApi, stream_wait_event, cuStreamWaitEvent);
CALLED_ALIKE(CudaApi, event_create, cuEventCreate);
CALLED_ALIKE(CudaApi, event_destroy, cuEventDestroy);
CALLED_ALIKE(CudaApi, event_record, cuEventRecord);
CALLED_ALIKE(CudaApi, event_query, cuEventQuery);
CALLED_ALIKE(CudaApi, context_get_stream_priority_range, cuCtxGetStreamPriorityRange);
CALLED_ALIKE(CudaApi, memory_allocate, cuMemAlloc);
CALLED_ALIKE(CudaApi, memory_free, cuMemFree);
CALLED_ALIKE(CudaApi, thread_exchange_capture_mode, cuThreadExchangeStreamCaptureMode);
CALLED_ALIKE(CudaApi, host_memory_allocate, cuMemHostAlloc);
CALLED_ALIKE(CudaApi, host_memory_free, cuMemFreeHost);
CALLED_ALIKE(CudaApi, copy_to_device, cuMemcpyHtoDAsync);
CALLED_ALIKE(CudaApi, copy_to_host, cuMemcpyDtoHAsync);
CALLED_ALIKE(CudaApi, copy_on_device, cuMemcpyDtoDAsync);
CALLED_ALIKE(CudaApi, set_bytes, cuMemsetD8Async);
SAME_NUMBER(CudaResult::Success, CUDA_SUCCESS);
SAME_NUMBER(CudaResult::NotInitialized, CUDA_ERROR_NOT_INITIALIZED);
SAME_NUMBER(CudaResult::NoDevice, CUDA_ERROR_NO_DEVICE);
SAME_NUMBER(CudaResult::NotReady, CUDA_ERROR_NOT_READY);
SAME_NUMBER(kCudaNonBlockingStream, CU_STREAM_NON_BLOCKING);
SAME_NUMBER(CudaCapture::Active, CU_STREAM_CAPTURE_STATUS_ACTIVE);
SAME_NUMBER(CudaCapture::Invalidated, CU_STREAM_CAPTURE_STATUS_INVALIDATED);
SAME_NUMBER(CudaCaptureMode::ThreadLocal, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL);
SAME_NUMBER(CudaCaptureMode::Relaxed, CU_STREAM_CAPTURE_MODE_RELAXED);
SAME_NUMBER(kCudaPortableMemory, CU_MEMHOSTALLOC_PORTABLE);
SAME_NUMBER(kCudaEventWithoutTime, CU_EVENT_DISABLE_TIMING);

// cuda.h maps these names to those that cuda_api.cpp looks up.
#define NAME_OF(call) NAME_OF_EXPANDED(call)
#define NAME_OF_EXPANDED(call) #call
constexpr bool same_text(const char* a, const char* b) {
  while (*a != '\0' && *a == *b) ++a, ++b;
  return *a == *b;
}
static_assert(same_text(NAME_OF(cuDevicePrimaryCtxRelease), "cuDevicePrimaryCtxRelease_v2"));
static_assert(same_text(NAME_OF(cuCtxPushCurrent), "cuCtxPushCurrent_v2"));
static_assert(same_text(NAME_OF(cuCtxPopCurrent), "cuCtxPopCurrent_v2"));
static_assert(same_text(NAME_OF(cuStreamDestroy), "cuStreamDestroy_v2"));
static_assert(same_text(NAME_OF(cuEventDestroy), "cuEventDestroy_v2"));
static_assert(same_text(NAME_OF(cuMemAlloc), "cuMemAlloc_v2"));
static_assert(same_text(NAME_OF(cuMemFree), "cuMemFree_v2"));
static_assert(same_text(NAME_OF(cuEventRecord), "cuEventRecord"));
static_assert(same_text(NAME_OF(cuStreamWaitEvent), "cuStreamWaitEvent"));

}  // namespace
