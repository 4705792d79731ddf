// SPDX-License-Identifier: BSD-3-Clause
// One rank of an NCCL communicator: joins the other ranks through a store, gives operations to NCCL, which runs them on
// a stream in the order given, and leaves by finalize or by abort.
//
//     joining --all ranks have joined--> Ready --finalize, destroy--> gone
//                                          `---abort()--> Aborted: single-use, like every group
//
// NCCL's rules, which this class keeps:
//  * The communicator is non-blocking, since an abort would be unsafe otherwise. Any call may then return "in
//  progress";
//    until it is done, only polling its state or an abort is allowed. So a function here returns once NCCL has put the
//    operation on the stream; the first one may wait for the other ranks to call theirs.
//  * One thread at a time is inside NCCL with one communicator, and none while it is aborted.
//
// Threads: one at a time issues operations (they take CudaDevice::issuing()). poll_error() and abort() may be called
// from any thread.
#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <string>

#include "collectives/gpu/cuda_device.hpp"
#include "collectives/gpu/nccl_api.hpp"
#include "collectives/reduce_op.hpp"
#include "ddp/backend.h"

namespace ddp::collectives {

class NcclAbort;

class NcclGroup {
 public:
  using Deadline = std::chrono::steady_clock::time_point;

  struct Place {
    int rank = 0;
    int size = 1;
  };
  // The stream that an operation goes to, the deadline for putting it there, and where an error text goes.
  struct Call {
    CudaStream* stream;
    Deadline deadline;
    ddp_backend_error* error;
  };

  // What joining needs. The store is null in a group of one. Another thread ends the joining by setting `ended`.
  struct Joining {
    const ddp_backend_store* store = nullptr;
    Deadline deadline;
    const std::atomic<bool>* ended = nullptr;  // may be null
  };
  // Blocks until all ranks have joined. Throws rendezvous::Error with Timeout, PeerLost, Aborted or System.
  NcclGroup(const NcclApi& api, CudaDevice& device, Place place, const Joining& joining);
  ~NcclGroup();  // waits some seconds for operations in flight, unless the group was aborted
  NcclGroup(const NcclGroup&) = delete;
  NcclGroup& operator=(const NcclGroup&) = delete;

  bool can_split() const { return api_.comm_split != nullptr; }
  // Splits the group. Every rank of it must call this, if can_split(). Ranks with the same colour form a group, ordered
  // by key. Returns null for a negative colour.
  std::unique_ptr<NcclGroup> split(int color, int key, Place place, Deadline deadline);

  // Returns "" if NCCL has this reduction for this type, else what is missing and what to do instead.
  static std::string why_no_reduction(std::int32_t dtype, ReduceOp op);

  // Operations on device memory. Layouts are those of ddp_backend_table. A reduction that NCCL lacks returns
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

  // How NCCL knows a piece of memory, which then need not be copied on its way: not at all, as a buffer of each rank
  // (ncclCommRegister), or as a window of all ranks (ncclCommWindowRegister). All ranks or none use registered memory
  // in an operation, and at the same offset; else NCCL promises nothing.
  enum class Registration : std::uint8_t { None, Buffer, Window };
  struct Registered {
    Registration kind = Registration::None;
    void* handle = nullptr;
    std::uint64_t number = 0;  // counts this rank's registrations
  };
  // Returns the best one that this NCCL has.
  Registration best_registration() const;
  // Registers memory of ncclMemAlloc, which every rank of the group must do. The result is a buffer where the GPUs
  // cannot have a window, and None where NCCL registers nothing, such as with NCCL_LOCAL_REGISTER=0.
  ddp_backend_status register_memory(void* memory, std::size_t size, Registration wanted, Registered& result,
                                     const Call& call);
  // Ends a registration; no operation may use the memory any more. Does nothing after an abort, which has ended it.
  void deregister(const Registered& registered);
  // Returns a number that is equal on two ranks if both registered and deregistered memory of the same sizes in the
  // same order. Windows are at the same place on all ranks only then.
  std::uint64_t registration_history();
  // Returns whether NCCL did not return from an abort, so that kernels may still use memory. Waits for an abort that is
  // underway, at most for NcclAbort::kPatience.
  bool left_behind();

  // Returns the error that NCCL's own threads have found (ncclCommGetAsyncError). After one, operations in flight never
  // end.
  ddp_backend_status poll_error(ddp_backend_error* error);
  // Ends operations in flight, unfinished. Idempotent. NCCL's kernels end at once, but NCCL returns half a second
  // later, since its proxy thread looks that often. So this returns as soon as nothing_runs() does, and left_behind()
  // and the destructor wait for NCCL. Returns within seconds even if neither comes: then the result is false and the
  // communicator is leaked.
  bool abort(const std::function<bool()>& nothing_runs = {});
  // Returns the communicator for callers that use NCCL directly, or null once it is aborted.
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
  void note_registration(std::uint64_t event);
  ddp_backend_status to_status(NcclResult result, ddp_backend_error* error) const;

  const NcclApi& api_;
  CudaDevice& device_;
  Place place_;
  std::unique_ptr<DeviceMemory> word_;  // the element that a barrier reduces

  std::mutex mutex_;
  std::condition_variable left_;
  bool inside_ = false;  // a thread is inside NCCL with comm_
  bool aborted_ = false;
  bool left_behind_ = false;
  std::shared_ptr<NcclAbort> abort_;
  NcclCommunicator* comm_ = nullptr;
  // Where NCCL's threads put what they make, even if nobody waits for it any more.
  std::deque<NcclCommunicator*> children_;
  std::deque<NcclWindow*> windows_;
  std::uint64_t registrations_ = 0;
  std::uint64_t registration_history_ = 0;
};

}  // namespace ddp::collectives
