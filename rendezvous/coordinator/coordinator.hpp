// SPDX-License-Identifier: BSD-3-Clause
// Drives CoordinatorCore: one thread with one loop, the links to the agents, and the c10d stores (which have threads of
// their own). Lives in the endpoint's ddprun; that node's own agent is linked like any other, over a socketpair.
//
// One port, told apart by first bytes: agents of other nodes, and the workers of the first round, find the front door.
// In an elastic job each later round has a store of its own on a port of its own, so that a worker which outlived its
// round never lands in the next; a job of a fixed number of nodes keeps its port, for its rounds never overlap.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "rendezvous/coordinator/coordinator_core.hpp"
#include "rendezvous/link/acceptor.hpp"
#include "rendezvous/link/secret.hpp"
#include "rendezvous/link/stream.hpp"
#include "rendezvous/net/asio.hpp"
#include "rendezvous/net/core_driver.hpp"
#include "rendezvous/store/server.hpp"

namespace ddp::rendezvous {

class Coordinator {
 public:
  struct Options {
    std::vector<std::string> addresses = {"127.0.0.1", "::1"};  // numeric, to listen on
    std::uint16_t port = 0;                                     // 0: any free one
    std::string master_addr;  // what workers are told; empty: each the address by which its agent reached this node
    std::optional<Secret> secret = {};
    std::function<void(const std::string& line)> log = {};  // on threads of its own; must not block
  };

  // Throws Error if it cannot listen: AddressInUse if somebody else does.
  Coordinator(CoordinatorConfig config, Options options);
  // Ends the threads; links are cut, the store is closed.
  ~Coordinator();
  Coordinator(const Coordinator&) = delete;
  Coordinator& operator=(const Coordinator&) = delete;

  std::uint16_t port() const { return front_->port(); }

  // A new link within this process; the returned descriptor (close-on-exec) is the agent's end. From any thread.
  int connect_agent();

 private:
  using AgentLink = LinkStream<AgentState>;

  StoreServer::Options store_options();
  StoreServer& store() { return later_ ? *later_ : *front_; }
  void link(LinkSocket socket, const std::string& address, const std::string& first_bytes);

  void carry_out(const SendDirective& action);
  void carry_out(const AnswerBeat& action);
  void carry_out(const CloseLink& action);
  void carry_out(const OpenStore& action);
  void carry_out(const PublishFailure& action);
  void carry_out(const CoordinatorLogLine& action);
  void open_store(const OpenStore& action);

  const CoordinatorConfig config_;
  const Options options_;
  CoordinatorCore core_;
  asio::io_context io_{1};
  asio::executor_work_guard<asio::io_context::executor_type> work_{io_.get_executor()};
  CoreDriver<CoordinatorCore, CoordinatorEvent, CoordinatorAction, CoordinatorTick> driver_;
  std::map<AgentId, std::shared_ptr<AgentLink>> links_;
  AgentId next_agent_ = 1;
  std::unique_ptr<LinkAcceptor> acceptor_;  // null in a job of one node; outlives the store that calls it
  std::unique_ptr<StoreServer> front_;      // of the first round, and the agents' way in
  std::unique_ptr<StoreServer> later_;      // elastic: of the newest round after the first
  std::thread thread_;
};

}  // namespace ddp::rendezvous
