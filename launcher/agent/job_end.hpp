// SPDX-License-Identifier: BSD-3-Clause
// What this node says when the job is over: why it ended, to the user, to the launcher that started ddprun if one did,
// in torchrun's words if it was called by that name, in the report file and in the event log.
#pragma once

#include <vector>

#include "launcher/agent/agent_core.hpp"
#include "launcher/agent/node_output.hpp"
#include "launcher/config/launch_config.hpp"
#include "launcher/diagnosis/stacks/stack.hpp"
#include "launcher/report/failure_report.hpp"
#include "launcher/report/issue_report.hpp"

namespace ddp::launcher {

// `stacks` were taken of workers before they were stopped; empty: none were. `node` goes into the report that a failure
// leaves in the log folder.
void report_job_end(const LaunchConfig& config, const Leave& leave, const LastRound& last_round,
                    const std::vector<WorkerStacks>& stacks, IssueReport::Node node, NodeOutput& out);

}  // namespace ddp::launcher
