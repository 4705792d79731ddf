// SPDX-License-Identifier: BSD-3-Clause
#include "launcher/diagnosis/stacks/tool_run.hpp"

#include <fcntl.h>
#include <poll.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstring>

#include "rendezvous/base/pipe.hpp"

namespace ddp::launcher {
namespace {

using rendezvous::Descriptor;

struct Running {
  ToolRun* run = nullptr;
  pid_t pid = -1;
  Descriptor out, err;
};

Running start(ToolRun& run) {
  Running running{&run, -1, {}, {}};
  auto out = rendezvous::try_pipe(), err = rendezvous::try_pipe();
  if (!out || !err) {
    run.why_not = std::string("no pipe: ") + strerror(errno);
    return running;
  }
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_addopen(&actions, STDIN_FILENO, "/dev/null", O_RDONLY, 0);
  posix_spawn_file_actions_adddup2(&actions, out->write_end.get(), STDOUT_FILENO);
  posix_spawn_file_actions_adddup2(&actions, err->write_end.get(), STDERR_FILENO);
  std::vector<char*> words;
  for (std::string& word : run.command) words.push_back(word.data());
  words.push_back(nullptr);
  const int error = posix_spawn(&running.pid, words[0], &actions, nullptr, words.data(), environ);
  posix_spawn_file_actions_destroy(&actions);
  if (error != 0) {
    running.pid = -1;
    run.why_not = run.command[0] + ": " + strerror(error);
    return running;
  }
  running.out = std::move(out->read_end);
  running.err = std::move(err->read_end);
  return running;
}

// Reads what is there; closes the descriptor at the end of the file.
void read_some(Descriptor& from, std::string& to) {
  char buffer[16384];
  const ssize_t size = read(from.get(), buffer, sizeof buffer);
  if (size > 0) to.append(buffer, static_cast<std::size_t>(size));
  if (size == 0 || (size < 0 && errno != EINTR && errno != EAGAIN)) from.close();
}

}  // namespace

void run_tools(std::vector<ToolRun>& runs, std::chrono::steady_clock::time_point deadline) {
  std::vector<Running> all;
  for (ToolRun& run : runs) all.push_back(start(run));
  for (;;) {
    std::vector<pollfd> events;
    std::vector<std::pair<Descriptor*, std::string*>> ends;
    for (Running& running : all) {
      for (const auto& [from, to] :
           {std::pair(&running.out, &running.run->out), std::pair(&running.err, &running.run->err)}) {
        if (!*from) continue;
        events.push_back({from->get(), POLLIN, 0});
        ends.emplace_back(from, to);
      }
    }
    const auto left = std::chrono::ceil<std::chrono::milliseconds>(deadline - std::chrono::steady_clock::now()).count();
    if (events.empty() || left <= 0) break;
    poll(events.data(), events.size(), static_cast<int>(left));
    for (std::size_t i = 0; i < events.size(); ++i) {
      if (events[i].revents != 0) read_some(*ends[i].first, *ends[i].second);
    }
  }
  for (Running& running : all) {
    if (running.pid < 0) continue;
    if (running.out || running.err) {
      kill(running.pid, SIGKILL);
      running.run->why_not = "it took too long";
    }
    while (waitpid(running.pid, nullptr, 0) < 0 && errno == EINTR) {
    }
  }
}

}  // namespace ddp::launcher
