// SPDX-License-Identifier: BSD-3-Clause
// What this agent shows to its workers and to programs such as `ddprun ps`: its page and its socket (launcher/local),
// filled with what the agent knows. A system that refuses either costs the job nothing else: the log says so, and the
// agent goes on without.
#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "launcher/agent/agent_core.hpp"
#include "launcher/agent/node_output.hpp"
#include "launcher/agent/round_processes.hpp"
#include "launcher/config/launch_config.hpp"
#include "launcher/diagnosis/stack_helper.hpp"
#include "launcher/guardian/guardian.hpp"
#include "launcher/local/agent_page.hpp"
#include "launcher/local/agent_socket.hpp"
#include "launcher/local/gpu_usage.hpp"
#include "launcher/local/job_view.hpp"
#include "launcher/local/kept_memories.hpp"
#include "rendezvous/agent_client.hpp"
#include "rendezvous/link/messages.hpp"
#include "rendezvous/net/asio.hpp"

namespace ddp::launcher {

class LocalService {
 public:
  struct Sources {
    std::function<void(const AgentEvent&)> handle;                        // gets what workers say about survival
    std::function<int(int local_rank)> call_memory;                       // -1: none
    std::function<rendezvous::Descriptor(const std::string& what)> look;  // at the whole job, see JobLooks
  };

  LocalService(rendezvous::asio::io_context& io, const LaunchConfig& config, const std::string& host,
               const std::string& incarnation, const Guarded& guarded, NodeOutput& out, RoundProcesses& processes,
               const AgentCore& core, Sources sources);

  // Returns the path of the socket; empty if there is none.
  std::string socket() const { return socket_ ? socket_->path() : ""; }

  // A worker has failed, or is certain to: the time to the next round counts from the first one.
  void note_failure();
  // The workers of this round are about to start.
  void begin_round(const rendezvous::AgentState& state, const rendezvous::Assignment& assignment);
  void show(const rendezvous::AgentState& state);
  // Workers that can stay are to leave the groups of this round.
  void revoke();
  // No worker stays, although the round was revoked.
  void show_stop();
  // Returns whether a worker that runs is within an update of memory that is kept.
  bool is_updating() const;
  // Returns when a worker showed its newest step, in nanoseconds of CLOCK_BOOTTIME; 0: it has shown none.
  std::int64_t step_at(int rank) const;
  // Returns what this node does now, and what its workers use.
  AgentView view();
  void stop();

 private:
  AgentSocket::Answer answer(const rendezvous::DescriptorMessage& message);
  AgentSocket::Answer take_stacks();
  AgentSocket::Answer look(const std::string& what);
  AgentSocket::Answer hand_out_call_memory(int local_rank, const rendezvous::AgentRequest& request);
  AgentSocket::Answer note_survivor(const std::string& ask, int local_rank, const rendezvous::AgentRequest& request);
  AgentSocket::Answer hand_out(int local_rank, const rendezvous::AgentRequest& request);
  AgentSocket::Answer show_kept(int local_rank, const std::string& name) const;
  void plan_kept_memory(const rendezvous::Assignment& assignment);

  const LaunchConfig& config_;
  const std::string host_;
  NodeOutput& out_;
  Log& log_ = out_.log;
  RoundProcesses& processes_;
  const AgentCore& core_;
  const Sources sources_;
  const std::chrono::steady_clock::time_point began_ = std::chrono::steady_clock::now();
  std::chrono::steady_clock::time_point round_began_ = began_;
  rendezvous::NodeFacts facts_ = {};
  std::string phase_ = "waiting";  // as AgentView's
  StepRates step_rates_;
  GpuSampler gpus_;
  std::optional<KeptMemories> kept_;                             // absent without --keep-memory
  std::optional<std::chrono::steady_clock::time_point> failed_;  // since the newest round began
  StackHelper stack_helper_;
  std::unique_ptr<AgentPage> page_;
  std::unique_ptr<AgentSocket> socket_;
};

}  // namespace ddp::launcher
