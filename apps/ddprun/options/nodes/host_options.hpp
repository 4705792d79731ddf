// SPDX-License-Identifier: BSD-3-Clause
// Resolves the options of the group "Many hosts": on which hosts ddprun starts the job, and how. And, on such a host,
// puts its place in the job where the options for nodes would be.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "apps/ddprun/options/nodes/node_options.hpp"
#include "launcher/hosts/head.hpp"

namespace ddp::apps {

// The values as they were given.
struct HostOptions {
  std::string hosts;
  std::string hostfile;
  std::string include;
  std::string exclude;
  std::vector<std::string> exports;
  std::string launch_agent = "ssh";
};

// Returns the hosts of the job, how they are started, and the variables that they get; nothing if the job is to run
// without a list of hosts. `workers` is --nproc-per-node, which counts before the slots of a hostfile. Throws
// UsageError.
std::optional<launcher::HeadConfig> resolve_hosts(const HostOptions& options, const NodeOptions& nodes,
                                                  const std::optional<std::string>& workers);

// Fills in the place that the head has given to this host.
void fill_from_head(NodeOptions& nodes, const launcher::HostPlace& place);

}  // namespace ddp::apps
