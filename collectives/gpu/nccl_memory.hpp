// SPDX-License-Identifier: BSD-3-Clause
// Memory of one GPU that NCCL can know: ncclMemAlloc's, registered with a group's communicator or not. The end of a
// registration, of the memory, and of the communicator have an order, which this class keeps.
#pragma once

#include <cstddef>

#include "collectives/gpu/cuda_device.hpp"
#include "collectives/gpu/nccl_group.hpp"

namespace ddp::collectives {

class NcclMemory {
 public:
  // Throws rendezvous::Error{System} if there is no such memory. The group must live longer.
  NcclMemory(const NcclApi& api, const CudaDevice& device, NcclGroup& group, std::size_t size);
  // Waits for the work on the GPU, since freeing does not, and deregisters. Leaks the memory if NCCL did not return
  // from an abort.
  ~NcclMemory();
  NcclMemory(const NcclMemory&) = delete;
  NcclMemory& operator=(const NcclMemory&) = delete;

  void* get() const { return memory_; }
  NcclGroup::Registration registration() const { return registered_.kind; }
  // Collective; see NcclGroup.
  ddp_backend_status register_with_group(NcclGroup::Registration wanted, const NcclGroup::Call& call);

 private:
  const NcclApi& api_;
  const CudaDevice& device_;
  NcclGroup& group_;
  std::size_t size_;
  void* memory_ = nullptr;
  NcclGroup::Registered registered_;
};

}  // namespace ddp::collectives
