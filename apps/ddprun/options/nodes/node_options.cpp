// SPDX-License-Identifier: BSD-3-Clause
#include "apps/ddprun/options/nodes/node_options.hpp"

#include <algorithm>
#include <cctype>
#include <cstring>
#include <map>
#include <sstream>

#include "apps/ddprun/options/nodes/etcd_options.hpp"
#include "apps/ddprun/options/usage_error.hpp"
#include "launcher/platform/topology_file.hpp"
#include "launcher/text/lower_case.hpp"
#include "rendezvous/base/random_id.hpp"
#include "rendezvous/base/text.hpp"
#include "rendezvous/link/printable.hpp"
#include "rendezvous/net/addresses/own_address.hpp"

namespace ddp::apps {

namespace {

using rendezvous::parse_number;
using std::chrono::milliseconds;

constexpr std::uint16_t kStaticPort = 29500;  // as in torchrun
constexpr std::uint16_t kC10dPort = 29400;    // as in torchrun
constexpr int kMaxNodes = 100'000;
constexpr double kMaxSeconds = 1e9;

// ---- Endpoints ----

struct Endpoint {
  std::string host;
  std::optional<std::uint16_t> port;
};

std::string without_brackets(const std::string& host) {
  const bool has = host.size() > 1 && host.front() == '[' && host.back() == ']';
  return has ? host.substr(1, host.size() - 2) : host;
}

// Parses "host", "host:port", "[v6]" or "[v6]:port".
Endpoint parse_endpoint(const std::string& given) {
  const std::string text(rendezvous::trimmed(given));
  const std::string wrong =
      "--rdzv-endpoint " + text + ": give HOST or HOST:PORT, with brackets around an IPv6 address";
  std::string host = text, port;
  if (text[0] == '[') {
    const auto end = text.find(']');
    if (end == std::string::npos) throw UsageError(wrong);
    host = text.substr(1, end - 1);
    port = text.substr(end + 1);
    if (!port.empty() && port[0] != ':') throw UsageError(wrong);
  } else if (const auto colon = text.rfind(':'); colon != std::string::npos) {
    host = text.substr(0, colon);
    port = text.substr(colon);
    if (host.find(':') != std::string::npos) throw UsageError(wrong);
  }
  Endpoint endpoint{host, std::nullopt};
  if (!port.empty()) {
    const auto number = parse_number<int>(port.substr(1));
    if (!number || *number < 0 || *number > 65535) throw UsageError(wrong);
    endpoint.port = static_cast<std::uint16_t>(*number);
  }
  const bool is_host = std::all_of(host.begin(), host.end(), [](unsigned char c) {
    return std::isalnum(c) || c >= 0x80 || std::strchr("._-:%", c);
  });
  if (host.empty() || !is_host) throw UsageError(wrong);
  return endpoint;
}

constexpr char kLoopback[] = "127.0.0.1";

// ---- --rdzv-conf ----

double seconds_of(const std::string& key, const std::string& value, double low) {
  const auto seconds = parse_number<double>(value);
  if (seconds && *seconds >= low && *seconds <= kMaxSeconds) return *seconds;
  throw UsageError("--rdzv-conf " + key + "=" + value + ": give a number of seconds" +
                   (low > 0 ? " above 0" : ", 0 or more"));
}

milliseconds duration_of(const std::string& key, const std::string& value, double low = 0) {
  return milliseconds(static_cast<std::int64_t>(seconds_of(key, value, low) * 1000));
}

bool word_of(const std::string& key, const std::string& value) {
  const std::string word = launcher::lower_case(value);
  for (const char* yes : {"1", "true", "t", "yes", "y"}) {
    if (word == yes) return true;
  }
  for (const char* no : {"0", "false", "f", "no", "n"}) {
    if (word == no) return false;
  }
  throw UsageError("--rdzv-conf " + key + "=" + value + ": give true or false");
}

// Checks keys of torchrun that have no effect here, since nothing polls a store and the end of a job is pushed to all
// nodes. Values that torchrun would refuse are refused too.
void check_without_effect(const std::string& key, const std::string& value,
                          const std::function<void(const std::string&)>& log) {
  if (key == "close_timeout" || key == "heartbeat_timeout" || key == "read_timeout") {
    seconds_of(key, value, 1e-3);
  } else if (key == "cas_backoff_max_seconds") {
    seconds_of(key, value, 0);
  } else if (key != "store_type" && key != "use_libuv") {
    log("--rdzv-conf: '" + key + "' is not known here and has no effect");
  }
}

KeyValues parse_conf(const std::string& given) {
  std::string text(rendezvous::trimmed(given));
  // Strip quotes that a shell script has passed on.
  if (text.size() > 1 && (text[0] == '\'' || text[0] == '"') && text.back() == text[0]) {
    text = text.substr(1, text.size() - 2);
  }
  KeyValues conf;
  std::istringstream list(text);
  for (std::string entry; std::getline(list, entry, ',');) {
    const auto equals = entry.find('=');
    const std::string key(rendezvous::trimmed(entry.substr(0, equals)));
    const std::string value(equals == std::string::npos ? "" : rendezvous::trimmed(entry.substr(equals + 1)));
    if (key.empty() || value.empty()) {
      throw UsageError("--rdzv-conf " + text + ": '" + entry + "' is not KEY=VALUE");
    }
    conf[key] = value;
  }
  return conf;
}

std::string store_type(const KeyValues& conf) {
  const auto type = conf.find("store_type");
  if (type == conf.end()) return "tcp";
  if (type->second == "tcp" || type->second == "file") return type->second;
  throw UsageError("--rdzv-conf store_type=" + type->second + ": give tcp or file");
}

void resolve_conf(const KeyValues& conf, const std::function<void(const std::string&)>& log,
                  launcher::LaunchConfig& config) {
  double interval = 5, attempts = 3;
  for (const auto& [key, value] : conf) {
    if (is_etcd_option(key)) {
      if (!config.etcd) log("--rdzv-conf " + key + " has no effect: this job does not use etcd");
    } else if (key == "join_timeout" || (key == "timeout" && (config.job.node_ranks_given || config.etcd))) {
      config.timeouts.join = duration_of(key, value);
    } else if (key == "last_call_timeout") {
      config.timeouts.last_call = duration_of(key, value);
    } else if (key == "keep_alive_interval") {
      interval = seconds_of(key, value, 1e-3);
    } else if (key == "keep_alive_max_attempt") {
      attempts = seconds_of(key, value, 1);
    } else if (key == "is_host") {
      config.is_host = word_of(key, value);
      if (!config.meeting_file.empty()) log("--rdzv-conf is_host has no effect with store_type=file");
      if (config.etcd) log("--rdzv-conf is_host has no effect with --rdzv-backend etcd");
    } else if (key == "rank") {
      const auto rank = parse_number<int>(value);
      if (!rank) throw UsageError("--rdzv-conf rank=" + value + ": give this node's rank");
      config.node_rank = *rank;
    } else if (key == "timeout") {
      log("--rdzv-conf timeout has no effect with --rdzv-backend c10d; join_timeout sets how long to wait for nodes");
    } else {
      check_without_effect(key, value, log);
    }
  }
  config.timeouts.lost = milliseconds(static_cast<std::int64_t>(std::min(interval * attempts, kMaxSeconds) * 1000));
  if (config.timeouts.lost < milliseconds(300)) {
    throw UsageError("--rdzv-conf keep_alive_interval * keep_alive_max_attempt is " +
                     std::to_string(config.timeouts.lost.count()) +
                     " ms: too short to tell a lost node from a busy one; give 1 s or more");
  }
}

// ---- How many nodes ----

void resolve_count(const std::string& given, rendezvous::JobShape& job) {
  const std::string nnodes(rendezvous::trimmed(given));
  const auto colon = nnodes.find(':');
  const int min = parse_number<int>(nnodes.substr(0, colon)).value_or(0);
  const int max = colon == std::string::npos ? min : parse_number<int>(nnodes.substr(colon + 1)).value_or(0);
  if (min < 1 || max < min || max > kMaxNodes) {
    throw UsageError("--nnodes " + nnodes + ": give a number of nodes, or MIN:MAX with 0 < MIN <= MAX");
  }
  job.min_nodes = min;
  job.max_nodes = max;
}

bool is_etcd(const NodeOptions& options) { return options.rdzv_backend == "etcd" || options.rdzv_backend == "etcd-v2"; }

// Returns whether nothing says where nodes meet, so that torchrun, too, takes any free port of this machine.
bool is_standalone(const NodeOptions& options) {
  return options.standalone ||
         (options.rdzv_backend == "static" && options.rdzv_endpoint.empty() && !options.master_port);
}

void resolve_one_node(const NodeOptions& options, const KeyValues& conf,
                      const std::function<void(const std::string&)>& log, launcher::LaunchConfig& config) {
  if (options.node_rank.value_or(0) != 0) {
    throw UsageError("--node-rank " + std::to_string(*options.node_rank) +
                     ": with one node it can only be 0; --nnodes says how many there are");
  }
  config.store_addresses = {kLoopback, "::1"};
  if (options.standalone) return;
  // Nobody else comes to the endpoint of c10d, but it must mean something. With a file it is a path, with etcd unused.
  std::string from = "--master-addr ";
  Endpoint master{options.master_addr.value_or(kLoopback), static_cast<std::uint16_t>(options.master_port.value_or(0))};
  if (!options.rdzv_endpoint.empty() && store_type(conf) != "file" && !is_etcd(options)) {
    const Endpoint endpoint = parse_endpoint(options.rdzv_endpoint);
    if (options.rdzv_backend == "static") {
      master = endpoint;
      from = "--rdzv-endpoint ";
    }
  }
  config.master_addr = without_brackets(master.host);
  config.master_port = master.port.value_or(0);
  // Operators of clusters set an address for one node too, whose name may not be known yet.
  const rendezvous::NamedHost host(config.master_addr, log);
  const std::vector<std::string> own = rendezvous::own_addresses_of(host);
  if (own.empty()) {
    const std::string& why = host.why_none();
    log(from + config.master_addr + ": " + (why.empty() ? "not an address of this machine" : why) +
        "; workers get MASTER_ADDR=" + kLoopback + ", since with one node they need no other");
    config.master_addr = kLoopback;
  }
  for (const std::string& address : own) {
    auto& all = config.store_addresses;
    if (std::find(all.begin(), all.end(), address) == all.end()) all.push_back(address);
  }
}

void resolve_static(const NodeOptions& options, launcher::LaunchConfig& config) {
  config.job.min_nodes = config.job.max_nodes;  // as in torchrun: exactly MAX nodes
  config.job.node_ranks_given = true;
  config.node_rank = options.node_rank.value_or(0);
  Endpoint master{options.master_addr.value_or(kLoopback), std::nullopt};
  config.endpoint_from = options.master_addr ? "--master-addr" : "the default without --master-addr";
  if (options.master_port) master.port = static_cast<std::uint16_t>(*options.master_port);
  if (!options.rdzv_endpoint.empty()) {
    master = parse_endpoint(options.rdzv_endpoint);
    config.endpoint_from = "--rdzv-endpoint";
  }
  config.master_addr = without_brackets(master.host);
  config.master_port = master.port.value_or(kStaticPort);
  config.next_ports = options.next_ports;
}

bool meets_in_file(const NodeOptions& options) {
  return options.rdzv_backend == "c10d" && store_type(parse_conf(options.rdzv_conf)) == "file";
}

void resolve_etcd(const NodeOptions& options, const KeyValues& conf, launcher::LaunchConfig& config) {
  config.wanted_rank = options.node_rank.value_or(-1);
  config.master_addr.clear();
  config.etcd = resolve_etcd_options(options.rdzv_backend, options.rdzv_endpoint, conf);
  if (!options.rdzv_id.empty()) return;
  throw UsageError("--rdzv-backend " + options.rdzv_backend +
                   ": give --rdzv-id, since other jobs may use the same etcd; the nodes of one job have the same id");
}

void resolve_c10d(const NodeOptions& options, launcher::LaunchConfig& config) {
  config.wanted_rank = options.node_rank.value_or(-1);
  if (meets_in_file(options)) {
    if (options.rdzv_endpoint.empty()) {
      throw UsageError(
          "--rdzv-conf store_type=file: give the path of a file in a folder that all nodes share as --rdzv-endpoint");
    }
    config.meeting_file = options.rdzv_endpoint;
    config.master_addr.clear();
    return;
  }
  const Endpoint endpoint = parse_endpoint(options.rdzv_endpoint.empty() ? "localhost" : options.rdzv_endpoint);
  config.endpoint_from = options.rdzv_endpoint.empty() ? "the default without --rdzv-endpoint" : "--rdzv-endpoint";
  config.master_addr = endpoint.host;
  config.master_port = endpoint.port.value_or(kC10dPort);
  config.next_ports = options.next_ports;
  config.is_host = options.is_host;
}

}  // namespace

milliseconds lost_after(const NodeOptions& options) {
  launcher::LaunchConfig config;
  resolve_conf(
      parse_conf(options.rdzv_conf), [](const std::string&) {}, config);
  return config.timeouts.lost;
}

bool meets_elsewhere(const NodeOptions& options) { return is_etcd(options) || meets_in_file(options); }

void resolve_nodes(const NodeOptions& options, const std::function<void(const std::string&)>& log,
                   launcher::LaunchConfig& config) {
  resolve_count(options.nnodes.value_or("1"), config.job);
  if (options.rdzv_backend != "static" && options.rdzv_backend != "c10d" && !is_etcd(options)) {
    throw UsageError("--rdzv-backend " + options.rdzv_backend + ": give static, c10d or etcd");
  }
  const KeyValues conf = parse_conf(options.rdzv_conf);
  if (store_type(conf) == "file" && options.rdzv_backend != "c10d" && config.job.max_nodes > 1) {
    log("--rdzv-conf store_type=file has no effect with --rdzv-backend " + options.rdzv_backend);
  }
  // Where nodes meet, which depends on their number and the backend.
  const bool one = config.job.max_nodes == 1;
  if (!one && options.standalone) {
    throw UsageError("--standalone is for one node, but --nnodes is " + *options.nnodes + "; leave one of them out");
  }
  if (one) {
    resolve_one_node(options, conf, log, config);
  } else if (options.rdzv_backend == "static") {
    resolve_static(options, config);
  } else if (is_etcd(options)) {
    resolve_etcd(options, conf, config);
  } else {
    resolve_c10d(options, config);
  }
  if (!options.topology.empty()) {
    if (one || config.job.node_ranks_given) {
      throw UsageError("--topology orders the nodes of a job of several with --rdzv-backend c10d or etcd; " +
                       std::string(one ? "this one has one node" : "here --node-rank says what the order is"));
    }
    config.host_places = launcher::read_host_places(options.topology);
  }
  resolve_conf(conf, log, config);
  config.local_addr = without_brackets(options.local_addr);
  if (rendezvous::printable_line(options.rdzv_id) != options.rdzv_id) {
    throw UsageError("--rdzv-id " + options.rdzv_id +
                     ": some bytes of this id are no printable UTF-8 text; leave them out");
  }
  // As with torchrun, except that it drops an id that is given to a job without an endpoint.
  const bool is_alone = one && is_standalone(options);
  config.job.id = !options.rdzv_id.empty() ? options.rdzv_id : is_alone ? rendezvous::random_id() : "none";
  // A static job's store is at the port that was given, so torchrun never has another one for workers.
  config.workers_share_store = options.shares_store || (options.rdzv_backend == "static" && !is_alone);
  // What only several nodes need.
  if (one) return;
  // Without an address the others may use any of this node's.
  const bool has_address =
      !config.etcd && (options.master_addr || (!options.rdzv_endpoint.empty() && config.meeting_file.empty()));
  config.store_addresses = has_address ? std::vector<std::string>() : std::vector<std::string>{"0.0.0.0", "::"};
  if (config.master_port == 0 && !meets_elsewhere(options)) {
    throw UsageError(
        "other nodes cannot find a free port (0); give a port number with --master-port or --rdzv-endpoint");
  }
  if (config.job.node_ranks_given && (config.node_rank < 0 || config.node_rank >= config.job.max_nodes)) {
    throw UsageError("--node-rank " + std::to_string(config.node_rank) + " with --nnodes " +
                     std::to_string(config.job.max_nodes) + ": give 0 to " + std::to_string(config.job.max_nodes - 1));
  }
}

}  // namespace ddp::apps
