// SPDX-License-Identifier: BSD-3-Clause
// Starts threads that leave the process's signals to the thread that had them before: in ddprun its signal loop, in a
// user's program the user's own threads.
#pragma once

#include <pthread.h>

#include <csignal>
#include <thread>
#include <utility>

namespace ddp::rendezvous {

// Blocks asynchronous signals in the calling thread while it lives, so that threads started meanwhile inherit the mask.
// Signals of the thread's own faults (SIGSEGV, ...) stay open. Hold it only while the thread is started: a process that
// waits with this mask does not react to SIGTERM.
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

// Returns a started thread that runs `body` with asynchronous signals blocked. `name` appears in top and gdb; the
// kernel keeps 15 characters of it.
template <typename Body>
std::thread start_thread(const char* name, Body body) {
  const AsynchronousSignalsBlocked blocked;
  return std::thread([name, run = std::move(body)]() mutable {
    pthread_setname_np(pthread_self(), name);
    run();
  });
}

}  // namespace ddp::rendezvous
