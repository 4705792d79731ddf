// SPDX-License-Identifier: BSD-3-Clause
#include "collectives/gpu/nccl_api.hpp"

#include "rendezvous/base/shared_library.hpp"
#include "rendezvous/worker_contract.hpp"

namespace ddp::collectives {

using rendezvous::library_names;
using rendezvous::SharedLibrary;

namespace {

NcclApi nccl_table(const SharedLibrary& library) {
  NcclApi api = {};
  library.find("ncclGetVersion", api.get_version);
  library.find("ncclGetUniqueId", api.get_unique_id);
  library.find("ncclCommInitRankConfig", api.comm_init_rank_config);
  library.find("ncclCommFinalize", api.comm_finalize);
  library.find("ncclCommDestroy", api.comm_destroy);
  library.find("ncclCommAbort", api.comm_abort);
  library.find("ncclCommGetAsyncError", api.comm_get_async_error);
  library.find("ncclGetErrorString", api.get_error_string);
  library.find("ncclGetLastError", api.get_last_error);
  library.find("ncclGroupStart", api.group_start);
  library.find("ncclGroupEnd", api.group_end);
  library.find("ncclRedOpCreatePreMulSum", api.red_op_create_pre_mul_sum);
  library.find("ncclRedOpDestroy", api.red_op_destroy);
  library.find("ncclAllReduce", api.all_reduce);
  library.find("ncclReduce", api.reduce);
  library.find("ncclBroadcast", api.broadcast);
  library.find("ncclAllGather", api.all_gather);
  library.find("ncclReduceScatter", api.reduce_scatter);
  library.find("ncclSend", api.send);
  library.find("ncclRecv", api.receive);
  library.find_if_there("ncclCommSplit", api.comm_split);
  library.find_if_there("ncclMemAlloc", api.memory_allocate);
  library.find_if_there("ncclMemFree", api.memory_free);
  library.find_if_there("ncclCommRegister", api.comm_register);
  library.find_if_there("ncclCommDeregister", api.comm_deregister);
  library.find_if_there("ncclCommWindowRegister", api.comm_window_register);
  library.find_if_there("ncclCommWindowDeregister", api.comm_window_deregister);
  return api;
}

constexpr char kNcclAdvice[] = "install NCCL 2.14 or later, or set DDP_NCCL_LIBRARY to its file";

}  // namespace

NcclApi open_nccl(const char* path) { return nccl_table(SharedLibrary("NCCL", {path}, kNcclAdvice)); }

const NcclApi& nccl_api() {
  static const NcclApi api = nccl_table(SharedLibrary(
      "NCCL", library_names(rendezvous::contract::kNcclLibrary, {"libnccl.so.2", "libnccl.so"}), kNcclAdvice));
  return api;
}

}  // namespace ddp::collectives
