// SPDX-License-Identifier: BSD-3-Clause
// NCCL as a table of function pointers, filled from the library found at run time. So one libddp serves machines with
// and without NCCL, and tests can use a fake. The declarations are ours, in NCCL's binary layout; a test compares them
// with the real nccl.h where it is installed. Needs NCCL 2.14; functions that came later may be null.
//
// The library is $DDP_NCCL_LIBRARY if that is set, else libnccl.so.2 or libnccl.so. Safe from any thread.
#pragma once

#include <climits>
#include <cstddef>
#include <cstdint>

namespace ddp::collectives {

struct NcclCommunicator;  // opaque
struct CudaStream;        // opaque; cudaStream_t points to one
struct NcclWindow;        // opaque

// Any other value, of a later release, is a failure, which get_error_string describes.
enum class NcclResult : std::int32_t {
  Success = 0,
  UnhandledCudaError = 1,
  SystemError = 2,
  InternalError = 3,
  InvalidArgument = 4,
  InvalidUsage = 5,
  RemoteError = 6,
  InProgress = 7,
};

enum class NcclType : std::int32_t {
  Int8 = 0,
  UInt8 = 1,
  Int32 = 2,
  UInt32 = 3,
  Int64 = 4,
  UInt64 = 5,
  Float16 = 6,
  Float32 = 7,
  Float64 = 8,
  BFloat16 = 9,
};

// Larger values name reductions that red_op_create_pre_mul_sum has made.
enum class NcclReduction : std::int32_t { Sum = 0, Product = 1, Max = 2, Min = 3, Average = 4 };

enum class NcclScalarResidence : std::int32_t { Device = 0, HostImmediate = 1 };

struct NcclUniqueId {
  char bytes[128];
};

constexpr int kNcclUndefined = INT_MIN;
constexpr int kNcclNoColor = -1;
constexpr int kNcclSymmetricWindow = 1;  // operations use the memory at the same offset on all ranks

// The layout of NCCL 2.18. Later releases append fields; they read size and version and use defaults for missing
// fields.
struct NcclConfig {
  std::size_t size = sizeof(NcclConfig);
  unsigned magic = 0xcafebeef;
  unsigned version = 21800;
  int blocking = kNcclUndefined;
  int cga_cluster_size = kNcclUndefined;
  int min_ctas = kNcclUndefined;
  int max_ctas = kNcclUndefined;
  const char* net_name = nullptr;
  int split_share = kNcclUndefined;
};

struct NcclApi {
  using Comm = NcclCommunicator*;
  using Stream = CudaStream*;

  NcclResult (*get_version)(int* version);
  NcclResult (*get_unique_id)(NcclUniqueId*);
  NcclResult (*comm_init_rank_config)(Comm*, int size, NcclUniqueId, int rank, NcclConfig*);
  NcclResult (*comm_finalize)(Comm);
  NcclResult (*comm_destroy)(Comm);
  NcclResult (*comm_abort)(Comm);
  NcclResult (*comm_get_async_error)(Comm, NcclResult*);
  const char* (*get_error_string)(NcclResult);
  const char* (*get_last_error)(Comm);
  NcclResult (*group_start)();
  NcclResult (*group_end)();
  NcclResult (*red_op_create_pre_mul_sum)(NcclReduction*, void* scalar, NcclType, NcclScalarResidence, Comm);
  NcclResult (*red_op_destroy)(NcclReduction, Comm);
  NcclResult (*all_reduce)(const void* input, void* output, std::size_t, NcclType, NcclReduction, Comm, Stream);
  NcclResult (*reduce)(const void* input, void* output, std::size_t, NcclType, NcclReduction, int root, Comm, Stream);
  NcclResult (*broadcast)(const void* input, void* output, std::size_t, NcclType, int root, Comm, Stream);
  NcclResult (*all_gather)(const void* input, void* output, std::size_t, NcclType, Comm, Stream);
  NcclResult (*reduce_scatter)(const void* input, void* output, std::size_t, NcclType, NcclReduction, Comm, Stream);
  NcclResult (*send)(const void* data, std::size_t, NcclType, int peer, Comm, Stream);
  NcclResult (*receive)(void* data, std::size_t, NcclType, int peer, Comm, Stream);
  // What follows may be null.
  NcclResult (*comm_split)(Comm, int color, int key, Comm* child, NcclConfig*);  // since 2.18
  NcclResult (*memory_allocate)(void** memory, std::size_t);                     // this and the next three since 2.19
  NcclResult (*memory_free)(void* memory);
  NcclResult (*comm_register)(Comm, void* memory, std::size_t, void** handle);
  NcclResult (*comm_deregister)(Comm, void* handle);
  NcclResult (*comm_window_register)(Comm, void* memory, std::size_t, NcclWindow**, int flags);  // both since 2.27
  NcclResult (*comm_window_deregister)(Comm, NcclWindow*);
};

// Opens one library; throws rendezvous::Error.
NcclApi open_nccl(const char* path);
// Returns the process's table, opened by the first call. Throws rendezvous::Error saying what to install.
const NcclApi& nccl_api();

}  // namespace ddp::collectives
