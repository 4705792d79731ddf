// SPDX-License-Identifier: BSD-3-Clause
#include "rendezvous/etcd/revoke.hpp"

#include "rendezvous/net/asio.hpp"

namespace ddp::rendezvous {

void revoke_lease(const EtcdSettings& settings, LeaseId lease, std::chrono::milliseconds within) {
  asio::io_context io{1};
  EtcdClient client(io, settings);
  client.ask(RevokeLease{lease}, [&io](const EtcdOutcome&) { io.stop(); });
  io.run_for(within);
}

}  // namespace ddp::rendezvous
