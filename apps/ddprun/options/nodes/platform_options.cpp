// SPDX-License-Identifier: BSD-3-Clause
#include "apps/ddprun/options/nodes/platform_options.hpp"

#include "apps/ddprun/options/usage_error.hpp"
#include "rendezvous/base/error.hpp"
#include "rendezvous/base/text.hpp"

namespace ddp::apps {
namespace {

using launcher::PlatformJob;
using rendezvous::parse_number;

constexpr char kSetAddress[] =
    "set MASTER_ADDR and MASTER_PORT to a name of node rank 0 and a free port there, or give --standalone for this "
    "node "
    "alone";

std::optional<int> most_nodes(const NodeOptions& options) {
  return options.nnodes ? parse_number<int>(options.nnodes->substr(options.nnodes->find(':') + 1)) : std::nullopt;
}

// Writes the platform's words into options that nobody has given.
class Filler {
 public:
  Filler(NodeOptions& options, const PlatformJob& job) : options_(options), job_(job) {}

  FromPlatform fill() {
    const int most = most_nodes(options_).value_or(job_.nodes.value_or(0));
    // A job with more nodes has some outside of what the platform describes, which know another id.
    bool is_all_of_job = !job_.nodes || most <= *job_.nodes;
    if (!options_.nnodes && job_.nodes) {
      options_.nnodes = std::to_string(*job_.nodes);
      add("--nnodes", *options_.nnodes);
      taken_.workers = job_.workers;
    }
    if (options_.rdzv_backend == "static") {
      fill_ranks();
    } else if (options_.rdzv_endpoint.empty() && !meets_elsewhere(options_) && !job_.host.empty()) {
      fill_endpoint();
      is_all_of_job = true;
    }
    if (options_.rdzv_id.empty() && !job_.id.empty() && is_all_of_job) {
      options_.rdzv_id = job_.id;
      add("--rdzv-id", job_.id);
    }
    if (!taken_.options.empty()) taken_.platform = job_.platform;
    return taken_;
  }

 private:
  void add(const std::string& option, const std::string& value) { taken_.options += " " + option + " " + value; }

  std::uint16_t take_ports() {
    options_.next_ports.assign(job_.ports.begin() + 1, job_.ports.end());
    return job_.ports.front();
  }

  void fill_ranks() {
    const bool has_rank = !options_.node_rank && job_.node_rank;
    if (has_rank) {
      refuse_other_count();
      options_.node_rank = job_.node_rank;
      add("--node-rank", std::to_string(*job_.node_rank));
    }
    if (options_.master_addr || !options_.rdzv_endpoint.empty() || job_.host.empty()) return;
    options_.master_addr = job_.host;
    add("--master-addr", job_.host);
    if (!has_rank || job_.ports.empty() || options_.master_port) return;
    options_.master_port = take_ports();
    add("--master-port", std::to_string(*options_.master_port));
  }

  void fill_endpoint() {
    refuse_other_count();
    options_.rdzv_endpoint = job_.host + (job_.ports.empty() ? "" : ":" + std::to_string(take_ports()));
    if (job_.node_rank) options_.is_host = *job_.node_rank == 0;
    add("--rdzv-endpoint", options_.rdzv_endpoint);
  }

  // Ranks and address of the platform belong to its own number of nodes.
  void refuse_other_count() const {
    if (!options_.nnodes || !job_.nodes) return;
    const auto least = parse_number<int>(options_.nnodes->substr(0, options_.nnodes->find(':')));
    const bool is_elastic = options_.nnodes->find(':') != std::string::npos;
    if (!least || *least == *job_.nodes || (is_elastic && *least < *job_.nodes)) return;
    throw UsageError("--nnodes " + *options_.nnodes + ", but " + job_.platform + " says that there are " +
                     std::to_string(*job_.nodes) +
                     " nodes; leave --nnodes out, or give --node-rank and --master-addr too");
  }

  NodeOptions& options_;
  const PlatformJob& job_;
  FromPlatform taken_;
};

// Some operators give pods MASTER_ADDR and leave the rest to the manifest.
void fill_from_master_addr(NodeOptions& options, const launcher::Surroundings& here, FromPlatform& taken) {
  const std::string host = here.variable("MASTER_ADDR"), port = here.variable("MASTER_PORT");
  const bool has_place = options.master_addr || !options.rdzv_endpoint.empty() || meets_elsewhere(options);
  if (host.empty() || has_place || most_nodes(options).value_or(1) < 2 || is_within_worker(here)) return;
  const auto number = parse_number<std::uint16_t>(port);
  if (!port.empty() && !number.value_or(0)) throw UsageError("MASTER_PORT is \"" + port + "\", not a port number");
  const bool is_static = options.rdzv_backend == "static";
  const std::string place = host + (number && !is_static ? ":" + port : "");
  if (is_static) {
    options.master_addr = host;
    if (number && !options.master_port) options.master_port = *number;
  } else {
    options.rdzv_endpoint = place;
  }
  taken.platform += taken.platform.empty() ? "MASTER_ADDR" : " and MASTER_ADDR";
  taken.options += (is_static ? " --master-addr " : " --rdzv-endpoint ") + place +
                   (is_static && number ? " --master-port " + std::to_string(*options.master_port) : "");
}

std::string nowhere_to_meet(const PlatformJob& job) {
  return job.platform + " says that there are " + std::to_string(*job.nodes) + " nodes, and not where they meet; ";
}

// Has the nodes tell each other where node rank 0 is.
void meet_by_starter(NodeOptions& options, const PlatformJob& job, const launcher::Surroundings& here,
                     FromPlatform& taken) {
  launcher::Agreement agreement;
  try {
    agreement = here.agree_by_starter(*job.exchange, *job.node_rank);
  } catch (const rendezvous::Error& error) {
    throw UsageError(nowhere_to_meet(job) + error.what() + "; " + kSetAddress);
  }
  taken.secret = agreement.secret;
  const rendezvous::MeetingPoint& point = agreement.point;
  const std::string port = std::to_string(point.port);
  if (options.rdzv_backend == "static") {
    options.master_addr = point.host;
    taken.options += " --master-addr " + point.host;
    if (!options.master_port) {
      options.master_port = point.port;
      taken.options += " --master-port " + port;
    }
  } else {
    options.rdzv_endpoint =
        (point.host.find(':') == std::string::npos ? point.host : "[" + point.host + "]") + ":" + port;
    options.is_host = *job.node_rank == 0;
    taken.options += " --rdzv-endpoint " + options.rdzv_endpoint;
  }
}

std::optional<PlatformJob> platform_around(const launcher::Surroundings& here) {
  try {
    return find_platform(here);
  } catch (const rendezvous::Error& error) {
    throw UsageError(error.what());
  }
}

}  // namespace

FromPlatform fill_from_platform(NodeOptions& options, const launcher::Surroundings& here) {
  if (options.standalone || options.nnodes == "1") return {};
  FromPlatform taken;
  const auto job = platform_around(here);
  const bool says_count = options.nnodes.has_value();
  if (job) {
    if (!says_count && !job->refusal.empty()) throw UsageError(job->refusal);
    if (!says_count && !job->start_on_all.empty())
      return {.platform = job->platform, .start_on_all = job->start_on_all};
    // A rank of a job whose number of nodes nobody knows means nothing.
    if (says_count || job->nodes) taken = Filler(options, *job).fill();
  }
  fill_from_master_addr(options, here, taken);
  const bool has_place = options.master_addr || !options.rdzv_endpoint.empty() || meets_elsewhere(options);
  if (has_place || !job || !job->nodes) return taken;
  if (job->exchange) {
    meet_by_starter(options, *job, here, taken);
  } else if (!says_count) {
    throw UsageError(nowhere_to_meet(*job) + kSetAddress);
  }
  return taken;
}

}  // namespace ddp::apps
