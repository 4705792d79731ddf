// SPDX-License-Identifier: BSD-3-Clause
#include "tests/runtime/job/job.hpp"

#include <arpa/inet.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <poll.h>
#include <sched.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <fstream>
#include <stdexcept>

extern char** environ;

namespace ddp::test {
namespace {

constexpr int kPatienceMs = 120'000;  // for one piece of output: only a hang takes that long

// Returns this process's environment without the variables that describe a job, plus `variables`.
std::vector<std::string> make_environment(const Variables& variables) {
  std::vector<std::string> result;
  for (char** entry = environ; *entry != nullptr; ++entry) {
    const std::string text = *entry;
    const std::string name = text.substr(0, text.find('='));
    if (!describes_a_job(name) && variables.count(name) == 0) result.push_back(text);
  }
  for (const auto& [name, value] : variables) result.push_back(name + "=" + value);
  return result;
}

std::vector<char*> pointers(std::vector<std::string>& texts) {
  std::vector<char*> result;
  for (std::string& text : texts) result.push_back(text.data());
  result.push_back(nullptr);
  return result;
}

}  // namespace

Job::Job(int size, const std::string& scenario, std::uint16_t port, bool agent_store, const Variables& more) {
  for (int rank = 0; rank < size; ++rank) {
    Variables variables = {{"RANK", std::to_string(rank)},
                           {"WORLD_SIZE", std::to_string(size)},
                           {"LOCAL_RANK", std::to_string(rank)},
                           {"LOCAL_WORLD_SIZE", std::to_string(size)},
                           {"MASTER_ADDR", "127.0.0.1"},
                           {"MASTER_PORT", std::to_string(port)},
                           {"TORCHELASTIC_USE_AGENT_STORE", agent_store ? "True" : "False"}};
    variables.insert(more.begin(), more.end());
    start({scenario}, variables);
  }
}

Job::~Job() {
  for (Process& p : processes_) {
    if (p.pid > 0) {
      ::kill(p.pid, SIGKILL);
      waitpid(p.pid, nullptr, 0);
    }
    if (p.output >= 0) close(p.output);
  }
}

pid_t Job::start(const std::vector<std::string>& arguments, const Variables& variables) {
  std::vector<std::string> argument_texts = {JOB_WORKER};
  argument_texts.insert(argument_texts.end(), arguments.begin(), arguments.end());
  std::vector<std::string> environment_texts = make_environment(variables);
  const std::vector<char*> argv = pointers(argument_texts);
  const std::vector<char*> envp = pointers(environment_texts);
  int ends[2];
  if (pipe2(ends, O_CLOEXEC) != 0) throw std::runtime_error("no pipe");
  const pid_t parent = getpid();
  const pid_t pid = fork();
  if (pid < 0) throw std::runtime_error("no fork");
  if (pid == 0) {
    prctl(PR_SET_PDEATHSIG, SIGKILL);  // so that a test that is killed leaves no process
    if (getppid() != parent) _exit(127);
    dup2(ends[1], STDOUT_FILENO);
    execve(argv[0], argv.data(), envp.data());
    _exit(127);
  }
  close(ends[1]);
  processes_.push_back({pid, ends[0], ""});
  return pid;
}

bool Job::read_more(Process& process) {
  pollfd ready = {process.output, POLLIN, 0};
  int n = poll(&ready, 1, kPatienceMs);
  if (n == 0) throw std::runtime_error("a worker is silent for too long; it said: " + process.read);
  char buffer[4096];
  const ssize_t got = ::read(process.output, buffer, sizeof(buffer));
  if (got > 0) process.read.append(buffer, static_cast<std::size_t>(got));
  return got > 0;
}

void Job::wait_for_line(std::size_t process, const std::string& line) {
  Process& p = processes_.at(process);
  while (("\n" + p.read).find("\n" + line + "\n") == std::string::npos) {
    if (!read_more(p)) throw std::runtime_error("a worker ended before it said \"" + line + "\"; it said: " + p.read);
  }
}

void Job::wait_until_asleep(std::size_t process) {
  const std::string pid = std::to_string(processes_.at(process).pid);
  for (;;) {
    std::ifstream file("/proc/" + pid + "/task/" + pid + "/stat");
    std::string stat;
    if (!std::getline(file, stat)) throw std::runtime_error("a worker that should sleep is gone");
    if (stat.compare(stat.rfind(')'), 3, ") S") == 0) return;
    sched_yield();
  }
}

void Job::kill(std::size_t process, int signal) { ::kill(processes_.at(process).pid, signal); }

Ended Job::finish(std::size_t process) {
  Process& p = processes_.at(process);
  while (read_more(p)) {
  }
  int status = 0;
  while (waitpid(p.pid, &status, 0) < 0 && errno == EINTR) {
  }
  p.pid = -1;
  return {WIFEXITED(status) ? WEXITSTATUS(status) : -1, WIFSIGNALED(status) ? WTERMSIG(status) : 0, p.read};
}

bool describes_a_job(const std::string& name) {
  for (const char* start : {"MASTER_", "LOCAL_", "TORCHELASTIC_", "SLURM_", "OMPI_", "PMI", "MPI_", "DDP_"}) {
    if (name.starts_with(start)) return true;
  }
  return name == "RANK" || name == "WORLD_SIZE" || name.ends_with("SOCKET_IFNAME");
}

std::uint16_t free_port() {
  const int probe = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  sockaddr_in address = {};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t length = sizeof(address);
  const bool bound = bind(probe, reinterpret_cast<sockaddr*>(&address), length) == 0 &&
                     getsockname(probe, reinterpret_cast<sockaddr*>(&address), &length) == 0;
  close(probe);
  if (!bound) throw std::runtime_error("no free port");
  return ntohs(address.sin_port);
}

bool no_child_left() { return waitpid(-1, nullptr, WNOHANG) == -1 && errno == ECHILD; }

}  // namespace ddp::test
