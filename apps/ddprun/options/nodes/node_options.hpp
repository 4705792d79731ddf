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
  std::string topology;
  bool shares_store = true;  // TORCH_DISABLE_SHARE_RDZV_TCP_STORE is not 1

  // What no option says but a platform does, see fill_from_platform().
  std::vector<std::uint16_t> next_ports;  // to be tried in turn where the port is taken
  std::optional<bool> is_host;            // whether the endpoint is on this node
};

// Whether nodes meet in a file or in etcd, and not at the address of one of them.
bool meets_elsewhere(const NodeOptions& options);

// Returns the time after which a silent node counts as lost, as --rdzv-conf says. Throws UsageError.
std::chrono::milliseconds lost_after(const NodeOptions& options);

// Fills the settings of `config` that concern nodes. `log` takes a line about each value that is accepted and has no
// effect, or not the one that the user may expect. Throws UsageError.
void resolve_nodes(const NodeOptions& options, const std::function<void(const std::string&)>& log,
                   launcher::LaunchConfig& config);

}  // namespace ddp::apps
