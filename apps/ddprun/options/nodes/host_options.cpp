// SPDX-License-Identifier: BSD-3-Clause
#include "apps/ddprun/options/nodes/host_options.hpp"

#include <sys/stat.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <sstream>

#include "apps/ddprun/options/usage_error.hpp"
#include "launcher/hosts/launch_line.hpp"
#include "launcher/hosts/passed_variables.hpp"
#include "rendezvous/base/error.hpp"

namespace ddp::apps {
namespace {

using launcher::Host;

std::string content_of(const std::string& path) {
  errno = 0;
  std::ifstream file(path);
  std::ostringstream content;
  if (file && content << file.rdbuf()) return content.str();
  const bool is_empty = file.is_open() && errno == 0;
  throw UsageError("--hostfile " + path + ": " + (is_empty ? "it names no host" : strerror(errno)));
}

std::vector<Host> listed_hosts(const HostOptions& options, const std::optional<std::string>& workers) {
  if (!options.hosts.empty()) {
    std::vector<Host> hosts = launcher::parse_hosts(options.hosts);
    for (const Host& host : hosts) {
      if (!host.slots || !workers) continue;
      throw UsageError("--hosts gives " + host.name + " " + std::to_string(*host.slots) +
                       " workers, and --nproc-per-node says " + *workers + "; leave one of them out");
    }
    return hosts;
  }
  return launcher::parse_hostfile(content_of(options.hostfile), options.hostfile);
}

// What says where the nodes are contradicts a list of hosts.
void refuse_other_places(const NodeOptions& nodes, std::size_t hosts) {
  const auto refuse = [](const std::string& option, const std::string& why) {
    throw UsageError(option + " does not go with a list of hosts, " + why + "; leave it out");
  };
  if (nodes.standalone) refuse("--standalone", "which may have several nodes");
  if (nodes.node_rank) refuse("--node-rank", "since nodes are ranked in the order of the list");
  if (nodes.rdzv_backend != "static") refuse("--rdzv-backend " + nodes.rdzv_backend, "where each host is a node");
  if (!nodes.rdzv_endpoint.empty()) refuse("--rdzv-endpoint", "since nodes meet at the first; --master-addr names it");
  if (nodes.nnodes && *nodes.nnodes != std::to_string(hosts)) {
    refuse("--nnodes " + *nodes.nnodes, "which has " + std::to_string(hosts));
  }
}

// Returns this folder as the shell knows it: through the link that other hosts may have too.
std::string current_folder() {
  const char* const named = getenv("PWD");
  struct stat of_name = {}, here = {};
  if (named && *named == '/' && stat(named, &of_name) == 0 && stat(".", &here) == 0 && of_name.st_dev == here.st_dev &&
      of_name.st_ino == here.st_ino) {
    return named;
  }
  std::error_code error;
  const auto path = std::filesystem::current_path(error);
  if (!error) return path.string();
  throw UsageError("the current folder, in which hosts would run the job: " + error.message());
}

}  // namespace

std::optional<launcher::HeadConfig> resolve_hosts(const HostOptions& options, const NodeOptions& nodes,
                                                  const std::optional<std::string>& workers) {
  const bool has_list = !options.hosts.empty() || !options.hostfile.empty();
  if (!has_list) {
    const bool chooses = !options.include.empty() || !options.exclude.empty();
    if (!chooses && options.exports.empty()) return std::nullopt;
    throw UsageError(
        std::string(chooses ? "--include and --exclude choose" : "-x is for jobs on other hosts, and it takes") +
        (chooses ? " among the hosts of a list; give --hostfile FILE" : " --hosts or --hostfile"));
  }
  if (!options.hosts.empty() && !options.hostfile.empty()) {
    throw UsageError("--hosts and --hostfile contradict each other; give one of them");
  }
  try {
    launcher::HeadConfig head;
    head.hosts = launcher::choose_hosts(listed_hosts(options, workers), options.include, options.exclude);
    refuse_other_places(nodes, head.hosts.size());
    if (workers) {
      for (Host& host : head.hosts) host.slots.reset();
    }
    head.agent = launcher::split_agent(options.launch_agent);
    head.header.variables = launcher::passed_variables(launcher::own_environment(), options.exports);
    head.header.folder = current_folder();
    head.header.place.id = nodes.rdzv_id;
    head.master_addr = nodes.master_addr.value_or("");
    head.master_port = static_cast<std::uint16_t>(nodes.master_port.value_or(0));
    return head;
  } catch (const rendezvous::Error& error) {
    throw UsageError(error.what());
  }
}

void fill_from_head(NodeOptions& nodes, const launcher::HostPlace& place) {
  nodes.nnodes = std::to_string(place.nodes);
  nodes.rdzv_id = place.id;
  nodes.standalone = place.nodes == 1;
  if (place.nodes == 1) return;
  nodes.node_rank = place.node_rank;
  nodes.master_addr = place.master_addr;
  nodes.master_port = place.master_port;
}

}  // namespace ddp::apps
