// SPDX-License-Identifier: BSD-3-Clause
// Drives CoordinatorCore: it has one thread with one loop, the links to the agents, and a thread on which new ones
// shake hands. In a job of one node it is in the agent's process; the agent is linked over a socketpair, and the store
// has a thread of its own. In a job of several nodes it is a process of its own (launcher/coordination/sidecars.hpp),
// which may be killed and started again: its journal has what the next life has to know, and nothing is sent before it
// is kept there. The stores are in another process then.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "rendezvous/base/rare_log.hpp"
#include "rendezvous/coordinator/core/coordinator_core.hpp"
#include "rendezvous/coordinator/looks.hpp"
#include "rendezvous/coordinator/record_gate.hpp"
#include "rendezvous/coordinator/store_channel.hpp"
#include "rendezvous/coordinator/stores.hpp"
#include "rendezvous/journal/journal.hpp"
#include "rendezvous/link/acceptor.hpp"
#include "rendezvous/link/stream.hpp"
#include "rendezvous/membership/membership.hpp"
#include "rendezvous/net/asio.hpp"
#include "rendezvous/net/core_driver.hpp"

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
    // For a process of its own: makes the stores, which are elsewhere, and the journal. Without them it has its own
    // store and keeps no record.
    std::function<std::unique_ptr<Stores>(asio::io_context&, RemoteStores::Callbacks)> stores = {};
    std::function<std::unique_ptr<Journal>(asio::io_context&)> journal = {};
    // Returns CoordinatorConfig::own_epoch, once the journal is claimed. Only for a journal that outlives the node.
    std::function<std::string()> own_epoch = {};
    // Nothing is left to be done here: the job is over, and the journal is left as it is to be; or this node has left
    // the job, and another one is to coordinate. It comes a moment after the own agent has left, some seconds at most.
    // Only for a journal that outlives the node.
    std::function<void()> on_done = {};
    std::function<void()> on_claimed = {};                     // the journal is its own: it will serve
    std::function<void(const std::string& why)> on_lost = {};  // it must end
    std::optional<JobRecord> begins_with = {};                 // what a life before has left, where there is no journal
  };

  // Throws Error if it cannot listen: AddressInUse if another process listens there.
  Coordinator(CoordinatorConfig config, Options options);
  // Ends the threads; cuts the links and closes the store.
  ~Coordinator();
  Coordinator(const Coordinator&) = delete;
  Coordinator& operator=(const Coordinator&) = delete;

  // Returns the port of its own store.
  std::uint16_t port() const { return own_store_->port(); }

  // Another node leads: drops the links that were accepted so far, so that their agents look for the leader. Call it on
  // the thread that runs the journal's loop.
  void stand_by();

  // Takes the coordinator's end of a link to the agent of its node. Any thread may call it.
  void link_own(Descriptor end);
  // Makes a link within this process and returns the agent's end of it, with close-on-exec. Any thread may call it.
  Descriptor connect_agent();

 private:
  using AgentLink = LinkStream<AgentState>;

  LocalStores::Options store_options();
  void begin();
  void on_claimed(const JournalClaim& claim);
  void lose(const std::string& why);
  bool may_tell() const { return !journal_ || journal_->may_tell(); }
  void carry_out_due();
  void link(AcceptedLink accepted);
  void on_look_answer(AgentId from, LookAnswer answer);
  void begin_look(AgentId asker, const LookRequest& request);
  void ask_owner(const std::string& connection);
  void on_owner_answer(AgentId from, const std::string& answer);
  void send(const std::vector<Looks::Send>& sends);
  void set_look_timer();
  void tell_clock(AgentId agent, const ClockReading& question);

  void carry_out(const SendDirective& action);
  void carry_out(const AnswerBeat& action);
  void carry_out(const CloseLink& action);
  void carry_out(const OpenStore& action);
  void carry_out(const PublishFailure& action);
  void carry_out(const CoordinatorLogLine& action);
  void carry_out(const RecordNode& action);
  void carry_out(const Record& action);
  void carry_out(const JobDone& action);
  void carry_out(const StepDown& action);

  CoordinatorConfig config_;
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
  RecordGate gate_;
  std::unique_ptr<Journal> journal_;  // null: nothing outlives this process
  bool has_begun_ = false;            // the journal is its own
  bool is_lost_ = false;              // it is another's
  std::vector<AcceptedLink> early_;   // links that came before it had begun
  std::optional<StoreLost> early_loss_;
  std::unique_ptr<Stores> stores_;
  LocalStores* own_store_ = nullptr;       // stores_, if they are in this process
  std::thread thread_, handshake_thread_;  // the second one only in a job of several nodes
};

}  // namespace ddp::rendezvous
