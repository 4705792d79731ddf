// SPDX-License-Identifier: BSD-3-Clause
// Groups in which a new process may take the place of a rank that died.
#include <sys/stat.h>

#include "collectives/backend_error.hpp"
#include "collectives/host/backend.hpp"
#include "runtime/group/process_group.hpp"

namespace ddp::runtime {

using rendezvous::Error;
using rendezvous::ErrorCode;
using rendezvous::system_error;

bool ProcessGroup::keeps_start() const { return collectives::keeps_start(*config_.connection); }

int ProcessGroup::memory_descriptor() const { return collectives::memory_descriptor(*config_.connection); }

std::uint64_t ProcessGroup::memory_number() const {
  struct stat facts = {};
  if (fstat(memory_descriptor(), &facts) == 0) return facts.st_ino;
  system_error(config_.name + ": the group's memory");
}

collectives::Position ProcessGroup::position() {
  Lock lock(mutex_);
  if (next_ > 1) execute_until(next_ - 1, Clock::now(), lock);
  return collectives::position(*config_.connection);
}

void ProcessGroup::catch_up(const collectives::Position& position) {
  Lock lock(mutex_);
  if (next_ > 1) execute_until(next_ - 1, Clock::now(), lock);
  collectives::BackendError error;
  if (collectives::catch_up(config_.connection, position, &error) == DDP_BACKEND_OK) return;
  throw Error(ErrorCode::Mismatch, config_.name + ": taking the place of rank " + std::to_string(config_.rank) +
                                       ", which died: " + error.text);
}

}  // namespace ddp::runtime
