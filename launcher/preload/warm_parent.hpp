// SPDX-License-Identifier: BSD-3-Clause
// Forks the workers of a Python program from a Python process that has imported the modules they
// need (--preload). That process is the warm parent: one on each node, a child of the agent. Its
// own code is warm_parent.py.
//
//     Importing ──ParentReady──▶ Ready ──fork──▶ Forking ──ParentForked──▶ Ready
//         └─────────────────────────┴──────────────┴──gives up, dead, late──▶ Lost, for good
//
// The workers equal those of spawner.hpp: children of the agent in sessions of their own that die
// with it, with their descriptors, environment and CPUs, behind the same gate. One difference
// remains: /proc shows the command line and the environment of the parent (except for the mark by
// which descendants are found).
//
// Runs on the agent's loop, never blocks it, and has a deadline for everything that the parent
// does.
#pragma once

#include <sys/types.h>

#include <chrono>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "launcher/config/launch_config.hpp"
#include "launcher/config/worker_environment.hpp"
#include "launcher/preload/parent_messages.hpp"
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
    std::function<void(Spawned)> on_forked;  // answers fork(), unless on_lost does
  };

  // Starts the warm parent. `environment` is node_environment(). Throws rendezvous::Error if it
  // cannot be forked.
  WarmParent(rendezvous::asio::io_context& io, const LaunchConfig& config, Environment environment,
             const Limits& limits, Callbacks callbacks);
  ~WarmParent() { end(); }
  WarmParent(const WarmParent&) = delete;
  WarmParent& operator=(const WarmParent&) = delete;

  // Returns the parent's pid; 0 once note_reaped() has been called.
  pid_t pid() const { return pid_; }
  // The agent, which reaps all children, calls this with each of them.
  void note_reaped(pid_t pid, const rendezvous::ExitStatus& status);

  bool is_importing() const { return state_ == State::Importing; }
  bool is_ready() const { return state_ == State::Ready; }
  bool is_forking() const { return state_ == State::Forking; }

  // Kills the parent. No callback follows. If the agent ends before it reaps the parent, the keeper
  // does.
  void end();

  // Asks the parent, which must be ready, to fork these workers. The commands' descriptors must
  // stay open until on_forked or on_lost is called.
  void fork(std::vector<WorkerCommand> commands);

 private:
  enum class State { Importing, Ready, Forking, Lost };

  void expect_within(std::chrono::seconds time, const std::string& what);
  void wait_for_messages();
  bool read_messages();
  void on_message(const ParentReady& ready);
  void on_message(const ParentForked& forked);
  void on_message(const ParentGivesUp& gives_up) { lose(gives_up.why); }
  void on_disconnect();
  std::string how_it_ended(const rendezvous::ExitStatus& status);
  void lose(const std::string& why);

  const Callbacks callbacks_;
  rendezvous::asio::posix::stream_descriptor socket_;
  rendezvous::asio::steady_timer deadline_;
  std::optional<Spawned> spawned_;  // the parent itself
  pid_t pid_ = 0;
  State state_ = State::Importing;
  rendezvous::FrameReader frames_{kParentFrames};
  std::optional<StartGate> gate_;
  std::vector<WorkerCommand> requested_;
};

}  // namespace ddp::launcher
