// SPDX-License-Identifier: BSD-3-Clause
// How the ranks of a group come to share a segment. Rank 0 makes it, listens on an abstract Unix socket, and leaves in
// the store where: a random name, and a nonce. Each other rank connects, proves that it knows the nonce, and gets the
// segment's descriptor. Abstract sockets reach only processes of one network namespace, and descriptors only one
// kernel. So ranks share a node if and only if this works; no host name or LOCAL_WORLD_SIZE is asked.
//
//     rank r -> rank 0   hello: nonce, r            with a lifeline: a descriptor that shows when rank r's process ends
//     rank 0 -> rank r   welcome                    with the segment
//     rank 0 -> rank r   lifelines of all ranks     in pieces, since a message carries at most 253 descriptors
//
// Both sides refuse a peer of another user (SO_PEERCRED).
#pragma once

#include <chrono>
#include <vector>

#include "collectives/host/segment.hpp"
#include "ddp/backend.h"
#include "rendezvous/base/descriptor.hpp"

namespace ddp::collectives {

struct Met {
  Segment segment;
  // By rank; this rank's own is empty. Readable once that rank's process has ended.
  std::vector<rendezvous::Descriptor> lifelines;
  rendezvous::Descriptor own_lifeline;  // keep it open as long as this rank is in the group
};

// Blocks until this rank has met all others. `plan` is what rank 0 makes. Throws Failure.
Met meet(const ddp_backend_group_config& config, const SegmentPlan& plan,
         std::chrono::steady_clock::time_point deadline);

}  // namespace ddp::collectives
