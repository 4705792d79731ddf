// SPDX-License-Identifier: BSD-3-Clause
// Who this process is in its job, and where the job's ranks meet: read and checked once, before anything is connected.
#pragma once

#include <optional>
#include <string>

#include "runtime/base/environment.hpp"
#include "runtime/session/rendezvous_point.hpp"

namespace ddp::runtime {

struct WorkerInfo {
  int rank = 0;
  int world_size = 1;
  int local_rank = 0;
  int local_world_size = 1;
  int restart_count = 0;
  RendezvousPoint place;
};

// What the program says itself; it counts more than what init_method says, and that more than the environment.
struct InitArguments {
  std::string init_method;  // empty: env://
  std::optional<int> rank;
  std::optional<int> world_size;
  std::optional<int> local_rank;
  std::optional<int> local_world_size;
};

// Throws rendezvous::Error naming the argument or variable that is missing or wrong.
WorkerInfo read_worker_info(const InitArguments& arguments, const Environment& environment);
// For those who only ask who speaks: what is wrong with a job's description is told to who joins it.
int rank_or_zero(const Environment& environment) noexcept;

}  // namespace ddp::runtime
