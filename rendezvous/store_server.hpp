// SPDX-License-Identifier: BSD-3-Clause
// A c10d store that listens: sockets and one thread around c10d_protocol and store_core. The thread blocks all signals,
// resolves no names, touches no disk and takes no lock; each method may be called from any other thread.
//
// A client that sends nonsense loses its connection and nobody else notices. A client that does not read its answers is
// not read from either, so it costs at most kUnsentLimit and one answer. Out of file descriptors: clients wait in the
// backlog until one is free.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "rendezvous/store_core.hpp"

namespace ddp::rendezvous {

// Unsent answers of one connection. Over the first: no more requests are read from it. Over the second, which only
// pushes to a watcher that never reads can reach: closed.
inline constexpr std::size_t kUnsentLimit = 1024 * 1024;
inline constexpr std::size_t kUnsentHardLimit = kMaxReplyBytes + 2 * kUnsentLimit;

class StoreServer {
 public:
  // Listens on all these addresses at one port; 0: a free one. Throws as listen_on does (net/listen.hpp).
  StoreServer(const std::vector<std::string>& numeric_addresses, std::uint16_t port);
  ~StoreServer();  // at once, whoever is connected
  StoreServer(const StoreServer&) = delete;
  StoreServer& operator=(const StoreServer&) = delete;

  std::uint16_t port() const { return port_; }

  // A new round: every connection is closed, those not accepted yet included, and the store is empty when this returns.
  void reset();

  // Sets a key as a client would; key as on the wire ("/ddprun/failure"). Returns at once; calls keep their order.
  void set(std::string key, std::string value);

 private:
  class Loop;
  std::uint16_t port_ = 0;
  std::unique_ptr<Loop> loop_;
};

}  // namespace ddp::rendezvous
