// SPDX-License-Identifier: BSD-3-Clause
// What this node says when the job is over: why it ended, to the user, to the launcher that started ddprun if one did,
// in torchrun's words if it was called by that name, and in the event log.
#pragma once

#include <map>
#include <string>

#include "launcher/agent/agent_core.hpp"
#include "launcher/agent/node_output.hpp"
#include "launcher/config/launch_config.hpp"

namespace ddp::launcher {

// `error_files` holds, by rank, the error files that workers of the last round left.
void report_job_end(const LaunchConfig& config, const Leave& end, const std::map<int, std::string>& error_files,
                    NodeOutput& out);

}  // namespace ddp::launcher
