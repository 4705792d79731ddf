// SPDX-License-Identifier: BSD-3-Clause
// Decides what the workers of a new round do with the memory that those of the round before left. A pure function of
// the marks of all of them (arena.hpp), for a time at which none of them runs.
//
// It rests on two facts of data-parallel training. A rank begins update s only after all ranks have contributed their
// gradients of step s, so that ranks differ by at most one update. And after an update all ranks have equal tensors, so
// that one rank's can replace another's. Tensors of a rank's own, such as a shard, are another matter: see below.
//
//     a rank has not begun update s, others have        all go back to the end of step s - 1, with its tensors
//     all have begun s, one at least is through         the others take its tensors, and
//         all are done with s                               all go on after step s
//         some are not                                      all do step s again, and its update writes nothing
//     all were within update s                          all go back to the end of step s - 1, with the tensors that the
//                                                       shadow has; without a shadow: the checkpoint
//
// In each case every rank then has the tensors, and the record, that it would have had without the failure.
//
// Why a shadow with room for one step is enough, whatever is killed between whichever two instructions. Each rank
// copies its part after step s - 1 and then marks that update s has begun, in this order. Until the copy is complete
// the rank has not begun update s, so its own tensors are whole. Once it has begun update s its part is of step s - 1,
// until it begins the next update; and that needs all ranks' gradients, so that all are through with update s by then.
// So either a rank has whole tensors, or all ranks are within the same update s and all parts are of step s - 1.
//
// A recovery keeps this up. It writes to tensors only, and the parts stay until a rank begins an update, which it does
// after all ranks have contributed, and so have recovered. A rank that is killed while it recovers is not whole; then
// its `begun` says s, or s - 1 in the instant before its last mark, and the others are as before or whole after s - 1.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "rendezvous/kept/arena.hpp"

namespace ddp::rendezvous {

// What one worker's memory says.
struct KeptFacts {
  bool is_there = false;
  std::uint64_t layout = 0, tensor_bytes = 0, record_bytes = 0;
  std::int64_t rank = 0, world_size = 0;
  std::int64_t begun = kNoStep, updated = kNoStep, done = kNoStep;
  std::array<std::int64_t, 2> begun_records = {kNoStep, kNoStep}, done_records = {kNoStep, kNoStep};
  std::int64_t shadow_part = 0, shadow_parts = 0, shadow = kNoStep;
  std::uint64_t own_bytes = 0;
  bool is_sharded = false;  // a rank of the job has tensors of its own

  // The tensors are those after update `begun`; else the update, or a copy, was under way.
  bool is_whole() const { return begun == updated; }
};

KeptFacts facts_of(const KeptHeader& header);

enum class GoOn {
  Nowhere = 0,    // what was kept cannot be used
  AfterStep = 1,  // with the record `done` of the step
  WithinStep =
      2,  // with the record `done` of the step before; the step is done again, but its update is in the tensors
};

struct KeptPlan {
  GoOn go_on = GoOn::Nowhere;
  std::int64_t step = kNoStep;    // whose update is in the tensors
  int source = -1;                // index of a worker whose tensors are of that step
  std::vector<bool> copies = {};  // by index: whether the worker takes the source's tensors first
  std::vector<bool> fills = {};   // by index: whether it takes the source's records, too, since it has kept nothing
  // For each part of the shadow, the index of the worker that has it. Each worker that copies puts its tensors together
  // from these first. Empty: the parts are not used.
  std::vector<int> parts = {};
  bool restores_own = false;  // whether a worker that copies takes its own tensors from its own shadow
  std::string reason;         // in words, for the log

  bool usable() const { return go_on != GoOn::Nowhere; }
};

// `workers` are those of a node, by local rank; worker i is to have rank base_rank + i of world_size.
KeptPlan plan_recovery(const std::vector<KeptFacts>& workers, int base_rank, int world_size);

// Decides for the workers of all nodes, by rank. Those that have kept nothing, such as the workers of a node that
// replaces a lost one, are filled by one that is whole, if there is one: all ranks have equal tensors after an update.
// Where ranks have tensors of their own, those of a lost node are nowhere, and nothing is used.
KeptPlan plan_recovery_of_job(const std::vector<KeptFacts>& workers);

// Returns whether it is of use that a worker that is within its update gets through it before it is stopped. With a
// shadow of its own tensors it is not: where any rank is torn, all go back.
bool is_update_worth_finishing(const KeptFacts& worker);
}  // namespace ddp::rendezvous
