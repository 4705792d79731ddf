// SPDX-License-Identifier: BSD-3-Clause
/// @file
/// Training that goes on in the processes that live when others fail (`ddprun --on-failure replace` or `shrink`).
#pragma once

#include <cstdint>
#include <type_traits>
#include <vector>

#include "ddp/buffer.hpp"
#include "ddp/ddp.h"
#include "ddp/error.hpp"
#include "ddp/process_group.hpp"
#include "ddp/session.hpp"

namespace ddp {

/// What all ranks have alike after each step, such as parameters and the optimizer's state. A new process gets it from
/// one that has stayed.
struct RunState {
  /// Number of steps that the state is after. The program counts it up as the last thing of a step.
  std::int64_t* step = nullptr;
  /// The memory; part_of_state() makes an entry of an object. What differs between ranks is computed from rank and
  /// step.
  std::vector<Buffer> parts = {};
};

/// Returns an object as a part of RunState::parts.
template <typename T>
Buffer part_of_state(T& object) {
  static_assert(std::is_trivially_copyable_v<T>, "only an object that can be copied as bytes can be sent");
  return Buffer(reinterpret_cast<std::uint8_t*>(&object), sizeof object);
}

namespace detail {

/// Where a rank is: by what it says of itself, the others find whose state they take.
struct RunPlace {
  std::int64_t step = 0;
  std::int64_t has_stayed = 0;
  std::int64_t is_whole = 1;  ///< 0 if it was receiving the state when it was interrupted
};

/// Gives all ranks the state of the rank that has stayed and is farthest; nothing if none has stayed. Ranks that are
/// at its step keep their own, which is the same.
inline void take_state_of_survivor(ProcessGroup world, const RunState& state, RunPlace& mine) {
  mine.step = *state.step;
  std::vector<std::int64_t> all(static_cast<std::size_t>(world.size()) * 3);
  std::int64_t own[3] = {mine.step, mine.has_stayed, mine.is_whole};
  world.all_gather(Buffer(own, 3), Buffer(all.data(), all.size()));
  int source = -1;
  std::int64_t farthest = -1;
  bool any_stayed = false;
  for (int rank = 0; rank < world.size(); ++rank) {
    const std::int64_t* const place = &all[static_cast<std::size_t>(rank) * 3];
    any_stayed = any_stayed || place[1] != 0;
    if (place[1] == 0 || place[2] == 0 || place[0] <= farthest) continue;
    source = rank;
    farthest = place[0];
  }
  if (!any_stayed) return;
  if (source < 0) {
    throw Error(Status::System, "ddp::run: no process that has stayed has a whole state: the job has to start again");
  }
  const bool has_it = mine.has_stayed != 0 && mine.is_whole != 0 && mine.step == farthest;
  if (!has_it) mine.is_whole = 0;
  std::vector<std::uint8_t> unwanted;
  for (const Buffer& part : state.parts) {
    if (!has_it || world.rank() == source) {
      world.broadcast(part, source);
      continue;
    }
    unwanted.resize(part.bytes());  // a rank that has the state is not written to: others may ask it for it next
    world.broadcast(Buffer(unwanted.data(), part.count, part.dtype), source);
  }
  *state.step = farthest;
  mine.is_whole = 1;
}

/// Leaves the round that has ended with this error, and joins the next one. An error that came after another one of its
/// group may not come from a loss: then ddprun ends no round, and the error says what happened.
inline void rejoin(Session& session, const Error& error) {
  try {
    check(ddp_session_rejoin(session.c()));
  } catch (const Error& late) {
    if (late.status() == Status::Timeout && error.status() == Status::Aborted) throw error;
    throw;
  }
}

}  // namespace detail

/// Runs `body` to its end, in spite of other processes' failures: under `ddprun --on-failure replace`, a process whose
/// collective fails since another one has died lives on. run() leaves the groups, waits until new processes have taken
/// the places of those that died, gives all ranks the state of the one that is farthest, and calls `body` again.
/// Under `--on-failure shrink`, in an elastic job, it does so too when a node is lost, leaves or comes: then `body`
/// sees another Session::world_size(), and perhaps another rank. Without ddprun, or without the option, it calls
/// `body` once.
///
///     ddp::run(session, {&step, {weights, ddp::part_of_state(momentum)}}, [&] {
///       ddp::DistributedDataParallel model(session.world(), parameters);
///       while (step < steps) {
///         ...                  // forward, backward, model.synchronize(): may throw
///         optimizer.step();    // changes the state
///         ++step;
///       }
///     });
///
/// What is made of a group is made in `body`: it ends with the group. What is computed from the rank or the world's
/// size, such as this rank's share of the data, is computed in `body`, too, and averages divide by the size there. The
/// state is changed only between a step's last collective and the end of the step: else a step that fails leaves a
/// state that is neither before nor after it. All ranks call run(), as the first that they do with the session; they
/// leave it together. Errors other than Status::PeerLost, and Status::Aborted after it, come out of it, as do these
/// where the process does not stay.
template <typename Body>
void run(Session& session, const RunState& state, Body body) {
  std::int32_t stays = 0;
  detail::check(ddp_session_stay(session.c(), 1, &stays));
  detail::RunPlace place;
  while (true) {
    try {
      detail::take_state_of_survivor(session.world(), state, place);
      body();
      session.world().barrier();  // a rank that is done waits: others may still need its state
      break;
    } catch (const Error& error) {
      // Aborted: an operation was issued after the one that failed, for which nobody has waited yet.
      if (stays == 0 || (error.status() != Status::PeerLost && error.status() != Status::Aborted)) throw;
      place.has_stayed = 1;
      detail::rejoin(session, error);
    }
  }
  if (stays != 0) detail::check(ddp_session_stay(session.c(), 0, &stays));
}

}  // namespace ddp
