// SPDX-License-Identifier: BSD-3-Clause
#include "launcher/diagnosis/stack_helper.hpp"

#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <map>
#include <sstream>
#include <utility>

#include "launcher/diagnosis/stacks/stack_json.hpp"
#include "launcher/diagnosis/stacks/take_stacks.hpp"
#include "rendezvous/base/error.hpp"
#include "rendezvous/base/pipe.hpp"
#include "rendezvous/base/text.hpp"
#include "rendezvous/machine/process_folder.hpp"

namespace ddp::launcher {
namespace {

constexpr char kSelf[] = "/proc/self/exe";
constexpr unsigned kOverdueSeconds = 2;  // after its deadline a helper that hangs is ended by the kernel

// The helper must have started, killed tools that are late, and passed on what the others said, within the agent's
// time.
std::chrono::milliseconds for_tools(std::chrono::milliseconds within) { return within * 7 / 10; }

std::vector<std::string> environment_of_helper() {
  std::vector<std::string> words;
  for (char** word = environ; *word != nullptr; ++word) {
    const std::string text = *word;
    if (!text.starts_with("DEBUGINFOD_URLS=")) words.push_back(text);  // eu-stack would ask the network
  }
  return words;
}

// A worker whose program has not begun yet is a copy of ddprun.
bool has_begun(pid_t worker) {
  struct stat own = {}, its = {};
  const std::string exe = rendezvous::process_folder(worker) + "/exe";
  return stat(kSelf, &own) != 0 || stat(exe.c_str(), &its) != 0 || own.st_ino != its.st_ino || own.st_dev != its.st_dev;
}

// Takes the stacks of those whose programs have begun. A tool that attaches to the others may end them: the kernel
// sends SIGTRAP to a process that executes a program while it is traced.
std::vector<WorkerStacks> take_if_begun(const std::vector<std::pair<int, pid_t>>& workers,
                                        std::chrono::milliseconds within) {
  std::vector<std::pair<int, pid_t>> begun, others;
  for (const auto& worker : workers) (has_begun(worker.second) ? begun : others).push_back(worker);
  std::vector<WorkerStacks> stacks = take_stacks(begun, find_stack_tools(workers.front().second), within);
  for (WorkerStacks& other : take_stacks(others, {}, within)) {
    other.missing = {other.threads.empty() ? "the process has ended" : "its program has not begun yet"};
    stacks.push_back(std::move(other));
  }
  return stacks;
}

}  // namespace

int run_stack_helper(const std::vector<std::string>& arguments) {
  const auto within = rendezvous::parse_number<int>(arguments.empty() ? "" : arguments[0]);
  std::vector<std::pair<int, pid_t>> workers;
  std::map<int, std::vector<GroupCalls>> calls;  // by rank
  for (std::size_t i = 1; i < arguments.size(); ++i) {
    std::istringstream argument(arguments[i]);
    std::string rank, pid, json;
    std::getline(std::getline(argument, rank, ':'), pid, ':');
    std::getline(argument, json);
    const auto rank_number = rendezvous::parse_number<int>(rank);
    const auto pid_number = rendezvous::parse_number<pid_t>(pid);
    if (!rank_number || !pid_number) continue;
    workers.emplace_back(*rank_number, *pid_number);
    calls[*rank_number] = calls_from_json(json).value_or(std::vector<GroupCalls>());
  }
  if (!within || workers.empty()) {
    fprintf(stderr, "%s is a part of ddprun, which starts it; `ddprun stacks` shows stacks\n", kStackHelperName);
    return 2;
  }
  const std::chrono::milliseconds time(*within);
  alarm(static_cast<unsigned>(std::chrono::ceil<std::chrono::seconds>(time).count()) + kOverdueSeconds);
  auto stacks = take_if_begun(workers, time);
  for (WorkerStacks& taken : stacks) taken.calls = std::move(calls[taken.rank]);
  fputs(stacks_json(stacks).c_str(), stdout);
  return fflush(stdout) == 0 ? 0 : 1;
}

rendezvous::Descriptor StackHelper::start(const std::vector<Worker>& workers, std::chrono::milliseconds within) {
  rendezvous::Pipe pipe = rendezvous::make_pipe("for stacks");
  WorkerCommand command;
  command.path = kSelf;
  command.arguments = {kStackHelperName, std::to_string(for_tools(within).count())};
  for (const Worker& worker : workers) {
    command.arguments.push_back(std::to_string(worker.rank) + ":" + std::to_string(worker.pid) + ":" +
                                calls_json(worker.calls));
  }
  command.environment = environment_of_helper();
  command.stdout_fd = pipe.write_end.get();
  command.stderr_fd = STDERR_FILENO;
  std::vector<WorkerCommand> commands;
  commands.push_back(std::move(command));
  spawn(std::move(commands));
  return std::move(pipe.read_end);
}

struct StackHelper::Taking {
  explicit Taking(rendezvous::asio::io_context& io) : pipe(io), deadline(io) {}

  rendezvous::asio::posix::stream_descriptor pipe;
  rendezvous::asio::steady_timer deadline;
  Done done;
  std::string text;
  char buffer[16384] = {};
};

void StackHelper::take(const std::vector<Worker>& workers, std::chrono::milliseconds within, Done done) {
  const auto taking = now_ = std::make_shared<Taking>(io_);
  taking->done = std::move(done);
  try {
    taking->pipe.assign(start(workers, within).release());
  } catch (const rendezvous::Error&) {
    within = {};
  }
  taking->deadline.expires_after(within);
  taking->deadline.async_wait([this, weak = std::weak_ptr(taking)](const auto& error) {
    if (const auto timed = weak.lock(); timed && !error) finish(timed);
  });
  if (taking->pipe.is_open()) read_on(taking);
}

void StackHelper::read_on(const std::shared_ptr<Taking>& taking) {
  taking->pipe.async_read_some(rendezvous::asio::buffer(taking->buffer),
                               [this, weak = std::weak_ptr(taking)](const auto& error, std::size_t size) {
                                 const auto read = weak.lock();
                                 if (!read) return;
                                 if (error) return finish(read);
                                 read->text.append(read->buffer, size);
                                 read_on(read);
                               });
}

void StackHelper::finish(const std::shared_ptr<Taking>& taking) {
  if (taking != now_) return;  // given up
  now_.reset();
  taking->done(stacks_from_json(taking->text).value_or(std::vector<WorkerStacks>()));
}

}  // namespace ddp::launcher
