// SPDX-License-Identifier: BSD-3-Clause
// Who this process is in its job, as the environment says: read and checked once, before anything is connected.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>

namespace ddp::runtime {

struct WorkerInfo {
  int rank = 0;
  int world_size = 1;
  int local_rank = 0;
  int local_world_size = 1;
  int restart_count = 0;
  std::string master_address;  // empty: no job is described, the process is a world of its own
  std::uint16_t master_port = 0;
  bool agent_hosts_store = false;  // else rank 0 does
};

// Looks up a variable: std::getenv in production.
using Environment = std::function<std::optional<std::string>(const char* name)>;
std::optional<std::string> process_environment(const char* name);

// How much libddp checks and tells, by DDP_DEBUG. Throws rendezvous::Error if it is none of these.
enum class DebugLevel { Off, Info, Detail };
DebugLevel read_debug_level(const Environment& environment);

// Throws rendezvous::Error naming the variable that is missing or wrong.
WorkerInfo read_worker_info(const Environment& environment);

}  // namespace ddp::runtime
