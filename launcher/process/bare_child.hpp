// SPDX-License-Identifier: BSD-3-Clause
// A child process that shares its parent's memory until it executes a program or ends. vfork's does so too, but here
// the parent goes on meanwhile. fork() copies page tables that execve() throws away a moment later; for a small program
// that is a third of its start.
//
// The child is bare: errno, locks and symbols that are not bound yet are those of the thread that started it. So it
// only computes and makes kernel_call()s. What it reads, its stack included, stays as it is until it has executed a
// program or ended, and all signals are blocked where it is started.
#pragma once

#include <sys/syscall.h>
#include <sys/types.h>
#include <unistd.h>

#include <cerrno>
#include <cstddef>
#include <type_traits>

namespace ddp::launcher {

struct BareStack {
  BareStack() {}  // not cleared: most of it is never touched
  alignas(16) std::byte bytes[8192];
};

// Like fork(): the child's pid, or -1 and errno. The child runs `run`, which does not return, on `stack`, from its
// first moment in the control group whose folder is `cgroup_fd` (-1, or where that cannot be: in its parent's; to be
// moved there costs 10 ms). fork() takes its place where memory cannot be shared: under a sanitizer, on processors
// whose code nobody wrote, and before Linux 5.16, where a child that dumps core would end its parent.
pid_t start_bare_child(void (*run)(const void* argument), const void* argument, BareStack& stack, int cgroup_fd);
// In that control group or not at all.
pid_t start_bare_child_within(void (*run)(const void* argument), const void* argument, BareStack& stack, int cgroup_fd);

// A system call that leaves errno alone: its result, or the error as a negative number.
template <typename... Words>
long kernel_call(long number, Words... words);

// ---- how ----

namespace detail {

template <typename Word>
long as_word(Word word) {
  if constexpr (std::is_pointer_v<Word>) {
    return reinterpret_cast<long>(word);
  } else {
    return static_cast<long>(word);
  }
}

#if defined(__x86_64__)
inline long kernel_call(long number, long a = 0, long b = 0, long c = 0, long d = 0) {
  register long fourth asm("r10") = d;
  long result = number;
  asm volatile("syscall" : "+a"(result) : "D"(a), "S"(b), "d"(c), "r"(fourth) : "rcx", "r11", "memory");
  return result;
}
#else
inline long kernel_call(long number, long a = 0, long b = 0, long c = 0, long d = 0) {
  const long result = syscall(number, a, b, c, d);  // the child has an errno of its own, see start_bare_child
  return result < 0 ? -errno : result;
}
#endif

}  // namespace detail

template <typename... Words>
long kernel_call(long number, Words... words) {
  return detail::kernel_call(number, detail::as_word(words)...);
}

}  // namespace ddp::launcher
