// SPDX-License-Identifier: BSD-3-Clause
// Takes stacks in a process of its own: the tools' processes are its children, not the agent's, which reaps all of its
// own, and the agent's loop goes on meanwhile.
//
//     agent ── fork, exec ──▶ "ddprun-stacks WITHIN_MS RANK:PID:CALLS ..." ──▶ py-spy, eu-stack
//        ◀────────────── pipe: the stacks as JSON ──────────────┘
//
// Where Yama lets only ancestors look into a process, the helper may do so too: workers name the agent with
// PR_SET_PTRACER, and the helper descends from it. It ends with the agent.
#pragma once

#include <sys/types.h>

#include <chrono>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "launcher/diagnosis/stacks/stack.hpp"
#include "launcher/process/spawner.hpp"
#include "rendezvous/base/descriptor.hpp"
#include "rendezvous/net/asio.hpp"

namespace ddp::launcher {

// The name by which ddprun is called when it is to take stacks.
inline constexpr char kStackHelperName[] = "ddprun-stacks";

// Is the helper's main(): takes the stacks and prints them. Returns the exit code.
int run_stack_helper(const std::vector<std::string>& arguments);

class StackHelper {
 public:
  struct Worker {
    int rank;
    pid_t pid;
    std::vector<GroupCalls> calls;
  };
  using Done = std::function<void(std::vector<WorkerStacks>)>;

  explicit StackHelper(rendezvous::asio::io_context& io) : io_(io) {}

  // Takes the stacks of workers and calls `done` on io's thread, after `within` at the latest: with no stacks if there
  // are none by then. What is taken already is given up, and its `done` is not called.
  void take(const std::vector<Worker>& workers, std::chrono::milliseconds within, Done done);
  // Gives up what is taken now.
  void cancel() { now_.reset(); }

  // Takes stacks for somebody else: returns the end of the pipe where their JSON comes. Throws rendezvous::Error if no
  // process can be started.
  rendezvous::Descriptor start(const std::vector<Worker>& workers, std::chrono::milliseconds within);

 private:
  struct Taking;  // pipe, deadline and what was read; while the helper runs

  void read_on(const std::shared_ptr<Taking>& taking);
  void finish(const std::shared_ptr<Taking>& taking);

  rendezvous::asio::io_context& io_;
  std::shared_ptr<Taking> now_;
};

}  // namespace ddp::launcher
