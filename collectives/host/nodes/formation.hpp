// SPDX-License-Identifier: BSD-3-Clause
// How a group finds out which of its ranks share memory, and where the others listen. All goes through the store, rank
// 0 gathers, and every rank reads what it publishes, so that the work for the store grows with the ranks and not with
// their square.
//
//     every rank     leaves its place in the store (own_place.hpp)
//     rank 0         publishes the places
//     equal places   try to share memory (meeting.hpp). If all ranks of the group do, that is all: the places say on
//                    which NUMA nodes they are
//     every rank     leaves which rank is the first of its node, and the address where it listens
//     rank 0         publishes those, and two secrets by which ranks know each other
#pragma once

#include <chrono>
#include <memory>
#include <optional>
#include <vector>

#include "collectives/host/memory/meeting.hpp"
#include "collectives/host/nodes/layout.hpp"
#include "collectives/host/nodes/link.hpp"
#include "collectives/host/nodes/own_place.hpp"
#include "ddp/backend.h"

namespace ddp::collectives {

// What a group needs that is on several nodes.
struct OtherNodesPlan {
  Layout layout;
  std::size_t ring_bytes = 0;  // the smallest rings of any node
  std::vector<Endpoint> endpoints;
  LinkSecrets secrets;
  rendezvous::Descriptor listener;
};

struct Formation {
  Met met;
  std::unique_ptr<OtherNodesPlan> others;  // null if all ranks share memory
  std::optional<Layout> numa;              // if they do, and are on several NUMA nodes
};

// Blocks until all ranks have found each other. Throws Failure. Says on stderr which ranks share no memory although
// they are on one machine, and why.
Formation form(const ddp_backend_group_config& config, const OwnPlace& place, const SegmentPlan& plan,
               std::chrono::steady_clock::time_point deadline);

}  // namespace ddp::collectives
