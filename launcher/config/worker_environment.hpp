// SPDX-License-Identifier: BSD-3-Clause
// The command line and environment of each worker: torchrun's variables (rendezvous/worker_contract.hpp lists them) on
// top of ddprun's own environment. A pure function of its input, so that its whole table is a test.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "launcher/config/launch_config.hpp"
#include "rendezvous/link/messages.hpp"

namespace ddp::launcher {

using Environment = std::map<std::string, std::string>;

// The process's environment as ddprun found it.
Environment inherited_environment();

struct WorkerPlace {
  int local_rank = 0;
  std::string incarnation;  // 16 hex digits
  std::string error_file;
  std::string liveness_word = {};  // empty: none
};

// What is the same for all workers of this node in every round: all that modules see that are imported beforehand
// (warm_parent.hpp). `visible_gpus`: launcher/placement/gpus.hpp. A job's variables of an outer ddprun or torchrun are
// dropped.
Environment node_environment(const LaunchConfig& config, const Environment& inherited,
                             const std::optional<std::string>& visible_gpus);

// That of one worker.
Environment worker_environment(const LaunchConfig& config, const rendezvous::Assignment& assignment,
                               const WorkerPlace& place, const Environment& inherited,
                               const std::optional<std::string>& visible_gpus);

// argv: the program and its arguments, in which $local_rank and ${local_rank} are replaced and $$ becomes $, as
// torchrun does.
std::vector<std::string> worker_command(const LaunchConfig& config, int local_rank);

}  // namespace ddp::launcher
