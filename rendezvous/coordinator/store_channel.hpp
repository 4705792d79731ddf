// SPDX-License-Identifier: BSD-3-Clause
// The coordinator's stores in a process of their own, ddp-store, and what the two say to each other over one pair of
// sockets. Either may die and come back alone.
//
//     coordinator ── OpenRequest, KeyToSet, OwnerWords ──▶ ddp-store
//     coordinator ◀── OpenAnswer, a link, OwnerWords, OtherStore ── ddp-store      links wait while no coordinator runs
//
// ddp-store has the job's port. It hands over agents' connections, each as a message with the descriptor and what has
// come over the connection, as the StoreServer does within one process. Another life of ddp-store sends OtherStore
// first. An answer names the life of the coordinator that has asked, so that a later life ignores the answer.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "rendezvous/base/descriptor.hpp"
#include "rendezvous/coordinator/stores.hpp"
#include "rendezvous/net/asio.hpp"
#include "rendezvous/net/message_channel.hpp"

namespace ddp::rendezvous {

// In the coordinator's process.
class RemoteStores : public Stores {
 public:
  struct Callbacks {  // on the loop's thread
    std::function<void(Descriptor socket, std::string first_bytes)> on_agent_link;
    std::function<void(int clients, const std::string& why)> on_lost;   // the store was killed, and another one runs
    std::function<void(const std::string& connection)> ask_owner = {};  // as StoreServer::Options::ask_owner
  };
  RemoteStores(asio::io_context& io, int channel, Callbacks callbacks);

  void open(int round, const std::vector<std::string>& members, Opened opened) override;
  void set(const std::string& key, const std::string& value) override;
  void take_owner(const std::string& answer) override;

 private:
  void on_message(DescriptorMessage message);

  const std::string life_;
  const Callbacks callbacks_;
  Opened opened_;
  MessageChannel channel_;
};

struct StoreProcess {
  int channel = -1;
  Listeners front = {};
  LocalStores::Options options = {};
  // How the process before this one ended, and the clients that it had; empty: this is the first.
  std::string why_before = {};
  int clients_before = 0;
};

// Serves until the process is killed.
void serve_stores(StoreProcess process);

}  // namespace ddp::rendezvous
