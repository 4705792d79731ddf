// SPDX-License-Identifier: BSD-3-Clause
// Exported functions on the survival of a process whose groups are not libddp's.
#include <algorithm>
#include <chrono>
#include <cstring>
#include <mutex>
#include <optional>
#include <string>

#include "ddp/ddp.h"
#include "rendezvous/base/error.hpp"
#include "runtime/api/arguments.hpp"
#include "runtime/api/c_guard.hpp"
#include "runtime/session/survival.hpp"

namespace {

using ddp::rendezvous::Error;
using ddp::rendezvous::ErrorCode;
using ddp::runtime::guard;
using ddp::runtime::not_null;
using ddp::runtime::Survival;

std::mutex survival_mutex;  // guards the next one
std::optional<Survival> this_process;

// Returns a copy, so that a thread may wait while another one asks. Only await_next_round() changes it.
Survival survival() {
  const std::lock_guard lock(survival_mutex);
  if (this_process) return *this_process;
  throw Error(ErrorCode::InvalidArgument, "this process has not said that it stays in the job (ddp_stay)");
}

void fill_in(ddp_round& to, const ddp::runtime::NextRound& next) {
  const std::size_t size = to.size != 0 ? to.size : sizeof to;
  ddp_round filled = {};
  filled.size = to.size;
  filled.round = next.round;
  filled.rank = next.rank;
  filled.world_size = next.world_size;
  filled.local_rank = next.local_rank;
  filled.local_world_size = next.local_world_size;
  filled.node_rank = next.node_rank;
  filled.node_count = next.node_count;
  filled.restart_count = next.restart_count;
  filled.master_port = next.master_port;
  next.master_addr.copy(filled.master_addr, sizeof filled.master_addr - 1);
  std::memcpy(&to, &filled, std::min(size, sizeof filled));
}

}  // namespace

ddp_status ddp_stay(int32_t stays, int32_t* will) {
  return guard([&] {
    not_null(will, "where to tell whether this process will stay") = 0;
    const std::lock_guard lock(survival_mutex);
    if (stays == 0 && this_process) {
      this_process->forgo();
      this_process.reset();
    } else if (stays != 0) {
      this_process = Survival::of_this_process();
    }
    *will = this_process ? 1 : 0;
  });
}

ddp_status ddp_round_await_end(int64_t timeout_ms, int32_t* is_over) {
  return guard([&] {
    not_null(is_over, "where to tell whether the round is over") = 0;
    const std::optional<std::chrono::milliseconds> given = std::chrono::milliseconds(timeout_ms);
    *is_over = survival().await_end(timeout_ms < 0 ? std::nullopt : given) ? 1 : 0;
  });
}

ddp_status ddp_round_await_next(const char* why, ddp_round* next) {
  return guard([&] {
    ddp_round& to = not_null(next, "the round to fill in");
    Survival waits = survival();
    fill_in(to, waits.await_next_round(&not_null(why, "the reason")));
    const std::lock_guard lock(survival_mutex);
    this_process = waits;
  });
}

ddp_status ddp_round_connections(const char* sockets, int32_t are_others, int32_t* ends_them) {
  return guard([&] {
    not_null(ends_them, "where to tell whether the agent ends them") = 0;
    *ends_them = survival().say_connections(&not_null(sockets, "the list of sockets"), are_others != 0) ? 1 : 0;
  });
}
