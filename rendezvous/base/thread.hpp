// SPDX-License-Identifier: BSD-3-Clause
// Starts threads that leave the process's signals to the thread that had them before: in ddprun its signal loop, in a
// user's program the user's own threads.
#pragma once

#include <pthread.h>

#include <csignal>
#include <string>
#include <system_error>
#include <thread>
#include <utility>

#include "rendezvous/base/error.hpp"

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
// kernel keeps 15 characters of it. Throws std::system_error for lack of threads or memory, and Error{System} if the
// process may not start any.
template <typename Body>
std::thread start_thread(const char* name, Body body) {
  const AsynchronousSignalsBlocked blocked;
  try {
    return std::thread([name, run = std::move(body)]() mutable {
      pthread_setname_np(pthread_self(), name);
      run();
    });
  } catch (const std::system_error& error) {
    if (error.code() != std::errc::operation_not_permitted) throw;
    throw Error(ErrorCode::System, "cannot start the thread " + std::string(name) + ": " + error.code().message() +
                                       " (a seccomp filter that refuses clone3 must do so with ENOSYS, as Docker's "
                                       "does since 20.10.10: update the container runtime, or run the container with "
                                       "--security-opt seccomp=unconfined)");
  }
}

}  // namespace ddp::rendezvous
