// SPDX-License-Identifier: BSD-3-Clause
// Gloo's loop thread tries for a connection's lock, and if another thread has it, goes back to epoll_wait, which
// returns at once: the event is still there. If that other thread waits for the same CPU, the loop thread runs in
// circles until its time slice is over, milliseconds for each connection of a mesh; where ranks outnumber CPUs, most of
// what forming a group costs. So whoever finds a lock taken lets others run first.
//
// Gloo's call comes here because this module is opened with RTLD_DEEPBIND and exports the name: for libgloo, which is
// opened with it, and for nobody else in the process. Where it is not (under sanitizers, or if libgloo was there
// before), nothing changes.
#include <dlfcn.h>
#include <pthread.h>
#include <sched.h>

#include <cerrno>

extern "C" __attribute__((visibility("default"))) int pthread_mutex_trylock(pthread_mutex_t* mutex) noexcept {
  using TryLock = int (*)(pthread_mutex_t*);
  static const auto libc_trylock = reinterpret_cast<TryLock>(dlsym(RTLD_NEXT, "pthread_mutex_trylock"));
  const int result = libc_trylock(mutex);
  if (result == EBUSY) sched_yield();
  return result;
}
