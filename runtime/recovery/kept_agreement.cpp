// SPDX-License-Identifier: BSD-3-Clause
#include "runtime/recovery/kept_agreement.hpp"

#include <algorithm>
#include <cstring>
#include <string>
#include <type_traits>
#include <utility>

#include "runtime/collective/make_operation.hpp"

namespace ddp::runtime {

using rendezvous::KeptFacts;
using rendezvous::KeptPlan;

namespace {

static_assert(std::is_trivially_copyable_v<FoundMemory>);  // ranks of a job are of one release

std::vector<FoundMemory> exchange(ProcessGroup& world, const FoundMemory& own) {
  std::vector<std::uint8_t> mine(sizeof own), all(sizeof own * static_cast<std::size_t>(world.size()));
  std::memcpy(mine.data(), &own, sizeof own);
  world.run(make_all_gather({mine.data(), mine.size(), DDP_UINT8, {}}, {all.data(), all.size(), DDP_UINT8, {}},
                            world.place()));
  std::vector<FoundMemory> found(static_cast<std::size_t>(world.size()));
  for (std::size_t rank = 0; rank < found.size(); ++rank) {
    std::memcpy(&found[rank], all.data() + rank * sizeof own, sizeof own);
  }
  return found;
}

KeptPlan not_used(std::string why) {
  KeptPlan plan;
  plan.reason = std::move(why);
  return plan;
}

// Returns the plan for memory of these ranks, without asking where tensors can be had.
KeptPlan plan_for(const std::vector<FoundMemory>& found, bool is_sharded) {
  std::vector<KeptFacts> memories;
  for (std::size_t rank = 0; rank < found.size(); ++rank) {
    const FoundMemory& its = found[rank];
    if (its.layout != found[0].layout || its.bytes != found[0].bytes || its.record_bytes != found[0].record_bytes)
      return not_used("rank " + std::to_string(rank) + " keeps other tensors than rank 0");
    if (its.memory.is_there && its.memory.is_sharded != is_sharded)
      return not_used("ranks had " + std::string(is_sharded ? "no" : "some") +
                      " tensors of their own when it was kept");
    memories.push_back(its.memory);
  }
  return rendezvous::plan_recovery_of_job(memories);
}

bool any(const std::vector<bool>& flags) { return std::find(flags.begin(), flags.end(), true) != flags.end(); }

}  // namespace

bool KeptAgreement::takes_any_over_network() const { return any(over_network); }
bool KeptAgreement::fills_any() const { return any(plan.fills); }

KeptAgreement agree_on_kept(ProcessGroup& world, const FoundMemory& own) {
  const std::vector<FoundMemory> found = exchange(world, own);
  KeptAgreement agreement;
  agreement.is_sharded =
      std::any_of(found.begin(), found.end(), [](const FoundMemory& its) { return its.own_bytes > 0; });
  agreement.plan = plan_for(found, agreement.is_sharded);
  const KeptPlan& plan = agreement.plan;
  if (!plan.usable()) return agreement;
  for (std::size_t rank = 0; rank < found.size(); ++rank) {
    const bool has_source = plan.source >= found[rank].first_offered && plan.source <= found[rank].last_offered;
    const bool has_them =
        !plan.copies[rank] || found[rank].bytes == 0 || found[rank].offered_step == plan.step || has_source;
    agreement.over_network.push_back(!has_them);
    if (has_them) continue;
    if (plan.source < 0) {
      agreement.plan =
          not_used("rank " + std::to_string(rank) + " has no tensors of step " + std::to_string(plan.step));
      return agreement;
    }
  }
  if (plan.source >= 0) agreement.source = found[static_cast<std::size_t>(plan.source)].memory;
  return agreement;
}

}  // namespace ddp::runtime
