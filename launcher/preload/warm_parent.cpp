// SPDX-License-Identifier: BSD-3-Clause
#include "launcher/preload/warm_parent.hpp"

#include <fcntl.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <csignal>
#include <cstring>
#include <utility>

#include "launcher/placement/topology.hpp"
#include "launcher/preload/archives.hpp"
#include "launcher/preload/memory_file.hpp"
#include "launcher/process/job_cgroup.hpp"
#include "rendezvous/base/error.hpp"
#include "rendezvous/worker_contract.hpp"

namespace ddp::launcher {

namespace asio = rendezvous::asio;
namespace contract = rendezvous::contract;
using rendezvous::Error;
using rendezvous::ExitStatus;
using rendezvous::system_error;

namespace {

constexpr std::chrono::seconds kForksWithin(10);   // a fork usually takes 10 ms
constexpr std::chrono::seconds kEndsWithin(1);     // after it has closed its end of the socket
constexpr char kGuard[] = "raise SystemExit(78)";  // GUARD of warm_parent.py
constexpr int kGuardRan = 78;

constexpr char kNoMark[] = "0000000000000000";  // a worker overwrites it with its incarnation, of the same length

std::string number(unsigned long value) { return std::to_string(value); }

void append(std::string& words, const std::string& word) { words.append(word).push_back('\0'); }

// Returns the request that the parent reads: the number of workers, and for each its command line,
// environment and CPUs, each preceded by its length. Words end in NUL, which no word contains.
std::string encode(const std::vector<WorkerCommand>& commands) {
  std::string words;
  append(words, number(commands.size()));
  for (const WorkerCommand& command : commands) {
    for (const auto* list : {&command.arguments, &command.environment}) {
      append(words, number(list->size()));
      for (const std::string& word : *list) append(words, word);
    }
    std::vector<std::size_t> cpus;
    constexpr std::size_t kBits = 8 * sizeof command.cpus[0];
    for (std::size_t cpu = 0; cpu < command.cpus.size() * kBits; ++cpu) {
      if ((command.cpus[cpu / kBits] >> (cpu % kBits) & 1UL) != 0) cpus.push_back(cpu);
    }
    append(words, number(cpus.size()));
    for (const std::size_t cpu : cpus) append(words, number(cpu));
  }
  return words;
}

// Sends a byte and with it three descriptors. Does not wait: the parent is reading, so the socket
// has space, or the parent is gone.
void send_three(int socket, const std::array<int, 3>& fds) {
  char byte = 'f';
  iovec content = {&byte, 1};
  alignas(cmsghdr) char control[CMSG_SPACE(sizeof fds)] = {};
  msghdr message = {};
  message.msg_iov = &content;
  message.msg_iovlen = 1;
  message.msg_control = control;
  message.msg_controllen = sizeof control;
  cmsghdr* header = CMSG_FIRSTHDR(&message);
  header->cmsg_level = SOL_SOCKET;
  header->cmsg_type = SCM_RIGHTS;
  header->cmsg_len = CMSG_LEN(sizeof fds);
  memcpy(CMSG_DATA(header), fds.data(), sizeof fds);
  if (sendmsg(socket, &message, MSG_NOSIGNAL | MSG_DONTWAIT) != 1) {
    system_error("it cannot be sent a request");
  }
}

// Returns the command of the warm parent: the words with which a worker's command line begins, `-c
// GUARD`, and the rest of a worker's command line.
WorkerCommand parent_command(const LaunchConfig& config, Environment environment, const Limits& limits, int archive,
                             int socket) {
  const std::vector<std::string> worker = worker_command(config, 0);
  const std::vector<std::string> program(worker.begin() + 1, worker.end());

  // Python imports the archive's sitecustomize, which knows by kWarmParent what to do.
  std::string& path = environment[contract::kPythonPath];
  path = "/proc/self/fd/" + number(static_cast<unsigned long>(archive)) + (path.empty() ? "" : ":" + path);
  environment[contract::kWarmParent] = std::to_string(socket) + " " + number(program.size()) + " " + config.preload;
  environment[contract::kIncarnation] = kNoMark;

  // A worker's command, limits and CPUs, behind the guard.
  WorkerCommand command;
  command.path = config.program.path;
  command.arguments = {worker[0], "-u", "-c", kGuard};
  command.arguments.insert(command.arguments.end(), program.begin(), program.end());
  for (const auto& [name, value] : environment) command.environment.push_back(name + "=" + value);
  // Output of modules while they are imported belongs to no worker.
  command.stdout_fd = command.stderr_fd = STDERR_FILENO;
  command.limits = limits;
  if (config.workers == 1 && !config.bindings.empty()) command.cpus = to_mask(config.bindings[0].cpus);
  command.kept_fds = {archive, socket};
  return command;
}

}  // namespace

WarmParent::WarmParent(asio::io_context& io, const LaunchConfig& config, Environment environment, const Limits& limits,
                       Callbacks callbacks)
    : callbacks_(std::move(callbacks)), socket_(io), deadline_(io) {
  int ends[2];
  if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) != 0) {
    system_error("cannot make a socket to the warm parent");
  }
  socket_.assign(ends[0]);
  const Descriptor its_end(ends[1]);
  const Descriptor archive = memory_file("ddprun", warm_parent_archive());
  spawned_.emplace(spawn({parent_command(config, std::move(environment), limits, archive.get(), its_end.get())}));
  pid_ = spawned_->pids()[0];
  expect_within(config.preload_timeout, "it did not import " + config.preload);
  wait_for_messages();
}

void WarmParent::expect_within(std::chrono::seconds time, const std::string& what) {
  deadline_.expires_after(time);
  deadline_.async_wait([this, time, what](const auto& error) {
    if (!error) lose(what + " within " + std::to_string(time.count()) + " s");
  });
}

void WarmParent::wait_for_messages() {
  socket_.async_wait(asio::posix::stream_descriptor::wait_read, [this](const auto& error) {
    if (error) return;
    if (!read_messages()) return on_disconnect();
    if (state_ != State::Lost) wait_for_messages();
  });
}

// Handles the messages that have arrived. Returns false at the end of the connection.
bool WarmParent::read_messages() {
  char bytes[4096];
  const ssize_t got = recv(socket_.native_handle(), bytes, sizeof bytes, MSG_DONTWAIT);
  if (got <= 0) return got < 0 && (errno == EAGAIN || errno == EINTR);
  frames_.add({bytes, static_cast<std::size_t>(got)});
  while (state_ != State::Lost) {
    const auto next = frames_.next();
    if (std::holds_alternative<rendezvous::NeedMore>(next)) break;
    if (const auto* wrong = std::get_if<rendezvous::Malformed>(&next)) {
      lose("it sent " + wrong->why);
    } else {
      std::visit([this](const auto& message) { on_message(message); },
                 parent_message(std::get<rendezvous::Frame>(next)));
    }
  }
  return true;
}

void WarmParent::on_message(const ParentReady& ready) {
  if (state_ != State::Importing) return lose("it said twice that it is ready");
  state_ = State::Ready;
  deadline_.cancel();
  callbacks_.on_ready(ready.modules, ready.took);
}

void WarmParent::fork(std::vector<WorkerCommand> commands) {
  state_ = State::Forking;
  requested_ = std::move(commands);
  expect_within(kForksWithin, "it did not fork the workers");
  try {
    gate_.emplace();
    const Descriptor null(open("/dev/null", O_RDWR | O_CLOEXEC));
    const Descriptor words = memory_file("workers", encode(requested_));
    const int socket = socket_.native_handle();
    send_three(socket, {words.get(), gate_->workers_end(), gate_->status_end()});
    for (const WorkerCommand& command : requested_) {
      const int stdin_fd = command.stdin_fd >= 0 ? command.stdin_fd : null.get();
      send_three(socket, {stdin_fd, command.stdout_fd, command.stderr_fd});
    }
  } catch (const Error& error) {
    lose(error.what());
  }
}

void WarmParent::on_message(const ParentForked& forked) {
  if (state_ != State::Forking) return lose("it forked workers that nobody had asked for");
  std::vector<pid_t> pids = forked.pids;
  if (pids.size() != requested_.size()) return lose("it forked " + number(pids.size()) + " workers");
  deadline_.cancel();
  state_ = State::Ready;
  StartGate gate = std::move(*gate_);
  gate_.reset();
  const std::vector<WorkerCommand> commands = std::exchange(requested_, {});
  for (std::size_t i = 0; i < pids.size(); ++i) {
    if (commands[i].cgroup_fd >= 0) move_into(commands[i].cgroup_fd, pids[i]);
  }
  gate.open(pids.size());
  callbacks_.on_forked({std::move(pids), gate.take_status()});
}

// Runs when the parent has closed the connection. Usually it has ended, and note_reaped() follows.
void WarmParent::on_disconnect() { expect_within(kEndsWithin, "it left ddprun and did not end"); }

void WarmParent::note_reaped(pid_t pid, const ExitStatus& status) {
  if (pid != pid_) return;
  pid_ = 0;
  if (state_ != State::Lost) read_messages();  // what it sent before its end, such as why it gives up
  lose(how_it_ended(status));
}

std::string WarmParent::how_it_ended(const ExitStatus& status) {
  if (const auto failure = spawned_->exec_failure(0)) {
    return std::string("it cannot be executed: ") + strerror(failure->error);
  }
  const std::string when = state_ == State::Importing ? " during the import" : "";
  if (status == ExitStatus{.code = kGuardRan, .signal = 0} && state_ == State::Importing) {
    return "this Python does not import sitecustomize from where PYTHONPATH says (-I, -E or -S, a wrapper, or one "
           "older than 3)";
  }
  return "it " + describe(status) + when;
}

void WarmParent::lose(const std::string& why) {
  if (state_ == State::Lost) return;
  end();
  callbacks_.on_lost(why);
}

void WarmParent::end() {
  state_ = State::Lost;
  deadline_.cancel();
  socket_.cancel();
  gate_.reset();  // workers that wait at the gate exit
  if (pid_ != 0) kill(pid_, SIGKILL);
}

}  // namespace ddp::launcher
