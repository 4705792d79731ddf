// SPDX-License-Identifier: BSD-3-Clause
// Drives CoordinatorCore: one thread with one loop, the links to the agents, and the c10d store (which has a thread of
// its own). Lives in the endpoint's ddprun; that node's own agent is linked like any other, over a socketpair.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "rendezvous/coordinator_core.hpp"
#include "rendezvous/link_stream.hpp"
#include "rendezvous/net/asio.hpp"
#include "rendezvous/store_server.hpp"

namespace ddp::rendezvous {

class Coordinator {
 public:
  // store_addresses: numeric, where the store listens (first round's port: store_port, 0 = any free one).
  // master_addr: what workers are told to connect to. Throws Error if the port cannot be had.
  Coordinator(CoordinatorConfig config, const std::vector<std::string>& store_addresses, std::uint16_t store_port,
              std::string master_addr, StoreServer::Options store_options = {});
  // Ends the thread; links are cut, the store is closed.
  ~Coordinator();
  Coordinator(const Coordinator&) = delete;
  Coordinator& operator=(const Coordinator&) = delete;

  // A new link; the returned descriptor (close-on-exec) is the agent's end. Call it from any thread.
  int connect_agent();

 private:
  using AgentLink = LinkStream<AgentState>;
  void handle(const CoordinatorEvent& event);
  void carry_out(const SendDirective& action);
  void carry_out(const SendBeat& action);
  void carry_out(const CloseLink& action);
  void carry_out(const OpenStore& action);
  void carry_out(const PublishFailure& action);
  void carry_out(const CoordinatorSays& action);

  CoordinatorCore core_;
  StoreServer store_;
  std::string master_addr_;
  asio::io_context io_{1};
  asio::executor_work_guard<asio::io_context::executor_type> work_{io_.get_executor()};
  std::map<AgentId, std::shared_ptr<AgentLink>> links_;
  AgentId next_agent_ = 1;
  std::thread thread_;
};

}  // namespace ddp::rendezvous
