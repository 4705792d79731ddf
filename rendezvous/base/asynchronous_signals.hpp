// SPDX-License-Identifier: BSD-3-Clause
// Starting threads inside somebody else's program: the user's signal handlers must run on the user's threads.
#pragma once

#include <pthread.h>

#include <csignal>

namespace ddp::rendezvous {

// While it lives, threads started by this thread are born with asynchronous signals blocked. So is this thread: hold it
// for the start alone, never while waiting for others, or the process cannot be stopped meanwhile.
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

}  // namespace ddp::rendezvous
