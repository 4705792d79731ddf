// SPDX-License-Identifier: BSD-3-Clause
// What the options of the group "Nodes and rendezvous" mean together: how many nodes, which one this is, where the
// coordinator is looked for, how long one waits for whom.
#pragma once

#include <functional>
#include <optional>
#include <string>

#include "launcher/config/launch_config.hpp"

namespace ddp::apps {

// As they were given; absent: not at all.
struct NodeOptions {
  std::optional<std::string> nnodes;
  std::optional<int> node_rank;
  std::optional<std::string> master_addr;
  std::optional<int> master_port;
  bool standalone = false;
  std::string rdzv_backend = "static";
  std::string rdzv_endpoint;
  std::string rdzv_id;
  std::string rdzv_conf;
  std::string local_addr;
};

// Of a variable's name its value, null if it is not set.
using ReadVariable = std::function<const char*(const char* name)>;

// What a cluster's scheduler says where neither options nor PET_* did:
//   Slurm, in a step that srun started with one task for each of several nodes: nnodes, node rank, and as master
//   address the first node of the step
//   Kubernetes, in a pod of an indexed job, once --nnodes was given: the node rank
// Returns one line for the user, empty if nothing was taken.
std::string fill_from_scheduler(NodeOptions& options, const ReadVariable& read);

// Fills what `config` holds of nodes. log: for what is accepted and has no effect. Throws UsageError.
void resolve_nodes(const NodeOptions& options, const std::function<void(const std::string&)>& log,
                   launcher::LaunchConfig& config);

}  // namespace ddp::apps
