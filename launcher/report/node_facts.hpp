// SPDX-License-Identifier: BSD-3-Clause
// What a node is, for a report that somebody else reads: versions, CPUs and memory, and the environment without its
// secrets.
#pragma once

#include <string>
#include <vector>

#include "launcher/config/launch_config.hpp"
#include "rendezvous/wire/json_text.hpp"

namespace ddp::launcher {

// Returns whether the name of a variable or of an option says that its value is a secret: API_KEY, --hf-token, ...
bool is_secret_name(const std::string& name);

// Returns "NAME=value" as it may be shown: the value of a secret is "(not shown)", as are the values of secret options
// in a command line and what stands before the @ of a URL. Values are cut after 1,000 bytes.
std::string shown_variable(const std::string& variable);

// Returns {"ddprun": "0.9", "kernel": ..., "cpus": 2, ..., "program": ..., "environment": ["HOME=/home/me", ...]} of
// this process. `host` is the node's name. The program's command line has no values of options that are secrets.
rendezvous::JsonObject node_facts(const LaunchConfig& config, const std::string& host);

}  // namespace ddp::launcher
