// SPDX-License-Identifier: BSD-3-Clause
#include "rendezvous/kept/kept_core.hpp"

#include <algorithm>
#include <numeric>
#include <utility>

namespace ddp::rendezvous {
namespace {

using Workers = std::vector<KeptFacts>;

bool has_begun_record(const KeptFacts& worker, std::int64_t step) {
  return worker.begun_records[KeptPlaces::slot(step)] == step;
}

bool has_done_record(const KeptFacts& worker, std::int64_t step) {
  return step >= 0 && worker.done_records[KeptPlaces::slot(step)] == step;
}

std::string rank_of(const KeptFacts& worker) { return "rank " + std::to_string(worker.rank); }

KeptPlan nowhere(std::string why) {
  KeptPlan plan;
  plan.reason = std::move(why);
  return plan;
}

// Returns why memory of these workers, which are to have these ranks, cannot belong together; empty: it can.
std::string why_not_together(const Workers& workers, const std::vector<int>& ranks, int world_size) {
  for (std::size_t i = 0; i < workers.size(); ++i) {
    const KeptFacts& worker = workers[i];
    if (!worker.is_there) return "rank " + std::to_string(ranks[i]) + " has kept nothing";
    if (worker.rank != ranks[i] || worker.world_size != world_size) {
      return "the memory of rank " + std::to_string(ranks[i]) + " of " + std::to_string(world_size) +
             " was kept by rank " + std::to_string(worker.rank) + " of " + std::to_string(worker.world_size);
    }
    const KeptFacts& first = workers.front();
    if (worker.layout != first.layout || worker.tensor_bytes != first.tensor_bytes) {
      return rank_of(worker) + " has kept other tensors than " + rank_of(first);
    }
    if (worker.is_sharded != first.is_sharded) {
      return "of " + rank_of(worker) + " and " + rank_of(first) + " one has kept tensors that no other rank has";
    }
    if (worker.done == kNoStep) return rank_of(worker) + " had not come to its first step";
  }
  return "";
}

// Marks who takes the source's tensors, and says so.
void copy_from(KeptPlan& plan, const Workers& workers, std::size_t source, std::int64_t step) {
  plan.source = static_cast<int>(source);
  std::string takers;
  for (const KeptFacts& worker : workers) {
    const bool copies = !(worker.is_whole() && worker.begun == step);
    plan.copies.push_back(copies);
    if (copies) takers += (takers.empty() ? "" : ", ") + rank_of(worker);
  }
  if (!takers.empty()) plan.reason += "; the tensors of " + rank_of(workers[source]) + " go to " + takers;
}

KeptPlan go_back(const Workers& workers, std::size_t source) {
  KeptPlan plan;
  plan.step = workers[source].begun;
  plan.go_on = GoOn::AfterStep;
  plan.reason = "every rank goes on after step " + std::to_string(plan.step) + ", since " + rank_of(workers[source]) +
                " had not begun the next update";
  for (const KeptFacts& worker : workers) {
    if (!has_done_record(worker, plan.step)) return nowhere(rank_of(worker) + " has no record of that step");
  }
  copy_from(plan, workers, source, plan.step);
  return plan;
}

KeptPlan go_on_with(const Workers& workers, std::size_t source) {
  const std::int64_t step = workers[source].begun;
  KeptPlan plan;
  plan.step = step;
  const bool all_done = std::all_of(workers.begin(), workers.end(), [&](const KeptFacts& worker) {
    return worker.done == step && has_done_record(worker, step);
  });
  plan.go_on = all_done ? GoOn::AfterStep : GoOn::WithinStep;
  plan.reason = all_done ? "every rank goes on after step " + std::to_string(step)
                         : "every rank does step " + std::to_string(step) + " again, whose update is complete";
  for (const KeptFacts& worker : workers) {
    if (all_done || (has_begun_record(worker, step) && has_done_record(worker, step - 1))) continue;
    return nowhere(rank_of(worker) + " has no record of step " + std::to_string(step));
  }
  copy_from(plan, workers, source, step);
  return plan;
}

// Returns the index of the worker whose shadow has a part, after this step; -1: there is none.
int holder_of(const Workers& workers, std::int64_t part, std::int64_t step) {
  const auto holds = [&](const KeptFacts& worker) {
    return worker.shadow_part == part && worker.shadow_parts == workers.front().shadow_parts && worker.shadow == step;
  };
  const auto found = std::find_if(workers.begin(), workers.end(), holds);
  return found == workers.end() ? -1 : static_cast<int>(found - workers.begin());
}

KeptPlan go_back_with_shadow(const Workers& workers, std::int64_t newest) {
  const std::int64_t step = workers.front().shadow, parts = workers.front().shadow_parts;
  const std::string torn =
      "every rank was within update " + std::to_string(newest) + ", so that none has whole tensors";
  if (parts == 0) return nowhere(torn + " (--keep-memory=shadow would have a copy)");
  if (step < 0 || parts < 0 || static_cast<std::size_t>(parts) > workers.size()) {
    return nowhere(torn + ", and the shadow is not complete");
  }
  KeptPlan plan;
  plan.step = step;
  plan.go_on = GoOn::AfterStep;
  plan.reason = "every rank goes on after step " + std::to_string(step) + ": " + torn +
                ", and the tensors are put together from the shadow";
  for (const KeptFacts& worker : workers) {
    if (worker.begun != step && worker.begun != step + 1) {
      return nowhere(torn + ", and the shadow is of step " + std::to_string(step));
    }
    if (!has_done_record(worker, step)) return nowhere(rank_of(worker) + " has no record of that step");
  }
  for (std::int64_t part = 0; part < parts; ++part) {
    plan.parts.push_back(holder_of(workers, part, step));
    if (plan.parts.back() < 0) return nowhere(torn + ", and a part of the shadow is missing");
  }
  plan.copies.assign(workers.size(), true);
  return plan;
}

// ---- Tensors of a rank's own ----

bool is_whole_after(const KeptFacts& worker, std::int64_t step) { return worker.is_whole() && worker.begun == step; }

// Returns whether the worker's own tensors after this step are there, in their place or in its shadow.
bool has_own_after(const KeptFacts& worker, std::int64_t step) {
  const bool has_shadow = worker.shadow_parts > 0 && worker.shadow == step;
  return is_whole_after(worker, step) || (has_shadow && (worker.begun == step || worker.begun == step + 1));
}

// Returns why not all ranks can go on after update `newest`, nor go back before it.
std::string why_no_own(const Workers& workers, std::int64_t newest) {
  const auto lacks_own = [&](const KeptFacts& worker) { return !has_own_after(worker, newest - 1); };
  const auto is_whole = [&](const KeptFacts& worker) { return is_whole_after(worker, newest); };
  const auto hint = [](const KeptFacts& worker) {
    return worker.shadow_parts == 0 ? " (--keep-memory=shadow would have a copy)"
                                    : ", and its shadow is of another step";
  };
  const std::string update = " update " + std::to_string(newest);
  const auto torn = std::find_if(workers.begin(), workers.end(),
                                 [&](const KeptFacts& worker) { return lacks_own(worker) && !is_whole(worker); });
  if (torn != workers.end()) {
    return rank_of(*torn) + " was within" + update + ", and no other rank has its own tensors" + hint(*torn);
  }
  const auto through = std::find_if(workers.begin(), workers.end(), lacks_own);
  const auto behind = std::find_if_not(workers.begin(), workers.end(), is_whole);
  if (through == workers.end() || behind == workers.end()) return "the ranks' tensors are of no step";
  return rank_of(*behind) + " was not through with" + update + ", and " + rank_of(*through) +
         ", which was, has no copy of its own tensors from before it" + hint(*through);
}

// Has all go on after a step after which each worker's own tensors are there.
KeptPlan go_back_with_own(const Workers& workers, std::int64_t step) {
  KeptPlan plan;
  plan.step = step;
  plan.go_on = GoOn::AfterStep;
  plan.restores_own = true;
  std::string takers;
  for (std::size_t i = 0; i < workers.size(); ++i) {
    if (!has_done_record(workers[i], step)) return nowhere(rank_of(workers[i]) + " has no record of that step");
    const bool is_whole = is_whole_after(workers[i], step);
    if (is_whole) plan.source = static_cast<int>(i);
    plan.copies.push_back(!is_whole);
    if (!is_whole) takers += (takers.empty() ? "" : ", ") + rank_of(workers[i]);
  }
  plan.reason = "every rank goes on after step " + std::to_string(step) + "; tensors that no other rank has are " +
                "taken from the shadow by " + takers;
  const KeptFacts& first = workers.front();
  if (plan.source >= 0 || first.tensor_bytes == 0) return plan;
  for (std::int64_t part = 0; part < first.shadow_parts; ++part) {
    plan.parts.push_back(holder_of(workers, part, step));
    if (plan.parts.back() < 0) return nowhere("a part of the shadow of step " + std::to_string(step) + " is missing");
  }
  return plan;
}

KeptPlan plan_with_own(const Workers& workers, std::int64_t newest) {
  const auto all = [&](const auto& holds) { return std::all_of(workers.begin(), workers.end(), holds); };
  if (all([&](const KeptFacts& worker) { return is_whole_after(worker, newest); })) return go_on_with(workers, 0);
  // A rank that was killed while it took its tensors back may have begun no later step than the one it goes back to.
  for (const std::int64_t step : {newest, newest - 1}) {
    if (step >= 0 && all([&](const KeptFacts& worker) { return has_own_after(worker, step); })) {
      return go_back_with_own(workers, step);
    }
  }
  return nowhere(why_no_own(workers, newest));
}

// Decides for workers whose memory belongs together.
KeptPlan plan_together(const Workers& workers) {
  std::int64_t newest = 0;
  for (const KeptFacts& worker : workers) newest = std::max(newest, worker.begun);
  const auto whole_at = [&](std::int64_t step) {
    return std::find_if(workers.begin(), workers.end(),
                        [&](const KeptFacts& worker) { return worker.is_whole() && worker.begun == step; });
  };
  for (const KeptFacts& worker : workers) {
    if (worker.begun >= newest - 1) continue;
    return nowhere(rank_of(worker) + " was at update " + std::to_string(worker.begun) + " and another rank at " +
                   std::to_string(newest) + ": they are not in step");
  }
  if (workers.front().is_sharded) return plan_with_own(workers, newest);
  if (const auto behind = whole_at(newest - 1); behind != workers.end()) {
    return go_back(workers, static_cast<std::size_t>(behind - workers.begin()));
  }
  if (const auto through = whole_at(newest); through != workers.end()) {
    return go_on_with(workers, static_cast<std::size_t>(through - workers.begin()));
  }
  return go_back_with_shadow(workers, newest);
}

}  // namespace

KeptFacts facts_of(const KeptHeader& header) {
  KeptFacts facts;
  facts.is_there = header.version == kKeptVersion;
  facts.layout = header.layout;
  facts.tensor_bytes = header.tensor_bytes;
  facts.record_bytes = header.record_bytes;
  facts.rank = header.rank;
  facts.world_size = header.world_size;
  facts.begun = header.begun.load(std::memory_order_acquire);
  facts.updated = header.updated.load(std::memory_order_acquire);
  facts.done = header.done.load(std::memory_order_acquire);
  for (std::size_t i = 0; i < 2; ++i) {
    facts.begun_records[i] = header.begun_records[i].load(std::memory_order_acquire);
    facts.done_records[i] = header.done_records[i].load(std::memory_order_acquire);
  }
  facts.shadow_part = header.shadow_part;
  facts.shadow_parts = header.shadow_parts;
  facts.shadow = header.shadow.load(std::memory_order_acquire);
  facts.own_bytes = header.own_bytes;
  facts.is_sharded = header.is_sharded != 0;
  return facts;
}

KeptPlan plan_recovery(const Workers& workers, int base_rank, int world_size) {
  if (workers.empty()) return nowhere("no worker has kept anything");
  std::vector<int> ranks(workers.size());
  std::iota(ranks.begin(), ranks.end(), base_rank);
  if (std::string why = why_not_together(workers, ranks, world_size); !why.empty()) return nowhere(std::move(why));
  return plan_together(workers);
}

KeptPlan plan_recovery_of_job(const Workers& workers) {
  Workers there;
  std::vector<int> ranks;
  std::string others;
  for (std::size_t rank = 0; rank < workers.size(); ++rank) {
    if (workers[rank].is_there) {
      there.push_back(workers[rank]);
      ranks.push_back(static_cast<int>(rank));
    } else {
      others += (others.empty() ? "rank " : ", rank ") + std::to_string(rank);
    }
  }
  if (there.empty()) return nowhere("no rank has kept anything");
  const auto size = static_cast<int>(workers.size());
  if (std::string why = why_not_together(there, ranks, size); !why.empty()) return nowhere(std::move(why));
  KeptPlan plan = plan_together(there);
  if (!others.empty() && there.front().is_sharded) {
    return nowhere(others + " has kept nothing, and no other rank has its own tensors");
  }
  if (others.empty() || !plan.usable()) return plan;
  if (plan.source < 0) return nowhere(others + " has kept nothing, and no rank has whole tensors");
  plan.source = ranks[static_cast<std::size_t>(plan.source)];
  plan.reason += "; " + others + " had nothing, and gets tensors and records of rank " + std::to_string(plan.source);
  plan.fills.assign(workers.size(), true);
  std::vector<bool> copies(workers.size(), true);
  for (std::size_t i = 0; i < there.size(); ++i) {
    copies[static_cast<std::size_t>(ranks[i])] = plan.copies[i];
    plan.fills[static_cast<std::size_t>(ranks[i])] = false;
  }
  plan.copies = std::move(copies);
  return plan;
}

bool is_update_worth_finishing(const KeptFacts& worker) {
  return !worker.is_whole() && !(worker.is_sharded && worker.shadow_parts > 0);
}

}  // namespace ddp::rendezvous
