// SPDX-License-Identifier: BSD-3-Clause
// Operations on the memory of one GPU over NCCL, for one group. They run on a stream of the group's own, beside the
// caller's, so that his kernels go on meanwhile:
//
//     caller's stream  -- kernels --.------- more kernels -------.-- kernels that read the result --
//                                    \ start()                  / follow()
//     side stream                     '-- NCCL's -- done event '
//
// Threads: one at a time starts; the rest from any.
#pragma once

#include <atomic>
#include <chrono>
#include <memory>
#include <string>
#include <vector>

#include "collectives/backend.h"
#include "collectives/gpu/cuda_device.hpp"
#include "collectives/gpu/nccl_group.hpp"
#include "runtime/collective/operation.hpp"

namespace ddp::runtime {

class DeviceCollectives {
 public:
  using Deadline = std::chrono::steady_clock::time_point;
  using Event = std::unique_ptr<collectives::DeviceEvent>;

  DeviceCollectives(std::shared_ptr<collectives::CudaDevice> device, std::unique_ptr<collectives::NcclGroup> nccl,
                    GroupPlace place);
  ~DeviceCollectives();  // a communicator that is left behind keeps its stream and its device
  DeviceCollectives(const DeviceCollectives&) = delete;
  DeviceCollectives& operator=(const DeviceCollectives&) = delete;

  int device() const { return device_->index(); }
  const std::shared_ptr<collectives::CudaDevice>& gpu() const { return device_; }
  collectives::NcclGroup& nccl() { return *nccl_; }

  // What NCCL cannot do, and memory of another device: throws rendezvous::Error{InvalidArgument}.
  void check(const Operation& operation) const;
  // Returns once the operation is on the side stream, behind what is on `caller`; `done` is made if it is null. The
  // group's first operation waits for the other ranks to start theirs.
  ddp_backend_status start(const Operation& operation, collectives::CudaStream* caller, Deadline deadline, Event& done,
                           ddp_backend_error* error);
  // Null is an operation that did not start.
  bool has_ended(const Event& done) const;
  // What comes on `stream` from now on waits for the operation; the host does not.
  ddp_backend_status follow(collectives::CudaStream* stream, const Event& done, ddp_backend_error* error) const;
  // For the ranks of one color; every rank of the group calls it. place: of this rank in the part. Null: color is
  // negative, or this NCCL cannot split. Throws rendezvous::Error.
  std::unique_ptr<DeviceCollectives> split(int color, GroupPlace place, Deadline deadline);
  // How the communicator is; see NcclGroup.
  ddp_backend_status poll_error(ddp_backend_error* error) { return nccl_->poll_error(error); }
  void abort();
  // NCCL did not come back from an abort.
  bool left_behind() const { return left_behind_; }

 private:
  ddp_backend_status enqueue(const Operation& operation, const collectives::NcclGroup::Call& call);

  std::shared_ptr<collectives::CudaDevice> device_;
  std::unique_ptr<collectives::SideStream> side_;
  std::unique_ptr<collectives::NcclGroup> nccl_;
  collectives::DeviceEvent made_;  // by what was on the caller's stream; used by one start at a time
  GroupPlace place_;
  std::vector<std::size_t> even_counts_;
  std::atomic<bool> left_behind_ = false;
};

}  // namespace ddp::runtime
