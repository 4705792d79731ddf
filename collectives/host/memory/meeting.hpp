// SPDX-License-Identifier: BSD-3-Clause
// How ranks come to share a segment. The first of them makes it, listens on an abstract Unix socket, and leaves in the
// store where: a random name, and a nonce. Each other rank connects, proves that it knows the nonce, and gets the
// segment's descriptor. Abstract sockets reach only processes of one network namespace, and descriptors only one
// kernel. So ranks share a node if and only if this works; no host name or LOCAL_WORLD_SIZE is asked.
//
//     rank r -> first rank   hello: nonce, r          with a lifeline: a descriptor that shows when its process ends
//     first rank -> rank r   welcome: who is apart    with the segment; with the alarm, if the group has other nodes
//     first rank -> rank r   lifelines of all ranks   in pieces, since a message carries at most 253 descriptors
//
// Both sides refuse a peer of another user (SO_PEERCRED). A rank that cannot connect says so in the store and goes on
// alone, as a node of its own.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "collectives/host/memory/notes.hpp"
#include "collectives/host/memory/segment.hpp"
#include "rendezvous/base/descriptor.hpp"

namespace ddp::collectives {

struct Met {
  std::unique_ptr<Segment> segment;
  std::vector<std::uint32_t> ranks;  // the ranks that share the segment, by place, as numbers in the group
  // By place; this rank's own is empty. Readable once that rank's process has ended.
  std::vector<rendezvous::Descriptor> lifelines;
  rendezvous::Descriptor own_lifeline;  // keep it open as long as this rank is in the group
  // An eventfd of the node, which becomes readable when a rank is lost; none if all ranks of the group share memory.
  rendezvous::Descriptor alarm;
  std::string why_apart;  // why this rank shares no memory with the others, if they expected it
};

// Blocks until this rank has met those of `ranks`, which are in ascending order and include it, that it can share
// memory with. The first one makes a segment after `plan`. Throws Failure.
Met meet(std::uint32_t rank, const std::vector<std::uint32_t>& ranks, std::size_t group_size, const SegmentPlan& plan,
         const Notes& notes);

}  // namespace ddp::collectives
