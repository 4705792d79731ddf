// SPDX-License-Identifier: BSD-3-Clause
// A c10d store that listens: sockets and one thread around c10d_protocol and store_core. The thread blocks asynchronous
// signals, resolves no names, touches no disk and takes no lock; each method may be called from any other thread. It is
// also the front door of the endpoint's one port: agents' links are handed over to who wants them.
//
// What a stranger can do is lose his connection:
//   * nonsense: closed. Half of a first request's first bytes: closed after kPrefaceLimit. Silence is legitimate
//     (PyTorch 1.9 – 2.0 keep a silent connection for each worker), so it has no deadline
//   * a client that does not read its answers is not read from either: it costs kUnsentLimit and one answer
//   * out of file descriptors, or at the last ones, which are kept for the process: clients wait in the backlog
//   * the store's content, and what half requests and unread answers hold, each have a limit in bytes
// Every such end is counted, and one a second is told to Options::log.
#pragma once

#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "rendezvous/base/descriptor.hpp"
#include "rendezvous/store/store_core.hpp"

namespace ddp::rendezvous {

// Unsent answers of one connection. Over the first: no more requests are read from it. Over the second, which only
// pushes to a watcher that never reads can reach: closed.
inline constexpr std::size_t kUnsentLimit = 1024 * 1024;
inline constexpr std::size_t kUnsentHardLimit = kMaxReplyBytes + 2 * kUnsentLimit;
inline constexpr std::chrono::seconds kPrefaceLimit{5};
// A ddprun agent's first byte, for Options::on_agent_link; no c10d client begins with it.
inline constexpr char kAgentLinkByte = '\xdd';
// Gloo of PyTorch 1.13 leaves 142 MB in the store of 1,024 ranks, the largest known user; nobody legitimate needs this.
inline constexpr std::size_t kMaxStoreBytes = std::size_t{4} << 30;

struct StoreStatistics {
  std::uint64_t accepted = 0;                   // connections, ever
  std::uint64_t dropped = 0;                    // of them, those that the server ended, and not reset()
  std::uint64_t agent_links = 0;                // of them, those handed over
  std::uint64_t open = 0;                       // now
  std::array<std::uint64_t, 19> requests = {};  // by Op's number; WATCH_KEY under 0
  std::uint64_t bytes_in = 0;
  std::uint64_t bytes_out = 0;
  std::size_t held_bytes = 0;  // of half requests and unread answers, now
  StoreSize size;
};

class StoreServer {
 public:
  struct Options {
    std::size_t max_bytes = kMaxStoreBytes;  // of content; as much again for what is held
    std::chrono::milliseconds preface_limit = kPrefaceLimit;
    // Told why a connection was closed: "store: closed 10.0.0.7:4711: unknown operation 71". Called on the server's
    // thread, at most once a second; must not block.
    std::function<void(const std::string& line)> log = {};
    // Takes over a connection whose first byte is kAgentLinkByte: the descriptor (non-blocking, CLOEXEC) and all that
    // was received on it so far, which is nothing when reset() came first; the server has forgotten it. Called on the
    // server's thread, must not block. None: such a connection is nonsense.
    std::function<void(Descriptor socket, std::string first_bytes)> on_agent_link = {};
  };

  // Listens on all these addresses at one port; 0: a free one. Throws as listen_on does (net/listen.hpp).
  StoreServer(const std::vector<std::string>& numeric_addresses, std::uint16_t port)
      : StoreServer(numeric_addresses, port, Options()) {}
  StoreServer(const std::vector<std::string>& numeric_addresses, std::uint16_t port, Options options);
  ~StoreServer();  // at once, whoever is connected
  StoreServer(const StoreServer&) = delete;
  StoreServer& operator=(const StoreServer&) = delete;

  std::uint16_t port() const { return port_; }

  // A new round: every connection is closed, those not accepted yet included, and the store is empty when this returns.
  // Agent links are none of the round's: those not handed over yet are, if their first byte is there.
  void reset();

  // From when this returns: only clients from these addresses, compared as numbers, v4-mapped ones as v4; others are
  // dropped at their first bytes. With 127.0.0.1 among them also whoever connects to an address from that very address,
  // who is on this machine. An empty list: nobody. Never called: everyone. Who has spoken before stays, agent links are
  // not meant. What is not a numeric address lets nobody in.
  void admit_only(const std::vector<std::string>& numeric_addresses);

  // Sets a key as a client would; key as on the wire ("/ddprun/failure"). Returns at once; calls keep their order.
  void set(const std::string& key, const std::string& value);

  StoreStatistics statistics() const;

 private:
  class Loop;
  std::uint16_t port_ = 0;
  std::unique_ptr<Loop> loop_;
};

}  // namespace ddp::rendezvous
