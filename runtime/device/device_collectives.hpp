// SPDX-License-Identifier: BSD-3-Clause
// Operations on the memory of one GPU over NCCL, for one group. They run on a stream of the group's own, so that
// kernels on the caller's stream continue meanwhile:
//
//     caller's stream  -- kernels --.------- more kernels -------.-- kernels that read the result --
//                                    \ start()                  / follow()
//     side stream                     '-- NCCL's -- done event '
//
// Threads: one at a time calls start(); the other functions may be called from any thread.
#pragma once

#include <atomic>
#include <chrono>
#include <memory>
#include <string>
#include <vector>

#include "collectives/gpu/cuda_device.hpp"
#include "collectives/gpu/nccl_group.hpp"
#include "ddp/backend.h"
#include "runtime/collective/operation.hpp"

namespace ddp::runtime {

class DeviceCollectives {
 public:
  using Deadline = std::chrono::steady_clock::time_point;
  using Event = std::unique_ptr<collectives::DeviceEvent>;

  DeviceCollectives(std::shared_ptr<collectives::CudaDevice> device, std::unique_ptr<collectives::NcclGroup> nccl,
                    GroupPlace place);
  ~DeviceCollectives();  // leaks the stream and the device if the communicator was leaked
  DeviceCollectives(const DeviceCollectives&) = delete;
  DeviceCollectives& operator=(const DeviceCollectives&) = delete;

  int device() const { return device_->index(); }
  const std::shared_ptr<collectives::CudaDevice>& gpu() const { return device_; }
  collectives::NcclGroup& nccl() { return *nccl_; }

  // Returns a number of the CUDA graph that is captured from the stream; 0 if none is. An operation that is started
  // from it then is not run but becomes a part of the graph.
  std::uint64_t capture_of(collectives::CudaStream* stream) const { return device_->capture_of(stream); }
  // Returns the number of the capture under way that has operations of this group; 0 if there is none.
  std::uint64_t own_capture() const { return device_->capture_of(side_->get()); }
  // Throws rendezvous::Error{InvalidArgument} for memory of another device and for what NCCL cannot do.
  void check(const Operation& operation) const;
  // Puts the operation on the side stream, after the work that is on `caller`, and returns. Creates `done` if it is
  // null. The group's first operation waits for the other ranks to start theirs.
  ddp_backend_status start(const Operation& operation, collectives::CudaStream* caller, Deadline deadline, Event& done,
                           ddp_backend_error* error);
  // Returns whether the operation has ended. A null event belongs to an operation that did not start.
  bool has_ended(const Event& done) const;
  // Makes work issued to `stream` from now on wait for the operation. The host does not wait.
  ddp_backend_status follow(collectives::CudaStream* stream, const Event& done, ddp_backend_error* error) const;
  // Makes the collectives of a subgroup of the ranks with one color. Every rank of the group must call it. `place` is
  // this rank's place in the subgroup. Returns null if color is negative or this NCCL cannot split. Throws
  // rendezvous::Error.
  std::unique_ptr<DeviceCollectives> split(int color, GroupPlace place, Deadline deadline);
  // Returns the error that NCCL has found meanwhile; see NcclGroup.
  ddp_backend_status poll_error(ddp_backend_error* error) { return nccl_->poll_error(error); }
  void abort();
  // Returns true if NCCL did not return from an abort.
  bool left_behind() const { return left_behind_; }

 private:
  ddp_backend_status enqueue(const Operation& operation, const collectives::NcclGroup::Call& call);

  std::shared_ptr<collectives::CudaDevice> device_;
  std::unique_ptr<collectives::SideStream> side_;
  std::unique_ptr<collectives::NcclGroup> nccl_;
  collectives::DeviceEvent made_;  // recorded on the caller's stream; used by one start at a time
  GroupPlace place_;
  std::vector<std::size_t> even_counts_;
  std::atomic<bool> left_behind_ = false;
};

}  // namespace ddp::runtime
