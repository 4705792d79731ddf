// SPDX-License-Identifier: BSD-3-Clause
// Starting threads inside somebody else's program: the user's signal handlers must run on the user's threads.
#pragma once

#include <pthread.h>

#include <thread>
#include <utility>

#include "rendezvous/base/asynchronous_signals.hpp"

namespace ddp::runtime {

// name: at most 15 characters, seen in top and gdb.
template <typename Body>
std::thread start_service_thread(const char* name, Body body) {
  const rendezvous::AsynchronousSignalsBlocked blocked;
  return std::thread([name, run = std::move(body)] {
    pthread_setname_np(pthread_self(), name);
    run();
  });
}

}  // namespace ddp::runtime
