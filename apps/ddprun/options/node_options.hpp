// SPDX-License-Identifier: BSD-3-Clause
// Resolves the options of the group "Nodes and rendezvous" together: how many nodes there are, which one this is, where
// the coordinator is, and how long to wait.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "launcher/config/launch_config.hpp"

namespace ddp::apps {

// The values as they were given; absent if they were not.
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
  bool shares_store = true;  // TORCH_DISABLE_SHARE_RDZV_TCP_STORE is not 1

  // What no option says but a scheduler does, see fill_from_scheduler().
  std::vector<std::uint16_t> next_ports;  // to be tried in turn where the port is taken
  std::optional<bool> is_host;            // whether the endpoint is on this node
};

// Returns the value of a variable, null if it is not set.
using ReadVariable = std::function<const char*(const char* name)>;

// Fills options that neither the command line nor PET_* gave from what a cluster's scheduler says:
//   Slurm, in a step that srun started with one task for each of several nodes: the number of nodes, the node rank, the
//   first node of the step as master address, and an id and a port that follow from the numbers of job and step
//   Kubernetes, in a pod of an indexed job, if --nnodes was given: the node rank
// Returns a line for the user, empty if nothing was taken.
std::string fill_from_scheduler(NodeOptions& options, const ReadVariable& read);

// Fills the settings of `config` that concern nodes. `log` takes a line about each value that is accepted and has no
// effect, or not the one that the user may expect. Throws UsageError.
void resolve_nodes(const NodeOptions& options, const std::function<void(const std::string&)>& log,
                   launcher::LaunchConfig& config);

}  // namespace ddp::apps
