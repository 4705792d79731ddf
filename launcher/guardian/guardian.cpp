// SPDX-License-Identifier: BSD-3-Clause
#include "launcher/guardian/guardian.hpp"

#include <fcntl.h>
#include <poll.h>
#include <sys/prctl.h>
#include <sys/signalfd.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <termios.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <climits>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <optional>
#include <sstream>
#include <utility>
#include <vector>

#include "launcher/process/limits.hpp"
#include "launcher/process/process_tree.hpp"
#include "rendezvous/base/error.hpp"
#include "rendezvous/base/exit_code.hpp"
#include "rendezvous/base/pipe.hpp"

namespace ddp::launcher {

namespace {

using Clock = std::chrono::steady_clock;
using rendezvous::Descriptor;
using rendezvous::Pipe;

constexpr std::chrono::seconds kUnkillableAfter(10);
// For an agent that ended by itself: it has waited for its descendants already.
constexpr std::chrono::seconds kAfterItsOwnEnd(1);

// For the workers of an agent that does not run, until it is killed as well.
constexpr std::chrono::seconds kAgentMayStayFor(2);

// An agent that was killed sooner than this had a short life. After kMostShortLives of them in a row no other is
// started.
constexpr std::chrono::seconds kShortLife(10);
constexpr int kMostShortLives = 5;

constexpr char kKeeper[] = "jobkeeper";

// The settings of the terminal in whose foreground ddprun was started. A worker that has changed them (getpass, a
// debugger) and is killed cannot restore them.
class TerminalSettings {
 public:
  TerminalSettings() : are_known_(is_in_foreground() && tcgetattr(STDIN_FILENO, &before_) == 0) {}
  // Does nothing in the background, where they are those of the shell or another job.
  void restore() const {
    if (are_known_ && is_in_foreground()) tcsetattr(STDIN_FILENO, TCSANOW, &before_);
  }

 private:
  static bool is_in_foreground() { return tcgetpgrp(STDIN_FILENO) == getpgrp(); }

  termios before_ = {};
  bool are_known_;
};

pid_t fork_or_throw(const char* whom, const JobCgroup& cgroup) {
  const pid_t pid = fork();
  if (pid < 0) {
    const int error = errno;
    cgroup.remove(std::chrono::seconds(0));
    throw rendezvous::Error(rendezvous::ErrorCode::System, std::string("cannot fork ") + whom + ": " + strerror(error) +
                                                               ": " + describe_process_limit());
  }
  return pid;
}

// The process that started ddprun. Where the kernel has no pidfd (before Linux 5.3), it is looked for each second.
struct Starter {
  pid_t pid = 0;  // 0: nobody watches it
  Descriptor pidfd = {};

  static Starter watched(pid_t pid) { return {pid, Descriptor(static_cast<int>(syscall(SYS_pidfd_open, pid, 0)))}; }
  int look_every_ms() const { return pid == 0 || pidfd ? -1 : 1000; }
  bool has_ended() const { return pid != 0 && getppid() != pid; }
};

// What guardian (of the keeper) or keeper (of the agent) knows while it watches its one child.
struct Watch {
  const char* name;  // what messages call the child
  pid_t child;
  const JobCgroup& cgroup;
  Descriptor cleanup;  // other end of Guarded::cleanup_fd
  // The guardian only:
  std::vector<pid_t> strangers = {};  // children that it had before the job (inherited through exec, or as pid 1)
  OnTerminalStop on_stop = OnTerminalStop::GoOn;
  Starter starter = {};
  // The keeper only:
  pid_t guardian = 0;
  Descriptor alive = {};  // other end of Guarded::guardian_fd: closed when the guardian is gone
  const Deadman* deadman = nullptr;
  AroundAgent around = {};
  std::function<pid_t(int life)> start_agent = {};  // starts another agent; empty: this node ends with its agent
  int life = 1;                                     // number of the agent, from 1
  Clock::time_point agent_began = Clock::now();
  int short_lives = 0;  // agents in a row
};

void remove_cleanup_paths(const Descriptor& cleanup) {
  std::string paths;
  char buffer[PATH_MAX];
  ssize_t length;
  while ((length = read(cleanup.get(), buffer, sizeof buffer)) > 0)
    paths.append(buffer, static_cast<std::size_t>(length));
  std::istringstream list(paths);
  std::error_code ignored;
  for (std::string path; std::getline(list, path, '\0');) std::filesystem::remove_all(path, ignored);
}

int after_child(const Watch& watch, int status) {
  const bool by_itself = WIFEXITED(status);
  const auto ended = rendezvous::ExitStatus::of(status);
  std::vector<pid_t> left;
  if (!watch.cgroup.remove_if_empty()) watch.cgroup.kill();
  // While the keeper lives, the job's processes are reparented to it. So after a keeper that ended
  // by itself, children of the guardian are not the job's. An agent that gave up midway may leave
  // some to the keeper.
  if (!by_itself) left = kill_descendants_and_wait(kUnkillableAfter, watch.strangers);
  if (by_itself && watch.guardian != 0) left = kill_descendants_and_wait(kAfterItsOwnEnd);
  watch.cgroup.remove(kAfterItsOwnEnd);
  if (watch.around.after_agent && left.empty()) {
    watch.around.after_agent(describe(ended));
  }
  if (by_itself) return ended.code;
  remove_cleanup_paths(watch.cleanup);
  fprintf(stderr, "ddprun: its %s (pid %d) %s; all workers were killed\n", watch.name, watch.child,
          describe(ended).c_str());
  for (const pid_t pid : left) fprintf(stderr, "ddprun: process %d cannot be killed\n", pid);
  return rendezvous::exit_code({.first = ended});
}

std::vector<pid_t> sidecars_of(const Watch& watch) {
  return watch.around.supervisor ? watch.around.supervisor->pids() : std::vector<pid_t>();
}

// Starts another agent in the place of one that was killed, once nothing of it is left. Returns false if this node is
// to end with it.
bool replace_agent(Watch& watch, int status) {
  if (!watch.start_agent || WIFEXITED(status) || !watch.alive) return false;
  watch.short_lives = Clock::now() - watch.agent_began < kShortLife ? watch.short_lives + 1 : 0;
  if (watch.short_lives >= kMostShortLives) {
    fprintf(stderr, "ddprun: no other agent is started: %d in a row have lived for less than %d s\n", kMostShortLives,
            static_cast<int>(kShortLife.count()));
    return false;
  }
  if (!watch.cgroup.remove_if_empty()) watch.cgroup.kill();
  if (!kill_descendants_and_wait(kUnkillableAfter, sidecars_of(watch)).empty()) return false;
  watch.cgroup.remove(kAfterItsOwnEnd);
  const std::string how = describe(rendezvous::ExitStatus::of(status));
  if (watch.around.after_agent) watch.around.after_agent(how);
  remove_cleanup_paths(watch.cleanup);
  if (watch.deadman) watch.deadman->set(std::nullopt);
  fprintf(stderr, "ddprun: its agent (pid %d) %s; the workers of this node were killed, and another agent is started\n",
          watch.child, how.c_str());
  watch.agent_began = Clock::now();
  const pid_t next = watch.start_agent(++watch.life);
  if (next > 0) watch.child = next;
  return next > 0;
}

// Stops this process as the terminal asked. The kernel knows whether a shell could continue it:
// without one, this returns at once.
void stop_self() {
  sigset_t stop;
  sigemptyset(&stop);
  sigaddset(&stop, SIGTSTP);
  kill(getpid(), SIGTSTP);
  sigprocmask(SIG_UNBLOCK, &stop, nullptr);  // stops here, and continues here
  sigprocmask(SIG_BLOCK, &stop, nullptr);
}

// Kills the workers of an agent that does not run. The agent stays, so that it can say what happened once it goes on;
// unless it has something below it that cannot be killed from here.
void fence(const Watch& watch) {
  if (is_exiting(watch.child)) return;  // its end is noticed in a moment
  watch.cgroup.kill();
  const bool all_killed = kill_below(watch.child, kAgentMayStayFor);
  fprintf(stderr,
          "ddprun: the agent (pid %d) does not run (is it stopped?), and the other nodes go on without this one soon: "
          "its keeper has killed the workers of this node%s\n",
          watch.child, all_killed ? "" : ", and kills the agent, since some of them still live");
  if (!all_killed) kill(watch.child, SIGKILL);
}

// Waits until a signal is pending, the deadman has expired, or the starter has ended.
void wait_for_event(const Descriptor& signals, const Watch& watch) {
  const int fork_wait = watch.around.supervisor ? watch.around.supervisor->try_again() : -1;
  pollfd events[] = {{signals.get(), POLLIN, 0},
                     {watch.deadman ? watch.deadman->fd() : -1, POLLIN, 0},
                     {watch.starter.pidfd.get(), POLLIN, 0},
                     {watch.around.supervisor ? watch.around.supervisor->fd() : -1, POLLIN, 0}};
  poll(events, 4, fork_wait >= 0 ? fork_wait : watch.starter.look_every_ms());
}

// Ends the job as a SIGTERM does, if nobody is left who could.
void stop_without_starter(Watch& watch) {
  if (!watch.starter.has_ended()) return;
  fprintf(stderr, "ddprun: slurmstepd (pid %d), which had started it, is gone: stopping the workers\n",
          watch.starter.pid);
  watch.starter = {};
  kill(watch.child, SIGTERM);
}

int guard(Watch& watch) {
  const sigset_t signals = managed_signals();
  // A program that started ddprun may pass on the Ctrl-C that the terminal sends to both.
  const pid_t above = watch.guardian != 0 ? watch.guardian : getppid();
  const bool waits_for_more = watch.deadman || watch.starter.pid != 0;
  const Descriptor pending(waits_for_more ? signalfd(-1, &signals, SFD_CLOEXEC | SFD_NONBLOCK) : -1);
  DoubleSignal passed_on;
  while (true) {
    int status = 0;
    // As pid 1 or as a subreaper it also inherits other processes: reap every child that is dead.
    for (pid_t pid; (pid = waitpid(-1, &status, WNOHANG)) > 0;) {
      if (watch.around.supervisor && watch.around.supervisor->reap(pid, status)) continue;
      if (pid == watch.child) {
        if (replace_agent(watch, status)) continue;
        if (watch.around.before_end && WIFEXITED(status)) watch.around.before_end();
        return after_child(watch, status);
      }
      std::erase(watch.strangers, pid);
    }
    if (watch.alive && getppid() != watch.guardian) watch.alive.close();
    // SIGCHLD wakes this loop too. All other signals go to the child.
    siginfo_t info = {};
    if (pending) {
      wait_for_event(pending, watch);
      if (watch.deadman) watch.deadman->if_expired([&watch] { fence(watch); });
      stop_without_starter(watch);
      if (watch.around.supervisor) watch.around.supervisor->take_request({watch.alive.get(), pending.get()});
    }
    const timespec at_once = {};
    const int signal = pending ? sigtimedwait(&signals, &info, &at_once) : sigwaitinfo(&signals, &info);
    if (signal <= 0 || signal == SIGCHLD) continue;
    const bool from_above = info.si_pid == above;
    if (passed_on.came_the_other_way(signal, from_above)) continue;
    kill(watch.child, signal);
    if (signal == SIGTSTP && watch.on_stop == OnTerminalStop::Stop) {
      stop_self();
      kill(watch.child, SIGCONT);
    }
  }
}

}  // namespace

void Guarded::remove_if_killed(const std::string& path) const {
  if (write(cleanup_fd, path.c_str(), path.size() + 1) < 0) return;  // then it is left behind
}

sigset_t managed_signals() {
  sigset_t set;
  sigfillset(&set);
  for (const int keep : {SIGTTIN, SIGTTOU, SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGABRT, SIGTRAP, SIGSYS}) {
    sigdelset(&set, keep);
  }
  return set;
}

int run_guarded(const std::function<int(const Guarded&)>& agent, int workers, OnTerminalStop on_stop,
                StartedBy started_by, const AroundAgent& around) {
  // In the guardian.
  const TerminalSettings terminal;
  Pipe cleanup = rendezvous::make_pipe("to the agent", O_NONBLOCK);
  Pipe alive = rendezvous::make_pipe("to the agent");
  const Deadman deadman;
  std::vector<pid_t> strangers = children_of_self();
  prctl(PR_SET_CHILD_SUBREAPER, 1);
  const sigset_t signals = managed_signals();
  sigprocmask(SIG_BLOCK, &signals, nullptr);
  signal(SIGCHLD, SIG_DFL);  // a parent may have left it ignored, and then no child could be waited for
  JobCgroup cgroup = JobCgroup::choose();
  const Descriptor in_use = cgroup.make();  // all three hold it, until the last of them is gone
  const pid_t guardian = getpid();
  const pid_t starter = getppid();  // before workers run, and another process may have taken its place

  const pid_t keeper = fork_or_throw("the keeper", cgroup);
  if (keeper != 0) {
    alive = {};
    cleanup.write_end.close();
    const bool has_starter = started_by == StartedBy::Slurmstepd;
    Watch watch = {.name = "keeper",
                   .child = keeper,
                   .cgroup = cgroup,
                   .cleanup = std::move(cleanup.read_end),
                   .strangers = std::move(strangers),
                   .on_stop = on_stop,
                   .starter = has_starter ? Starter::watched(starter) : Starter()};
    const int code = guard(watch);
    if (code != 0) terminal.restore();
    if (around.at_end) around.at_end();
    return code;
  }

  // In the keeper.
  char own_name[16];
  prctl(PR_GET_NAME, own_name);
  prctl(PR_SET_NAME, kKeeper);
  // Leaves the terminal's foreground group: Ctrl-C reaches the guardian only, and the agent
  // receives it once.
  setsid();
  prctl(PR_SET_CHILD_SUBREAPER, 1);
  prctl(PR_SET_PDEATHSIG, SIGCHLD);  // only wakes sigwaitinfo()
  const pid_t pid = fork_or_throw("the agent", cgroup);
  const auto run_agent = [&](const JobCgroup& group, int life) {
    prctl(PR_SET_NAME, own_name);
    setsid();
    prctl(PR_SET_CHILD_SUBREAPER, 1);
    return agent({.guardian_fd = alive.read_end.release(),
                  .cleanup_fd = cleanup.write_end.get(),
                  .cgroup = group,
                  .deadman = deadman,
                  .life = life});
  };
  if (pid != 0) {
    rename_command_line(kKeeper);
    cgroup.prepare(workers);
    for (const JobCgroup::Ended& ended : cgroup.end_abandoned()) {
      fprintf(stderr, "ddprun: ended %d process%s that an earlier job left when all of its ddprun was killed (in %s)\n",
              ended.processes, ended.processes == 1 ? "" : "es", ended.path.c_str());
    }
    Watch watch = {.name = "agent",
                   .child = pid,
                   .cgroup = cgroup,
                   .cleanup = std::move(cleanup.read_end),
                   .guardian = guardian,
                   .alive = std::move(alive.write_end),
                   .deadman = &deadman,
                   .around = around};
    if (!around.supervisor) {
      alive.read_end.close();
      cleanup.write_end.close();
      return guard(watch);
    }
    // Later agents have no control groups: none is used twice.
    watch.start_agent = [&](int life) {
      const pid_t next = fork();
      if (next != 0) return next;
      watch.alive.close();
      exit(run_agent(JobCgroup(), life));
    };
    const int code = guard(watch);
    if (around.at_end) around.at_end();  // the guardian may be gone
    return code;
  }

  // In the agent.
  alive.write_end.close();
  cleanup.read_end.close();
  return run_agent(cgroup, 1);
}

void rename_command_line(const char* name) {
  std::ifstream file("/proc/self/cmdline", std::ios::binary);
  const auto length = std::distance(std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>());
  if (length <= 0) return;
  char* command_line = program_invocation_name;  // argv[0]; the other words follow it
  memset(command_line, 0, static_cast<std::size_t>(length));
  strncpy(command_line, name, static_cast<std::size_t>(length) - 1);
}

}  // namespace ddp::launcher
