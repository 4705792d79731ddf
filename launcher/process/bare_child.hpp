// SPDX-License-Identifier: BSD-3-Clause
// A child process that shares its parent's memory until it executes a program or ends. A child of
// vfork() does so too, but there the parent waits, and here it goes on. fork() copies page tables
// that execve() throws away a moment later; for a small program that is a third of its start.
//
// The child is bare: it shares errno, locks and symbols that are not bound yet with the thread that
// started it. So it only computes and makes kernel_call()s. Whatever it reads, its stack included,
// must stay unchanged until it has executed a program or ended, and all signals must be blocked in
// the thread that starts it.
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

// Returns the child's pid, or -1 with the reason in errno, as fork() does. The child runs `run`,
// which must not return, on `stack`. It starts in the control group whose folder is `cgroup_fd`;
// with -1, or where the kernel cannot do that, it starts in its parent's group (moving it later
// costs 10 ms). fork() is used where memory cannot be shared: under a sanitizer, on processors
// other than x86-64, and before Linux 5.16, where a child that dumps core would end its parent.
pid_t start_bare_child(void (*run)(const void* argument), const void* argument, BareStack& stack, int cgroup_fd);
// As start_bare_child(), but fails if the child cannot start in that control group.
pid_t start_bare_child_within(void (*run)(const void* argument), const void* argument, BareStack& stack, int cgroup_fd);

// Makes a system call without touching errno. Returns its result, or the error as a negative
// number.
template <typename... Words>
long kernel_call(long number, Words... words);

// ---- Implementation ----

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
