// SPDX-License-Identifier: BSD-3-Clause
#include "launcher/process/bare_child.hpp"

#include <linux/sched.h>
#include <sys/utsname.h>

#include <csignal>
#include <cstdint>
#include <cstdio>

namespace ddp::launcher {

namespace {

#if defined(__x86_64__) && !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
constexpr bool kCanShare = true;

// The kernel starts the child at the instruction after the call, on an empty stack, so the child's
// part is assembly too.
pid_t clone_on_stack(const clone_args& request, void (*run)(const void*), const void* argument) {
  long result = SYS_clone3;
  asm volatile(
      "syscall\n\t"
      "test %%rax, %%rax\n\t"
      "jnz 1f\n\t"
      "mov %[argument], %%rdi\n\t"
      "call *%[run]\n\t"
      "ud2\n"
      "1:"
      : "+a"(result)
      : "D"(&request), "S"(sizeof request), [run] "r"(run), [argument] "r"(argument)
      : "rcx", "r11", "memory");
  if (result < 0) errno = static_cast<int>(-result);
  return result < 0 ? -1 : static_cast<pid_t>(result);
}
#else
constexpr bool kCanShare = false;

pid_t clone_on_stack(const clone_args&, void (*)(const void*), const void*) {
  errno = ENOSYS;
  return -1;
}
#endif

bool kernel_is_at_least(int major, int minor) {
  utsname names = {};
  int has_major = 0, has_minor = 0;
  if (uname(&names) != 0 || sscanf(names.release, "%d.%d", &has_major, &has_minor) != 2) return false;
  return has_major > major || (has_major == major && has_minor >= minor);
}

}  // namespace

pid_t start_bare_child(void (*run)(const void* argument), const void* argument, BareStack& stack, int cgroup_fd) {
  pid_t pid = start_bare_child_within(run, argument, stack, cgroup_fd);
  if (pid < 0 && errno != EAGAIN && errno != ENOMEM) pid = fork();  // fork() would fail for these reasons too
  if (pid == 0) run(argument);
  return pid;
}

pid_t start_bare_child_within(void (*run)(const void* argument), const void* argument, BareStack& stack,
                              int cgroup_fd) {
  static const bool shares = kCanShare && kernel_is_at_least(5, 16);
  clone_args request = {};
  request.exit_signal = SIGCHLD;
  if (cgroup_fd >= 0) {
    request.flags |= CLONE_INTO_CGROUP;
    request.cgroup = static_cast<unsigned>(cgroup_fd);
  }
  if (shares) {
    request.flags |= CLONE_VM;
    request.stack = reinterpret_cast<std::uint64_t>(stack.bytes);
    request.stack_size = sizeof stack.bytes;
    return clone_on_stack(request, run, argument);
  }
  const pid_t pid = cgroup_fd < 0 ? fork() : static_cast<pid_t>(syscall(SYS_clone3, &request, sizeof request));
  if (pid == 0) run(argument);
  return pid;
}

}  // namespace ddp::launcher
