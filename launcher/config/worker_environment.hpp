// SPDX-License-Identifier: BSD-3-Clause
// The command line and environment of each worker: torchrun's variables (rendezvous/worker_contract.hpp lists them) on
// top of ddprun's own environment. Pure functions, so that a test covers the whole table.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "launcher/config/launch_config.hpp"
#include "launcher/placement/gpus.hpp"
#include "rendezvous/link/messages.hpp"

namespace ddp::launcher {

using Environment = std::map<std::string, std::string>;

// Returns this process's environment.
Environment inherited_environment();

// Returns the GPUs that the workers get. Throws rendezvous::Error if they are too few for --virtual-local-rank.
VisibleGpus gpus_of_workers(const LaunchConfig& config);
// Returns what the user learns if workers share GPUs; empty: none do.
std::string shared_gpus(const LaunchConfig& config, const VisibleGpus& gpus);

struct WorkerPlace {
  int local_rank = 0;
  std::string incarnation;  // 16 hex digits
  std::string error_file;
  std::string liveness_word = {};  // empty: none
  std::string agent_socket = {};   // empty: none
};

// Returns the part of the environment that is the same for all workers of this node in every round; modules that a warm
// parent imports (warm_parent.hpp) see only this part. The
// variables of an outer job, of ddprun or torchrun, are dropped.
Environment node_environment(const LaunchConfig& config, const Environment& inherited, const VisibleGpus& gpus);

// Returns the environment of one worker.
Environment worker_environment(const LaunchConfig& config, const rendezvous::Assignment& assignment,
                               const WorkerPlace& place, const Environment& inherited, const VisibleGpus& gpus);

// Returns argv: the program and its arguments, in which $local_rank and ${local_rank} are replaced and $$ becomes $, as
// torchrun does.
std::vector<std::string> worker_command(const LaunchConfig& config, int local_rank);

}  // namespace ddp::launcher
