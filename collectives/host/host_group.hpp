// SPDX-License-Identifier: BSD-3-Clause
// A group of the backend "ddp" in one process: its segment, its place in it, and what moves data.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "collectives/host/memory/membership.hpp"
#include "collectives/host/memory/peer_watch.hpp"
#include "collectives/host/memory/segment.hpp"
#include "collectives/host/memory/waiting.hpp"
#include "collectives/host/nodes/formation.hpp"
#include "collectives/host/nodes/network.hpp"
#include "collectives/host/operations/collectives.hpp"
#include "collectives/host/operations/messages.hpp"

struct ddp_backend_group {
 public:
  using Segment = ddp::collectives::Segment;

  // Enters a group whose ranks all share memory. `segment` may be shared with other ranks of this process.
  ddp_backend_group(const std::shared_ptr<const Segment>& segment, std::uint32_t rank,
                    std::vector<std::int32_t> job_ranks, std::uint32_t ranks_on_node,
                    std::optional<ddp::collectives::Layout> numa = {});
  // Enters a group that was formed. `plan` is null if all of its ranks share memory.
  ddp_backend_group(std::shared_ptr<const Segment> segment, std::uint32_t place, std::vector<std::uint32_t> ranks,
                    std::vector<std::int32_t> job_ranks, std::uint32_t ranks_on_node,
                    std::unique_ptr<ddp::collectives::OtherNodesPlan> plan, ddp::rendezvous::Descriptor alarm,
                    std::optional<ddp::collectives::Layout> numa);
  ~ddp_backend_group();
  ddp_backend_group(const ddp_backend_group&) = delete;
  ddp_backend_group& operator=(const ddp_backend_group&) = delete;

  // Learns from now on of the ends of the other ranks' processes. Throws Failure.
  void watch(std::vector<ddp::rendezvous::Descriptor> lifelines, ddp::rendezvous::Descriptor own_lifeline);
  // Links this rank to those on other nodes.
  void link(const ddp::collectives::Notes& notes);
  void abort();

  // Begins a collective, see Steps::start().
  void start(std::uint32_t what, std::int64_t timeout_ms) { collectives->start(what, timeout_ms, most_looks()); }
  std::uint32_t size() const { return network != nullptr ? network->layout().size() : membership.size(); }

  // How often a wait may look before it sleeps: 0 if this rank has no CPU of its own, or before all ranks have entered.
  int most_looks();

  static std::uint32_t live_groups() { return live_groups_; }

 private:
  inline static std::atomic<std::uint32_t> live_groups_{0};  // in this process
  const std::shared_ptr<const Segment> segment_;
  const std::uint32_t ranks_on_node_;

 public:
  ddp::collectives::Membership membership;
  const std::unique_ptr<ddp::collectives::Network> network;  // null if all ranks share memory
  const std::unique_ptr<ddp::collectives::Collectives> collectives;
  ddp::collectives::Messages messages;
  std::vector<std::size_t> input_bytes, output_bytes;  // the running collective's sizes by rank

 private:
  std::atomic<int> most_looks_{-1};
  std::shared_ptr<ddp::collectives::PeerWatch> peer_watch_;
  std::vector<std::uint64_t> watched_;
  ddp::rendezvous::Descriptor own_lifeline_;
};
