// SPDX-License-Identifier: BSD-3-Clause
// A failure of a worker on node "a", for tests that have to tell causes from consequences.
#pragma once

#include <chrono>

#include "rendezvous/link/messages.hpp"

namespace ddp::rendezvous {

// `ms` is the time of the failure. `already_exiting`: the worker was dying when the node noticed the first failure.
inline WorkerFailure failure_of(int rank, ExitStatus status, int ms, bool already_exiting = true) {
  WorkerFailure failure;
  failure.rank = failure.local_rank = rank;
  failure.host = "a";
  failure.status = status;
  failure.time = WallTime(std::chrono::milliseconds(ms));
  failure.already_exiting = already_exiting;
  return failure;
}

}  // namespace ddp::rendezvous
