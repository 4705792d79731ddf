// SPDX-License-Identifier: BSD-3-Clause
#include "collectives/gpu/nccl_memory.hpp"

#include <string>

#include "rendezvous/base/error.hpp"

namespace ddp::collectives {

NcclMemory::NcclMemory(const NcclApi& api, const CudaDevice& device, NcclGroup& group, std::size_t size)
    : api_(api), device_(device), group_(group), size_(size) {
  const CurrentDevice current(device_);
  const NcclResult result = api_.memory_allocate(&memory_, size_);
  if (result == NcclResult::Success) return;
  throw rendezvous::Error(rendezvous::ErrorCode::System,
                          "ncclMemAlloc of " + std::to_string(size_) + " bytes: " + api_.get_error_string(result));
}

NcclMemory::~NcclMemory() {
  if (group_.left_behind()) return;
  {
    const CurrentDevice current(device_);
    device_.api().context_synchronize();
  }
  group_.deregister(registered_);
  const CurrentDevice current(device_);
  api_.memory_free(memory_);
}

ddp_backend_status NcclMemory::register_with_group(NcclGroup::Registration wanted, const NcclGroup::Call& call) {
  return group_.register_memory(memory_, size_, wanted, registered_, call);
}

}  // namespace ddp::collectives
