// SPDX-License-Identifier: BSD-3-Clause
// Fills in what a platform says about the nodes of a job where neither the command line nor PET_* does. What the user
// gives always counts.
#pragma once

#include <string>
#include <vector>

#include "apps/ddprun/options/nodes/node_options.hpp"
#include "launcher/platform/platform.hpp"

namespace ddp::apps {

struct FromPlatform {
  std::string platform = {};                      // whose words were taken; empty: nobody's
  std::string options = {};                       // the options that mean the same: " --nnodes 2 --node-rank 1"
  std::optional<rendezvous::Secret> secret = {};  // which all nodes have that one mpirun has started
  std::optional<int> workers = {};                // GPUs of this node; only where --nnodes was taken too
  std::vector<std::string> start_on_all = {};     // not empty: ddprun must be started on all nodes by this command
};

// Throws UsageError if the platform has started several ddprun that nothing makes one job, if it does not say where the
// nodes meet, or if --nnodes contradicts it.
FromPlatform fill_from_platform(NodeOptions& options, const launcher::Surroundings& here);

}  // namespace ddp::apps
