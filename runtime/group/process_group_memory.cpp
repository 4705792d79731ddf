// SPDX-License-Identifier: BSD-3-Clause
// Memory for a group's buffers.
#include <limits>
#include <string>
#include <utility>

#include "collectives/backend_loader.hpp"
#include "runtime/group/process_group.hpp"

namespace ddp::runtime {

void* ProcessGroup::allocate(std::size_t bytes, Milliseconds timeout) {
  if (bytes > std::numeric_limits<std::size_t>::max() / 4)
    throw rendezvous::Error(rendezvous::ErrorCode::InvalidArgument,
                            "allocate: there is no memory of " + std::to_string(bytes) + " bytes");
  if (host_ && collectives::allocates(*config_.backend)) {
    void* memory = nullptr;
    run({.kind = OperationKind::Allocate, .data = &memory, .count = bytes}, timeout);
    return memory;
  }
  constexpr std::size_t kLine = 64;  // vectors of any processor are aligned at that
  auto memory = std::make_unique<unsigned char[]>(bytes + kLine);
  void* at = memory.get();
  std::size_t room = bytes + kLine;
  std::align(kLine, bytes, at, room);
  const std::lock_guard lock(mutex_);
  own_memory_[at] = std::move(memory);
  return at;
}

void ProcessGroup::free(void* memory) {
  {
    const std::lock_guard lock(mutex_);
    if (own_memory_.erase(memory) > 0 || !host_ || !collectives::allocates(*config_.backend)) return;
  }
  config_.backend->release(config_.connection, memory);
}

}  // namespace ddp::runtime
