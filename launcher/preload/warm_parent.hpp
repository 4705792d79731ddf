// SPDX-License-Identifier: BSD-3-Clause
// Makes the workers of a Python program by fork, from a Python that has imported what they need (--preload): the warm
// parent, one a node, a child of the agent. Its own side is warm_parent.py.
//
//     Importing ──"ready"──▶ Ready ──fork──▶ Forking ──"spawned"──▶ Ready
//         └──────────────────────┴──────────────┴──refused, failed, dead, late──▶ Lost, for good
//
// Workers come out as spawner.hpp makes them: children of the agent in sessions of their own that die with it, with
// their descriptors, environment and CPUs, through the same gate. Only /proc shows of their command line and
// environment what the parent had (but for the mark by which descendants are found).
//
// Lives on the agent's loop, never blocks it, and has a deadline for whatever the parent does.
#pragma once

#include <sys/types.h>

#include <chrono>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "launcher/config/launch_config.hpp"
#include "launcher/config/worker_environment.hpp"
#include "launcher/process/limits.hpp"
#include "launcher/process/spawner.hpp"
#include "rendezvous/link/messages.hpp"
#include "rendezvous/net/asio.hpp"

namespace ddp::launcher {

class WarmParent {
 public:
  struct Callbacks {
    std::function<void(const std::string& modules, std::chrono::milliseconds took)> on_ready;
    std::function<void(const std::string& why)> on_lost;
    std::function<void(Spawned)> on_forked;  // else on_lost comes
  };

  // Starts it. `environment`: node_environment(). Throws rendezvous::Error if it cannot even be forked.
  WarmParent(rendezvous::asio::io_context& io, const LaunchConfig& config, Environment environment,
             const Limits& limits, Callbacks callbacks);
  ~WarmParent() { end(); }
  WarmParent(const WarmParent&) = delete;
  WarmParent& operator=(const WarmParent&) = delete;

  // 0: it has been reaped, which the agent does and says.
  pid_t pid() const { return pid_; }
  void note_reaped(pid_t pid, const rendezvous::ExitStatus& status);

  bool is_importing() const { return state_ == State::Importing; }
  bool is_ready() const { return state_ == State::Ready; }

  // Kills it and is silent from now on. Who outlives the agent reaps it.
  void end();

  // If it is ready: asks for these workers. The descriptors of the commands stay open until on_forked or on_lost.
  void fork(std::vector<WorkerCommand> commands);

 private:
  enum class State { Importing, Ready, Forking, Lost };

  void expect_within(std::chrono::seconds time, const std::string& what);
  void wait_for_lines();
  bool read_lines();
  void on_line(const std::string& line);
  void on_spawned(std::vector<pid_t> pids);
  void on_disconnect();
  std::string how_it_ended(const rendezvous::ExitStatus& status);
  void lose(const std::string& why);

  const Callbacks callbacks_;
  rendezvous::asio::posix::stream_descriptor socket_;
  rendezvous::asio::steady_timer deadline_;
  std::optional<Spawned> spawned_;  // the parent itself
  pid_t pid_ = 0;
  State state_ = State::Importing;
  std::string received_;  // of a line that is not there yet
  std::optional<StartGate> gate_;
  std::vector<WorkerCommand> requested_;
};

}  // namespace ddp::launcher
