// SPDX-License-Identifier: BSD-3-Clause
#include "launcher/process/spawner.hpp"

#include <fcntl.h>
#include <linux/close_range.h>
#include <poll.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstring>
#include <utility>

#include "launcher/process/bare_child.hpp"
#include "rendezvous/base/error.hpp"

namespace ddp::launcher {

struct ChildPlan {
  WorkerCommand command;
  int index;
  pid_t agent;
  int null_fd;
  int gate, agents_end, status;  // ends of the StartGate
  std::vector<char*> argv = {}, envp = {};
  BareStack stack = {};
};

namespace {

using rendezvous::Error;
using rendezvous::ErrorCode;
using rendezvous::system_error;

constexpr int kNeverRan = 127;
constexpr int kStuckAfterMs = 1000;
constexpr std::size_t kSignalSetSize = (_NSIG - 1) / 8;  // the kernel's sigset_t, not the C library's

std::vector<char*> pointers(const std::vector<std::string>& strings) {
  std::vector<char*> result;
  for (const std::string& s : strings) result.push_back(const_cast<char*>(s.c_str()));
  result.push_back(nullptr);
  return result;
}

// ---- From here to child_main(): code of a bare child, between clone and exec. ----

void reset_signals() {
  // Signals that ddprun's caller ignores (nohup's SIGHUP) stay ignored; SIGPIPE, which ddprun
  // ignores, does not.
  constexpr long kDefaults[8] = {};  // SIG_DFL as the kernel's struct sigaction; also an empty signal set
  kernel_call(SYS_rt_sigaction, SIGPIPE, kDefaults, 0, kSignalSetSize);
  kernel_call(SYS_rt_sigprocmask, SIG_SETMASK, kDefaults, 0, kSignalSetSize);
}

void close_on_exec_from(unsigned first) {
  if (kernel_call(SYS_close_range, first, ~0U, CLOSE_RANGE_CLOEXEC) == 0) return;
  rlimit limit = {};
  kernel_call(SYS_prlimit64, 0, RLIMIT_NOFILE, 0, &limit);  // before Linux 5.11: each one
  const unsigned end = static_cast<unsigned>(std::min<rlim_t>(limit.rlim_cur, 65536));
  for (unsigned fd = first; fd < end; ++fd) kernel_call(SYS_fcntl, fd, F_SETFD, FD_CLOEXEC);
}

void duplicate(int from, int to) {
  if (from != to) kernel_call(SYS_dup3, from, to, 0);
}

[[noreturn]] void child_exit() {
  while (true) kernel_call(SYS_exit_group, kNeverRan);
}

[[noreturn]] void child_give_up(const ChildPlan& plan, ExecFailure::Step step, long error) {
  const ExecFailure failure = {plan.index, step, static_cast<int>(-error)};
  kernel_call(SYS_write, plan.status, &failure, sizeof failure);
  child_exit();
}

[[noreturn]] void child_main(const ChildPlan& plan) {
  const WorkerCommand& command = plan.command;
  // A session of its own, which dies with the agent.
  kernel_call(SYS_close, plan.agents_end);
  kernel_call(SYS_setsid);
  kernel_call(SYS_prctl, PR_SET_PDEATHSIG, SIGKILL);
  if (kernel_call(SYS_getppid) != plan.agent) child_exit();  // the agent died before PDEATHSIG was set
  // What the agent starts may look into it where Yama lets only ancestors do so. Kernels without Yama refuse the call.
  kernel_call(SYS_prctl, PR_SET_PTRACER, plan.agent);
  // Its descriptors.
  duplicate(command.stdin_fd >= 0 ? command.stdin_fd : plan.null_fd, STDIN_FILENO);
  duplicate(command.stdout_fd, STDOUT_FILENO);
  duplicate(command.stderr_fd, STDERR_FILENO);
  close_on_exec_from(3);
  for (const int fd : command.kept_fds) kernel_call(SYS_fcntl, fd, F_SETFD, 0);
  // The gate.
  char go;
  long got;
  do {
    got = kernel_call(SYS_read, plan.gate, &go, 1);
  } while (got == -EINTR);
  if (got != 1) child_exit();
  // Its limits, CPUs and signals, and then its program.
  if (command.limits) {
    kernel_call(SYS_prlimit64, 0, RLIMIT_NOFILE, &command.limits->files, 0);
    kernel_call(SYS_prlimit64, 0, RLIMIT_NPROC, &command.limits->processes, 0);
  }
  // The system call takes masks that are longer than glibc's cpu_set_t.
  const std::vector<unsigned long>& cpus = command.cpus;
  if (!cpus.empty()) {
    const long error = kernel_call(SYS_sched_setaffinity, 0, cpus.size() * sizeof cpus[0], cpus.data());
    if (error < 0) child_give_up(plan, ExecFailure::Step::Bind, error);
  }
  reset_signals();
  const long error = kernel_call(SYS_execve, command.path.c_str(), plan.argv.data(), plan.envp.data());
  child_give_up(plan, ExecFailure::Step::Execute, error);
}

}  // namespace

Spawned::Spawned(std::vector<pid_t> pids, Descriptor status) : Spawned(std::move(pids), std::move(status), {}) {}

Spawned::Spawned(std::vector<pid_t> pids, Descriptor status, std::vector<std::unique_ptr<ChildPlan>> plans)
    : pids_(std::move(pids)), status_(std::move(status)), plans_(std::move(plans)) {}

Spawned::Spawned(Spawned&&) noexcept = default;

Spawned::~Spawned() {
  // Each worker has the other end of the status pipe open until it executes its program, so end of
  // file means that all have. A worker that is stuck there, in the kernel, must not delay the
  // caller's exit: then the plans are leaked, since it may still read its own.
  ExecFailure ignored;
  ssize_t size = plans_.empty() ? 0 : read(status_.get(), &ignored, sizeof ignored);
  pollfd more = {status_.get(), POLLIN, 0};
  while (size != 0 && (size > 0 || poll(&more, 1, kStuckAfterMs) > 0)) {
    size = read(status_.get(), &ignored, sizeof ignored);
  }
  for (std::unique_ptr<ChildPlan>& plan : plans_) {
    if (size != 0) static_cast<void>(plan.release());
  }
}

std::optional<ExecFailure> Spawned::exec_failure(int index) {
  ExecFailure failure;
  while (read(status_.get(), &failure, sizeof failure) == sizeof failure) failures_.push_back(failure);
  const auto found =
      std::find_if(failures_.begin(), failures_.end(), [&](const ExecFailure& f) { return f.index == index; });
  return found == failures_.end() ? std::nullopt : std::optional(*found);
}

Spawned spawn(std::vector<WorkerCommand> commands) {
  std::vector<std::unique_ptr<ChildPlan>> plans;
  StartGate gate;
  const Descriptor null(open("/dev/null", O_RDWR | O_CLOEXEC));
  if (!null) system_error("cannot open /dev/null");

  // Start a bare child for each command, until one cannot be started.
  sigset_t all, before;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &before);  // so that no signal handler of ddprun runs in a child
  std::vector<pid_t> pids;
  int fork_error = 0;
  for (std::size_t i = 0; i < commands.size() && fork_error == 0; ++i) {
    plans.emplace_back(new ChildPlan{std::move(commands[i]), static_cast<int>(i), getpid(), null.get(),
                                     gate.workers_end(), gate.agents_end(), gate.status_end()});
    ChildPlan& plan = *plans.back();
    plan.argv = pointers(plan.command.arguments);
    plan.envp = pointers(plan.command.environment);
    const auto run = [](const void* of_child) { child_main(*static_cast<const ChildPlan*>(of_child)); };
    const pid_t pid = start_bare_child(run, &plan, plan.stack, plan.command.cgroup_fd);
    if (pid < 0) fork_error = errno;
    if (pid > 0) pids.push_back(pid);
  }
  pthread_sigmask(SIG_SETMASK, &before, nullptr);

  // All or none: open the gate, or close it.
  if (fork_error != 0) {
    gate.close();
    for (const pid_t pid : pids) waitpid(pid, nullptr, 0);  // they find the gate closed and exit
    throw Error(ErrorCode::System, "cannot start worker " + std::to_string(pids.size()) + " of " +
                                       std::to_string(commands.size()) + ": fork: " + strerror(fork_error) + "; " +
                                       std::to_string(commands.size() - pids.size()) + " more were to start, and " +
                                       describe_process_limit() + "; a container's limit is its cgroup's pids.max");
  }
  Spawned spawned(std::move(pids), gate.take_status(), std::move(plans));
  try {
    gate.open(commands.size());
  } catch (...) {
    gate.close();
    throw;
  }
  return spawned;
}

}  // namespace ddp::launcher
