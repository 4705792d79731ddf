// SPDX-License-Identifier: BSD-3-Clause
// Where the nodes of a job meet that an MPI's starter has started, which tells them no address: node rank 0 chooses a
// free port and tells the others.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "rendezvous/link/secret.hpp"
#include "rendezvous/process_manager/exchange.hpp"

namespace ddp::launcher {

struct MeetingPoint {
  std::string host;  // numeric
  std::uint16_t port = 0;
  std::optional<rendezvous::Secret> secret = {};  // a new one, which only processes of this starter know
};

// Returns where node rank 0 can be reached. There the port is this process's until it ends, so that
// nobody else is given it; a socket that allows it (SO_REUSEADDR) can listen on it. Must be called before there are
// threads. The variables of the starter are removed from the environment: it is done with this process, and workers
// that found them would take themselves for its ranks. Throws rendezvous::Error.
MeetingPoint meeting_point(rendezvous::KeyValueStore store, int node_rank);

}  // namespace ddp::launcher
