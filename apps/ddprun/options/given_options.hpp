// SPDX-License-Identifier: BSD-3-Clause
// Declares every option of ddprun, once. GivenOptions holds the values as they were given: converted, but not yet
// checked against each other.
#pragma once

#include <optional>
#include <string>

#include "apps/ddprun/options/declaration.hpp"
#include "apps/ddprun/options/log_options.hpp"
#include "apps/ddprun/options/nodes/host_options.hpp"
#include "apps/ddprun/options/nodes/node_options.hpp"
#include "apps/ddprun/options/page_options.hpp"

namespace ddp::apps {

inline constexpr char kDefaultSignals[] = "SIGTERM,SIGINT,SIGHUP,SIGQUIT";

struct GivenOptions {
  std::optional<std::string> nproc_per_node;
  std::optional<std::string> gpus;
  bool virtual_local_rank = false;
  std::string stdin_reader;
  std::string numa_binding;
  std::string role = "default";

  bool module = false;
  bool no_python = false;
  bool run_path = false;
  std::string preload;
  int preload_timeout = 300;  // PyTorch on a cold network file system takes most of a minute
  std::string gloo = "torch";
  std::string keep_memory;        // shadow, or what a flag's variable may be; empty: not given
  std::string legacy_local_rank;  // dash, underscore; as a variable also 0 and 1; empty: not given
  bool use_env = false;

  LogOptions logs;

  int max_restarts = 0;
  std::string on_failure = "restart";
  std::string restart_window;
  int exclude_after = 0;
  int shutdown_timeout = 30;
  double monitor_interval = 0.004;
  double stacks_timeout = 0.5;
  double hang_timeout = 0;
  std::string on_hang = "tell";
  std::string trace_file;
  PageOptions page;
  std::string signals = kDefaultSignals;

  HostOptions hosts;
  NodeOptions nodes;
  std::string secret = "auto";
  std::string make_secret;
  bool any_user = false;

  std::string log_level = "warning";
  std::string log_format = "text";
  std::string start_method = "spawn";
  std::string print;  // bindings, environment, man, versions; empty: not given
  std::string print_completion;
  bool version = false;
  bool help = false;
};

// Declares the options. `given` holds the defaults; d.parse() fills it, so it must outlive d.
void declare(Declaration& d, GivenOptions& given);

}  // namespace ddp::apps
