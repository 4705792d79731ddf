// SPDX-License-Identifier: BSD-3-Clause
// Starting threads inside somebody else's program: the user's signal handlers must run on the user's threads.
#pragma once

#include <pthread.h>

#include <csignal>
#include <thread>
#include <utility>

namespace ddp::runtime {

// While it lives, threads started by this thread (Gloo's among them) are born with asynchronous signals blocked.
class AsynchronousSignalsBlocked {
 public:
  AsynchronousSignalsBlocked() {
    sigset_t blocked;
    sigfillset(&blocked);
    for (int fault : {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGTRAP, SIGABRT, SIGSYS}) sigdelset(&blocked, fault);
    pthread_sigmask(SIG_BLOCK, &blocked, &before_);
  }
  ~AsynchronousSignalsBlocked() { pthread_sigmask(SIG_SETMASK, &before_, nullptr); }
  AsynchronousSignalsBlocked(const AsynchronousSignalsBlocked&) = delete;
  AsynchronousSignalsBlocked& operator=(const AsynchronousSignalsBlocked&) = delete;

 private:
  sigset_t before_ = {};
};

// name: at most 15 characters, seen in top and gdb.
template <typename Body>
std::thread start_service_thread(const char* name, Body body) {
  const AsynchronousSignalsBlocked blocked;
  return std::thread([name, run = std::move(body)] {
    pthread_setname_np(pthread_self(), name);
    run();
  });
}

}  // namespace ddp::runtime
