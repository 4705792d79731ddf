// SPDX-License-Identifier: BSD-3-Clause
// Lets visitors in at a listening socket. Where no descriptor is left for one, it waits a second and tries again, so
// that an agent without descriptors does not spin. Everything happens on io's thread.
#pragma once

#include <functional>

#include "rendezvous/base/descriptor.hpp"
#include "rendezvous/net/asio.hpp"

namespace ddp::launcher {

class Entrance {
 public:
  using Welcome = std::function<void(rendezvous::Descriptor visitor)>;

  // `listener` does not block. Nor do the visitors' sockets.
  Entrance(rendezvous::asio::io_context& io, rendezvous::Descriptor listener, Welcome welcome);
  Entrance(const Entrance&) = delete;
  Entrance& operator=(const Entrance&) = delete;

  // Lets nobody in any more, so that nothing here keeps io running.
  void close();

 private:
  void wait_for_visitor();
  void let_in();

  const Welcome welcome_;
  rendezvous::asio::posix::stream_descriptor listener_;
  rendezvous::asio::steady_timer pause_;  // after a visitor that could not be let in
};

}  // namespace ddp::launcher
