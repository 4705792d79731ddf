// SPDX-License-Identifier: BSD-3-Clause
// The keeper's notice to the coordinator, when an agent was killed, that this node has left. Without the notice the
// coordinator would wait for the agent's link to come back (kReconnectWindow).
//
//     agent ── prepare(), at each report ──▶ shared memory ── the agent dies; all of its processes are dead ──▶
//     keeper ── send() ──▶ coordinator: a new link of the same incarnation, and one message on it with `left`
//
// The notice goes out only when no process of the node is left, so that the others may go on at once. If it cannot be
// sent, the coordinator finds out by itself as before.
#pragma once

#include <cstdint>
#include <string>

#include "launcher/config/launch_config.hpp"
#include "launcher/process/shared_page.hpp"
#include "rendezvous/link/messages.hpp"

namespace ddp::launcher {

class LeaveNotice {
 public:
  // Makes the shared memory: call it before the fork. Throws rendezvous::Error.
  LeaveNotice();
  ~LeaveNotice();

  // In the agent: the node's newest state, and the coordinator's numeric address.
  void prepare(const std::string& address, std::uint16_t port, const rendezvous::AgentState& state);
  // In the agent: it leaves by itself, so there is no notice to send.
  void clear();

  // In the keeper: sends what was prepared, if anything was, and gives up after a second. `why` says what happened to
  // the agent.
  void send(const std::string& why, const LaunchConfig& config) const noexcept;

 private:
  struct Page;
  SharedPage<Page> page_;
};

}  // namespace ddp::launcher
