// SPDX-License-Identifier: BSD-3-Clause
// One rank of an NCCL communicator: joins the others through a store, hands operations to NCCL, which runs them on a
// stream in the order given, and leaves in good order or by abort.
//
//     joining --all ranks are there--> Ready --finalize, destroy--> gone
//                                        `---abort()--> Aborted: single-use, like every group
//
// NCCL's rules, which this class keeps:
//  * The communicator is non-blocking, else an abort would be unsafe. Any call may then come back with "in progress",
//    and nothing but a look at its state (or an abort) is allowed until it is done. So a call here returns once NCCL
//    has put the operation on the stream; the first one may wait for the other ranks to call theirs.
//  * One thread at a time is inside NCCL with one communicator, and none while it is aborted.
//
// Threads: one at a time issues (CudaDevice::issuing() is taken here); poll_error() and abort() from any.
#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <string>

#include "collectives/backend.h"
#include "collectives/gpu/cuda_device.hpp"
#include "collectives/gpu/nccl_api.hpp"
#include "collectives/reduce_op.hpp"

namespace ddp::collectives {

class NcclGroup {
 public:
  using Deadline = std::chrono::steady_clock::time_point;

  struct Place {
    int rank = 0;
    int size = 1;
  };
  // Where and until when an operation is to be enqueued, and what becomes of an error.
  struct Call {
    CudaStream* stream;
    Deadline deadline;
    ddp_backend_error* error;
  };

  // How joining is done: the store is null in a group of one; true in `ended`, by another thread, ends it soon.
  struct Joining {
    const ddp_backend_store* store = nullptr;
    Deadline deadline;
    const std::atomic<bool>* ended = nullptr;  // or null
  };
  // Blocks until all ranks have joined. Throws rendezvous::Error: Timeout, PeerLost, Aborted, System.
  NcclGroup(const NcclApi& api, CudaDevice& device, Place place, const Joining& joining);
  ~NcclGroup();  // gives up what is in flight if the group was aborted, else waits for it for some seconds
  NcclGroup(const NcclGroup&) = delete;
  NcclGroup& operator=(const NcclGroup&) = delete;

  bool can_split() const { return api_.comm_split != nullptr; }
  // Every rank of this group calls it, if it can. Ranks of one colour form a group, ordered by key; a negative colour:
  // none, null.
  std::unique_ptr<NcclGroup> split(int color, int key, Place place, Deadline deadline);

  // Empty if NCCL has such a reduction of such elements; else what to do instead.
  static std::string why_no_reduction(std::int32_t dtype, ReduceOp op);

  // Operations on device memory; layouts as in ddp_backend_table. A reduction that NCCL has not is
  // DDP_BACKEND_UNSUPPORTED. `factor` is for WeightedSum.
  struct Reduction {
    ReduceOp op;
    double factor;
  };
  ddp_backend_status all_reduce(void* data, std::size_t count, std::int32_t dtype, Reduction reduction,
                                const Call& call);
  ddp_backend_status reduce(void* data, std::size_t count, std::int32_t dtype, Reduction reduction, int root,
                            const Call& call);
  ddp_backend_status broadcast(void* data, std::size_t count, std::int32_t dtype, int root, const Call& call);
  ddp_backend_status all_gather(const void* input, void* output, std::size_t count, std::int32_t dtype,
                                const Call& call);
  ddp_backend_status gather(const void* input, void* output, std::size_t count, std::int32_t dtype, int root,
                            const Call& call);
  ddp_backend_status scatter(const void* input, void* output, std::size_t count, std::int32_t dtype, int root,
                             const Call& call);
  ddp_backend_status reduce_scatter(const void* input, void* output, std::size_t count, std::int32_t dtype,
                                    Reduction reduction, const Call& call);
  ddp_backend_status all_to_all(const void* input, const std::size_t* input_counts, void* output,
                                const std::size_t* output_counts, std::int32_t dtype, const Call& call);
  ddp_backend_status send(const void* data, std::size_t count, std::int32_t dtype, int peer, const Call& call);
  ddp_backend_status receive(void* data, std::size_t count, std::int32_t dtype, int peer, const Call& call);
  ddp_backend_status barrier(const Call& call);

  // How the communicator is, as NCCL's own threads find it: not OK means that what is in flight will not end.
  ddp_backend_status poll_error(ddp_backend_error* error);
  // What is in flight ends, unfinished. Idempotent. Returns within seconds also if NCCL does not: false then, and the
  // communicator is left behind.
  bool abort();
  // For those who call NCCL themselves; null once aborted.
  NcclCommunicator* communicator();

 private:
  NcclGroup(const NcclApi& api, CudaDevice& device, Place place);
  void join(const Joining& joining);
  NcclUniqueId agree_on_id(const ddp_backend_store& store, Deadline deadline);
  void leave();
  bool enter();
  void exit();
  template <typename Function>
  ddp_backend_status enqueue(const Call& call, Function&& function);
  template <typename Function>
  ddp_backend_status in_one_group(const Call& call, Function&& function);
  template <typename Function>
  ddp_backend_status with_reduction(std::int32_t dtype, Reduction reduction, const Call& call, Function&& function);
  ddp_backend_status wait_until_ready(NcclResult result, Deadline deadline, ddp_backend_error* error,
                                      const std::atomic<bool>* ended = nullptr);
  ddp_backend_status to_status(NcclResult result, ddp_backend_error* error) const;

  const NcclApi& api_;
  CudaDevice& device_;
  Place place_;
  std::unique_ptr<DeviceMemory> word_;  // what a barrier reduces

  std::mutex mutex_;
  std::condition_variable left_;
  bool inside_ = false;  // a thread is in a call with comm_
  bool aborted_ = false;
  bool left_behind_ = false;
  NcclCommunicator* comm_ = nullptr;
};

}  // namespace ddp::collectives
