// SPDX-License-Identifier: BSD-3-Clause
// What the nodes of a job agree on that an MPI's starter has started: where they meet, and a secret.
#pragma once

#include <optional>

#include "rendezvous/membership/secret.hpp"
#include "rendezvous/process_manager/meeting_point.hpp"

namespace ddp::launcher {

struct Agreement {
  rendezvous::MeetingPoint point;
  std::optional<rendezvous::Secret> secret = {};  // a new one, which only processes of this starter know
};

// Must be called before there are threads. Removes the variables of the starter from the environment: it is done with
// this process, and workers that found them would take themselves for its ranks. Throws rendezvous::Error.
Agreement agree_by_starter(rendezvous::KeyValueStore store, int node_rank);

}  // namespace ddp::launcher
