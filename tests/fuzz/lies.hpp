// SPDX-License-Identifier: BSD-3-Clause
// Changes one thing in a message, as a script says: what a broken or lying peer might send.
#pragma once

#include <string>

#include "rendezvous/link/messages.hpp"
#include "tests/fuzz/script.hpp"

namespace ddp::fuzz {

inline std::string absurd_text(Script& script) {
  switch (const int kind = script.byte(); kind % 8) {
    case 0:
      return "";
    case 1:
      return "10.0.0." + std::to_string(kind);
    case 2:
      return "\x1b]0;x\a\x1b[2J\nz";
    case 3:
      return std::string("a\0b", 3);
    case 4:
      return std::string(static_cast<std::size_t>(kind) * 16, 'x');
    case 5:
      return "n" + std::to_string(kind / 64);  // another node's name
    default:
      return std::string(script.bytes(static_cast<std::size_t>(kind % 16)));
  }
}

inline rendezvous::WorkerFailure absurd_failure(Script& script, const std::string& host) {
  rendezvous::WorkerFailure failure;
  const unsigned what = script.byte();
  failure.rank = script.number();
  failure.local_rank = what & 1 ? script.number() : failure.rank;
  failure.host = what & 2 ? absurd_text(script) : host;
  failure.status = {.code = what & 4 ? script.number() : 1, .signal = what & 8 ? script.number() : 0};
  if (what & 8 && (what & 4) == 0) failure.status.code = 0;
  failure.already_exiting = what & 16;
  failure.stopped_by_ddprun = what & 32;
  failure.never_ran = (what & 192) == 192;
  if (what & 64) failure.message = absurd_text(script);
  if (what & 128) failure.stderr_tail.assign(script.byte() % 32, absurd_text(script));
  return failure;
}

inline void change(rendezvous::AgentState& state, Script& script) {
  using rendezvous::WorkersPhase;
  switch (script.byte() % 22) {
    case 0:
      state.job.id = absurd_text(script);
      break;
    case 1:
      state.job.min_nodes = script.number();
      break;
    case 2:
      state.job.max_nodes = script.number();
      break;
    case 3:
      state.job.max_restarts = script.number();
      break;
    case 4:
      state.job.node_ranks_given = !state.job.node_ranks_given;
      break;
    case 5:
      state.epoch = absurd_text(script);
      if (script.byte() % 4 == 0) state.instance = absurd_text(script);
      break;
    case 6:
      state.incarnation = absurd_text(script);
      break;
    case 7:
      state.host = absurd_text(script);
      break;
    case 8:
      state.addresses.assign(script.byte(), absurd_text(script));
      break;
    case 9:
      state.endpoint_host = absurd_text(script);
      break;
    case 10:
      state.coordinator_address = absurd_text(script);
      break;
    case 11:
      state.node_rank = script.number();
      break;
    case 12:
      state.role = absurd_text(script);
      break;
    case 13:
      state.slots = script.number();
      break;
    case 14:
      state.round = script.number();
      break;
    case 15:
      state.phase = static_cast<WorkersPhase>(script.byte() % 3);
      break;
    case 16:
      state.succeeded = !state.succeeded;
      break;
    case 17:
      state.failures.push_back(absurd_failure(script, state.host));
      break;
    case 18:
      state.stopped_because = absurd_text(script);
      state.hang = static_cast<rendezvous::Hang>(script.byte() % 4);
      break;
    case 19:
      state.stop_signal = script.number();
      break;
    case 20:
      state.unkillable.push_back(script.number());
      break;
    case 21:
      state.left = !state.left;
      break;
  }
}

inline void change(rendezvous::Directive& directive, Script& script) {
  rendezvous::Assignment& place = directive.assignment;
  switch (script.byte() % 20) {
    case 0:
      directive.kind = static_cast<rendezvous::Directive::Kind>(script.byte() % 4);
      break;
    case 1:
      directive.epoch = absurd_text(script);
      if (script.byte() % 4 == 0) directive.instance = absurd_text(script);
      break;
    case 2:
      directive.lost_after = std::chrono::milliseconds(script.number());
      break;
    case 3:
      directive.lost_after = std::chrono::milliseconds(INT64_MAX / (script.byte() + 1));
      break;
    case 4:
      directive.round = script.number();
      break;
    case 5:
      directive.stop_signal = script.number();
      break;
    case 6:
      directive.exit_code = script.number();
      break;
    case 7:
      directive.reason = absurd_text(script);
      break;
    case 8:
      directive.cause = absurd_failure(script, "n0");
      break;
    case 9:
      directive.failures.push_back(absurd_failure(script, "n0"));
      break;
    case 10:
      place.node_rank = script.number();
      break;
    case 11:
      place.node_count = script.number();
      break;
    case 12:
      place.base_rank = script.number();
      break;
    case 13:
      place.world_size = script.number();
      break;
    case 14:
      place.base_role_rank = script.number();
      break;
    case 15:
      place.role_world_size = script.number();
      break;
    case 16:
      place.restart_count = script.number();
      break;
    case 17:
      place.max_restarts = script.number();
      break;
    case 18:
      place.master_addr = absurd_text(script);
      break;
    case 19:
      place.master_port = static_cast<std::uint16_t>(script.number());
      break;
  }
}

}  // namespace ddp::fuzz
