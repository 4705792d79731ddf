// SPDX-License-Identifier: BSD-3-Clause
// The stores of a job's rounds, as the coordinator sees them: in its own process (LocalStores), or in another one
// (store_channel.hpp).
//
// The first round's store is at the job's port, the front door, where agents come in as well. In an elastic job each
// later round has a store and a port of its own, so that a worker that outlived its round never gets into the next one.
// A job of a fixed number of nodes keeps its port, since its rounds never overlap.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "rendezvous/net/listen.hpp"
#include "rendezvous/store/server.hpp"

namespace ddp::rendezvous {

class Stores {
 public:
  // `port` is MASTER_PORT; `why_not` is empty, or says why there is no store.
  using Opened = std::function<void(int round, std::uint16_t port, const std::string& why_not)>;

  Stores() = default;
  virtual ~Stores() = default;
  Stores(const Stores&) = delete;
  Stores& operator=(const Stores&) = delete;

  // Opens an empty store for this round, which admits the members' addresses. `opened` is called on the coordinator's
  // thread, perhaps from within this call.
  virtual void open(int round, const std::vector<std::string>& members, Opened opened) = 0;
  // Sets a key of the newest round's store.
  virtual void set(const std::string& key, const std::string& value) = 0;
  // Passes on what a node has answered to StoreServer::Options::ask_owner.
  virtual void take_owner(const std::string& answer) = 0;
};

class LocalStores : public Stores {
 public:
  struct Options {
    std::vector<std::string> addresses;  // numeric, to listen on
    bool has_several_nodes = false;      // only members of the round are admitted
    bool is_elastic = false;
    bool hosts_workers_store = true;   // false: MASTER_PORT is a free port, where rank 0 makes a store for each round
    StoreServer::Options server = {};  // for the front door; later stores take no agents
  };
  LocalStores(Listeners front, Options options);

  std::uint16_t port() const { return front_->port(); }
  void open(int round, const std::vector<std::string>& members, Opened opened) override;
  void set(const std::string& key, const std::string& value) override { newest().set(key, value); }
  void take_owner(const std::string& answer) override { newest().take_owner(answer); }

 private:
  StoreServer& newest() { return later_ ? *later_ : *front_; }
  void reopen(int round, const std::vector<std::string>& members);

  const Options options_;
  std::unique_ptr<StoreServer> front_;  // the first round's store, and where agents come in
  std::unique_ptr<StoreServer> later_;  // elastic: the store of the newest round after the first
};

// What every store of a job has: who may connect, and where its lines go.
StoreServer::Options server_options(bool any_user, std::function<void(const std::string& line)> log);

}  // namespace ddp::rendezvous
