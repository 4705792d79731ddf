// SPDX-License-Identifier: BSD-3-Clause
// Asks a cluster of etcd, one request after another over one connection that is kept, and starts again with the next
// member where one is dead or frozen. Which member, path and token is request_course's. Everything but name lookups
// happens on the thread that runs the io_context. No method calls a callback; a callback may call any method and may
// destroy the client.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "rendezvous/etcd/messages.hpp"
#include "rendezvous/etcd/tls/tls_session.hpp"
#include "rendezvous/net/asio.hpp"

namespace ddp::rendezvous {

struct EtcdEndpoint {
  std::string host;  // a name, or a numeric address without brackets
  std::uint16_t port = 2379;
};

struct EtcdSettings {
  std::vector<EtcdEndpoint> endpoints;
  // These files are read again when a connection has failed and when the user logs in again, since certificates and
  // passwords are changed while jobs run.
  std::optional<TlsFiles> tls = {};  // none: plain HTTP
  std::string user = {};             // empty: none
  std::string password_file = {};
  // For one step: connecting, TLS and the answer. A frozen member costs this much.
  std::chrono::milliseconds deadline{1000};
};

// Returns the password in the file. Throws Error{InvalidArgument} if there is none, or others may read or change it.
std::string read_password(const std::string& path);

// Reads "host:2379,host2,[::1]:4001". Throws Error{InvalidArgument} with what is wrong with which part.
std::vector<EtcdEndpoint> parse_etcd_endpoints(const std::string& text);

class EtcdClient {
 public:
  using Done = std::function<void(EtcdOutcome)>;
  using News = std::function<void(const WatchNews&)>;

  EtcdClient(asio::io_context& io, EtcdSettings settings);
  ~EtcdClient();  // no callback follows
  EtcdClient(const EtcdClient&) = delete;
  EtcdClient& operator=(const EtcdClient&) = delete;

  // Asks it after everything that was asked before. Not for WatchKey.
  void ask(EtcdRequest request, Done done);
  // Takes the client for itself: `done` is called when the watch is over, with the reason; what is asked waits until
  // then. A stream has no deadline once it has begun.
  void watch(WatchKey request, News news, Done done);

 private:
  class Loop;
  std::shared_ptr<Loop> loop_;
};

// Ends a lease, and with it the leader's key, for a process that is dead: another process can claim the job at once.
// Waits for the answer, but no longer than `within`; without an answer the lease ends by itself. It has a loop of its
// own.
void revoke_lease(const EtcdSettings& settings, LeaseId lease, std::chrono::milliseconds within);

}  // namespace ddp::rendezvous
