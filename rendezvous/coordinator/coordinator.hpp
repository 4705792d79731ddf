// SPDX-License-Identifier: BSD-3-Clause
// Drives CoordinatorCore: it has one thread with one loop, the links to the agents, a thread on which new ones shake
// hands, and the c10d stores (which have threads of their own). It lives in the endpoint's ddprun; the agent of that
// node is linked like any other, over a socketpair.
//
// One port, the front door, serves the agents of other nodes and the workers of the first round, told apart by the
// first bytes they send. In an elastic job each later round has a store and a port of its own, so that a worker that
// outlived its round never gets into the next one. A job of a fixed number of nodes keeps its port, since its rounds
// never overlap.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "rendezvous/base/rare_log.hpp"
#include "rendezvous/coordinator/coordinator_core.hpp"
#include "rendezvous/coordinator/looks.hpp"
#include "rendezvous/link/acceptor.hpp"
#include "rendezvous/link/membership.hpp"
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
    std::string master_addr;          // MASTER_ADDR; empty: an address by which all nodes reached this one
    bool hosts_workers_store = true;  // false: MASTER_PORT is a free port, where rank 0 makes a store for each round
    Membership membership = {};
    bool any_user = false;  // admits every user of this machine
    JobTag job = {};
    // Both are called on threads of its own and must not block.
    std::function<void(const std::string& line)> log = {};
    std::function<void(const RecordNode&)> record = {};  // also of what was refused before it said which node it is
  };

  // Throws Error if it cannot listen: AddressInUse if another process listens there.
  Coordinator(CoordinatorConfig config, Options options);
  // Ends the threads; cuts the links and closes the store.
  ~Coordinator();
  Coordinator(const Coordinator&) = delete;
  Coordinator& operator=(const Coordinator&) = delete;

  std::uint16_t port() const { return front_->port(); }

  // Makes a link within this process and returns the agent's end of it, with close-on-exec. Any thread may call it.
  Descriptor connect_agent();

 private:
  using AgentLink = LinkStream<AgentState>;

  StoreServer::Options store_options() const;
  StoreServer& store() { return later_ ? *later_ : *front_; }
  void link(AcceptedLink accepted);
  void on_look_answer(AgentId from, LookAnswer answer);
  void begin_look(AgentId asker, const LookRequest& request);
  void send(const std::vector<Looks::Send>& sends);
  void set_look_timer();

  void carry_out(const SendDirective& action);
  void carry_out(const AnswerBeat& action);
  void carry_out(const CloseLink& action);
  void carry_out(const OpenStore& action);
  void carry_out(const PublishFailure& action);
  void carry_out(const CoordinatorLogLine& action);
  void carry_out(const RecordNode& action);
  void open_store(const OpenStore& action);

  const CoordinatorConfig config_;
  const Options options_;
  RareLog strangers_log_;
  CoordinatorCore core_;
  asio::io_context io_{1};
  asio::executor_work_guard<asio::io_context::executor_type> work_{io_.get_executor()};
  CoreDriver<CoordinatorCore, CoordinatorEvent, CoordinatorAction, CoordinatorTick> driver_;
  std::map<AgentId, std::shared_ptr<AgentLink>> links_;
  AgentId next_agent_ = 1;
  Looks looks_;
  asio::steady_timer look_timer_;  // set while somebody looks
  asio::io_context handshakes_{1};
  std::unique_ptr<LinkAcceptor> acceptor_;  // null in a job of one node; outlives the store that calls it
  std::unique_ptr<StoreServer> front_;      // the first round's store, and where agents come in
  std::unique_ptr<StoreServer> later_;      // elastic: the store of the newest round after the first
  std::thread thread_, handshake_thread_;   // the second one only in a job of several nodes
};

}  // namespace ddp::rendezvous
