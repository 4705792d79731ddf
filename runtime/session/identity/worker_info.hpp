// SPDX-License-Identifier: BSD-3-Clause
// This process's rank and world, and where the job's ranks meet: read and checked once, before anything is connected.
#pragma once

#include <optional>
#include <string>

#include "runtime/base/environment.hpp"
#include "runtime/session/identity/rendezvous_point.hpp"

namespace ddp::runtime {

struct WorkerInfo {
  int rank = 0;
  int world_size = 1;
  int local_rank = 0;
  int local_world_size = 1;
  int restart_count = 0;
  bool is_first_session = false;  // the process counts it as its first one: it has stayed in its job
  std::string session_name;       // empty: sessions are counted
  RendezvousPoint place;
};

// What the program passes itself. It takes precedence over init_method, which takes precedence over the environment.
struct InitArguments {
  std::string init_method;  // empty: env://
  std::optional<int> rank;
  std::optional<int> world_size;
  std::optional<int> local_rank;
  std::optional<int> local_world_size;
  const rendezvous::Store* store = nullptr;  // where the ranks meet, instead of init_method
  std::string session_name = {};
};

// Throws rendezvous::Error naming the argument or variable that is missing or wrong.
WorkerInfo read_worker_info(const InitArguments& arguments, const Environment& environment);
// Returns the rank, or 0 if the job's description is missing or wrong: joining the job reports what is wrong with it.
int rank_or_zero(const Environment& environment) noexcept;

}  // namespace ddp::runtime
