// SPDX-License-Identifier: BSD-3-Clause
// A c10d store that listens: sockets and one thread around c10d_protocol and store_core. The thread blocks asynchronous
// signals, resolves no names, touches no disk and takes no lock; any other thread may call each method. The endpoint
// has one port, and this server owns it: agents' links arrive here too and are handed over (on_agent_link).
//
// The worst that a stranger can do is lose his own connection:
//   * A connection within this machine must be one of this process's own user, or root's (net/peer_user.hpp). It is
//     refused when it is accepted, before a byte of it is read. For others admit_only() decides by their addresses,
//     and the nodes at these say whether the user is theirs (Options::ask_owner) before a request is carried out.
//   * Nonsense is closed. Half of a first request's first bytes is closed after kPrefaceLimit. Silence is legitimate
//     (PyTorch 1.9 – 2.0 keep a silent connection for each worker), so it has no deadline.
//   * A client that does not read its answers is not read from either; it costs kUnsentLimit and one answer.
//   * When no file descriptor is left but the last ones, which are kept for the process, silent connections are closed
//     for new ones (silence.hpp). If there are none to close, clients wait in the backlog, and a line says why.
//   * All that the store keeps has a limit in bytes (store_core.hpp, Costs), and so have incomplete requests and unread
//     answers together, as their buffers are allocated. What a connection held goes with it, and an answer for which
//     there is no room is not built.
// Every connection that the server ends is counted, and at most one a second is logged (Options::log).
#pragma once

#include <array>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "rendezvous/base/descriptor.hpp"
#include "rendezvous/net/listen.hpp"
#include "rendezvous/store/store_core.hpp"

namespace ddp::rendezvous {

// Limits of one connection's unsent answers. Above the first, no more requests are read from it. Above the second,
// which only pushes to a watcher that never reads can reach, it is closed.
inline constexpr std::size_t kUnsentLimit = 1024 * 1024;
inline constexpr std::size_t kUnsentHardLimit = kMaxReplyBytes + 2 * kUnsentLimit;
inline constexpr std::chrono::seconds kPrefaceLimit{5};
// How long a client from another machine waits for what its node says of it.
inline constexpr std::chrono::seconds kOwnerLimit{20};
// First byte of a ddprun agent's link, see Options::on_agent_link; no c10d client begins with it.
inline constexpr char kAgentLinkByte = '\xdd';
// Default limit of what the store keeps. The largest known user, Gloo of PyTorch 1.13, leaves 142 MB for 1,024 ranks.
inline constexpr std::size_t kMaxStoreBytes = std::size_t{4} << 30;

struct StoreStatistics {
  std::uint64_t accepted = 0;       // all connections so far
  std::uint64_t dropped = 0;        // connections that the server ended, reset() apart
  std::uint64_t agent_links = 0;    // connections handed over
  std::uint64_t other_users = 0;    // dropped: of another user of this machine, or of a process that had gone
  std::uint64_t by_address = 0;     // admitted, or not, by the address, since no user was known
  std::uint64_t silent_closed = 0;  // dropped: silent, and file descriptors were scarce
  std::uint64_t open = 0;           // connections open now
  std::array<std::uint64_t, 19> requests = {};  // by Op's number; WATCH_KEY under 0
  std::uint64_t bytes_in = 0;
  std::uint64_t bytes_out = 0;
  std::size_t held_bytes = 0;  // allocated for incomplete requests and unread answers, now
  StoreSize size;
};

class StoreServer {
 public:
  struct Options {
    std::size_t max_bytes = kMaxStoreBytes;  // kept at most (StoreSize::bytes); held bytes may be as many again
    bool any_user = false;                   // admits every user of this machine
    // What the line about a refused user says to do: "give --any-user to admit all users".
    std::string other_users_hint = {};
    std::chrono::milliseconds preface_limit = kPrefaceLimit;
    // Receives why a connection was closed: "store: closed 10.0.0.7:4711: unknown operation 71". Called on the server's
    // thread, at most once a second; must not block.
    std::function<void(const std::string& line)> log = {};
    // Takes over a connection whose first byte is kAgentLinkByte: the socket (non-blocking, CLOEXEC) and everything
    // that was received on it so far, which is nothing when reset() came first. Called on the server's thread; must not
    // block. If there is no function, such a connection is nonsense.
    std::function<void(Descriptor socket, std::string first_bytes)> on_agent_link = {};
    // Asks the node that a connection comes from whose it is (net/connection_owner.hpp); take_owner() has the answer.
    // Called on the server's thread, again and again until there is one; must not block. Used after admit_only(); if
    // there is no function, a client from another machine may in by its address alone.
    std::function<void(const std::string& connection)> ask_owner = {};
    // Has the number of open connections whose first bytes were those of a client, if somebody wants to know: in memory
    // that outlives this process.
    std::atomic<int>* clients = nullptr;
  };

  // Listens on all these addresses at one port; 0 means a free one. Throws as listen_on does (net/listen.hpp).
  StoreServer(const std::vector<std::string>& numeric_addresses, std::uint16_t port)
      : StoreServer(numeric_addresses, port, Options()) {}
  StoreServer(const std::vector<std::string>& numeric_addresses, std::uint16_t port, Options options);
  StoreServer(Listeners listeners, Options options);
  ~StoreServer();  // closes all connections at once
  StoreServer(const StoreServer&) = delete;
  StoreServer& operator=(const StoreServer&) = delete;

  std::uint16_t port() const { return port_; }

  // Begins a new round: closes every connection, also those not accepted yet, and empties the store before it returns.
  // Agent links survive a reset: one that has sent its first byte but is still here is handed over first.
  void reset();

  // Admits only clients from these addresses once it returns; others are dropped at their first bytes. Addresses are
  // compared as numbers, v4-mapped ones as v4. If 127.0.0.1 is among them, so is a client whose address is the one that
  // it connects to, since it is on this machine. An empty list admits no client; without any call, all are admitted.
  // Clients that have spoken before stay, and agent links are not affected. Text that is not a numeric address is
  // ignored.
  void admit_only(const std::vector<std::string>& numeric_addresses);

  // Takes an owner_answer(), and returns at once. Only clients of the user of the node's ddprun, or root's, may in, and
  // those whose user nobody knows.
  void take_owner(const std::string& answer);

  // Sets a key as a client would. The key is as on the wire ("/ddprun/failure"). Returns at once; calls keep their
  // order.
  void set(const std::string& key, const std::string& value);

  StoreStatistics statistics() const;

 private:
  class Loop;
  std::uint16_t port_ = 0;
  std::unique_ptr<Loop> loop_;
};

}  // namespace ddp::rendezvous
