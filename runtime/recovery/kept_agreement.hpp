// SPDX-License-Identifier: BSD-3-Clause
// What all ranks of a job do with the kept memory that they have found, on however many nodes. Each agent plans for its
// own node and hands out memory accordingly; here the ranks compare what they got, and decide for the whole job.
#pragma once

#include <cstdint>
#include <vector>

#include "rendezvous/kept/kept_core.hpp"
#include "runtime/group/process_group.hpp"

namespace ddp::runtime {

// What one rank wants to keep, and what it has found.
struct FoundMemory {
  std::uint64_t layout = 0, bytes = 0, record_bytes = 0;  // what is equal on all ranks
  std::uint64_t own_bytes = 0;                            // what only this rank has
  // The step of the tensors that the agent offers this rank, in another rank's memory or in the shadow's parts.
  std::int64_t offered_step = rendezvous::kNoStep;
  std::int64_t first_offered = 0, last_offered = -1;  // ranks whose memory the agent offers besides
  rendezvous::KeptFacts memory = {};                  // is_there: the memory is of this layout
};

struct KeptAgreement {
  rendezvous::KeptPlan plan;
  // By rank: it takes the tensors of plan.source over the network, since its agent has none that are equal.
  std::vector<bool> over_network = {};
  rendezvous::KeptFacts source = {};  // what plan.source has
  bool is_sharded = false;            // a rank has tensors of its own

  bool takes_any_over_network() const;
  bool fills_any() const;
};

// Compares with all other ranks; a collective. Throws rendezvous::Error.
KeptAgreement agree_on_kept(ProcessGroup& world, const FoundMemory& own);

}  // namespace ddp::runtime
