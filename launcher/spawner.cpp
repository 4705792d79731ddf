// SPDX-License-Identifier: BSD-3-Clause
#include "launcher/spawner.hpp"

#include <fcntl.h>
#include <linux/close_range.h>
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

#include "launcher/job_cgroup.hpp"
#include "rendezvous/error.hpp"

namespace ddp::launcher {

namespace {

using rendezvous::Error;
using rendezvous::ErrorCode;

constexpr int kNeverRan = 127;

std::vector<char*> pointers(const std::vector<std::string>& strings) {
  std::vector<char*> result;
  for (const std::string& s : strings) result.push_back(const_cast<char*>(s.c_str()));
  result.push_back(nullptr);
  return result;
}

// ---- From here to enter(): the child between fork and exec; nothing that allocates or locks. ----

void reset_signals() {
  struct sigaction defaults = {};
  defaults.sa_handler = SIG_DFL;
  // What the user had ignored (nohup's SIGHUP) stays ignored; what ddprun itself ignores does not.
  sigaction(SIGPIPE, &defaults, nullptr);
  sigset_t none;
  sigemptyset(&none);
  sigprocmask(SIG_SETMASK, &none, nullptr);
}

void close_on_exec_from(unsigned first) {
  if (syscall(SYS_close_range, first, ~0U, CLOSE_RANGE_CLOEXEC) == 0) return;
  rlimit limit = {};
  getrlimit(RLIMIT_NOFILE, &limit);  // before Linux 5.11: one by one
  const unsigned end = static_cast<unsigned>(std::min<rlim_t>(limit.rlim_cur, 65536));
  for (unsigned fd = first; fd < end; ++fd) fcntl(static_cast<int>(fd), F_SETFD, FD_CLOEXEC);
}

[[noreturn]] void give_up(const StartGate& gate, const ExecFailure& failure) {
  ssize_t ignored = write(gate.status_end(), &failure, sizeof failure);
  (void)ignored;
  _exit(kNeverRan);
}

[[noreturn]] void enter(const WorkerCommand& command, int index, pid_t agent, int null_fd, StartGate& gate,
                        char* const* argv, char* const* envp) {
  gate.become_worker();
  setsid();
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (getppid() != agent) _exit(kNeverRan);  // it died before PDEATHSIG was set
  dup2(command.stdin_fd >= 0 ? command.stdin_fd : null_fd, STDIN_FILENO);
  dup2(command.stdout_fd, STDOUT_FILENO);
  dup2(command.stderr_fd, STDERR_FILENO);
  close_on_exec_from(3);
  for (const int fd : command.kept_fds) fcntl(fd, F_SETFD, 0);
  char go;
  ssize_t got;
  do {
    got = read(gate.workers_end(), &go, 1);
  } while (got < 0 && errno == EINTR);
  if (got != 1) _exit(kNeverRan);
  if (command.limits) {
    setrlimit(RLIMIT_NOFILE, &command.limits->files);
    setrlimit(RLIMIT_NPROC, &command.limits->processes);
  }
  // By number, for masks longer than glibc's cpu_set_t.
  const std::vector<unsigned long>& cpus = command.cpus;
  if (!cpus.empty() && syscall(SYS_sched_setaffinity, 0, cpus.size() * sizeof cpus[0], cpus.data()) != 0) {
    give_up(gate, {index, ExecFailure::Step::Bind, errno});
  }
  reset_signals();
  execve(command.path.c_str(), argv, envp);
  give_up(gate, {index, ExecFailure::Step::Execute, errno});
}

}  // namespace

std::optional<ExecFailure> Spawned::exec_failure(int index) {
  ExecFailure failure;
  while (read(status_.get(), &failure, sizeof failure) == sizeof failure) failures_.push_back(failure);
  const auto found =
      std::find_if(failures_.begin(), failures_.end(), [&](const ExecFailure& f) { return f.index == index; });
  return found == failures_.end() ? std::nullopt : std::optional(*found);
}

Spawned spawn(const std::vector<WorkerCommand>& commands) {
  StartGate gate;
  const Descriptor null(open("/dev/null", O_RDWR | O_CLOEXEC));
  if (!null) throw Error(ErrorCode::System, std::string("cannot open /dev/null: ") + strerror(errno));
  const pid_t agent = getpid();

  sigset_t all, before;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &before);  // no handler of ours runs in a child
  std::vector<pid_t> pids;
  int fork_error = 0;
  for (std::size_t i = 0; i < commands.size(); ++i) {
    const std::vector<char*> argv = pointers(commands[i].arguments);
    const std::vector<char*> envp = pointers(commands[i].environment);
    const pid_t pid = commands[i].cgroup_fd < 0 ? fork() : fork_into(commands[i].cgroup_fd);
    if (pid == 0) {
      enter(commands[i], static_cast<int>(i), agent, null.get(), gate, argv.data(), envp.data());
    }
    if (pid < 0) {
      fork_error = errno;
      break;
    }
    pids.push_back(pid);
  }
  pthread_sigmask(SIG_SETMASK, &before, nullptr);

  if (fork_error != 0) {
    gate.close();
    for (const pid_t pid : pids) waitpid(pid, nullptr, 0);  // they find the gate closed and leave
    throw Error(ErrorCode::System, "cannot start worker " + std::to_string(pids.size()) + " of " +
                                       std::to_string(commands.size()) + ": fork: " + strerror(fork_error) + "; " +
                                       std::to_string(commands.size() - pids.size()) + " more were to start, and " +
                                       process_limit_in_words() + "; a container's limit is its cgroup's pids.max");
  }
  gate.open(commands.size());
  return {std::move(pids), gate.take_status()};
}

}  // namespace ddp::launcher
