// SPDX-License-Identifier: BSD-3-Clause
// The agent: one per node. Drives AgentCore: starts this node's workers, hears of their deaths, reads what they print,
// and keeps the link to the coordinator (which, on the endpoint's node, runs in this process on a thread of its own).
//
// Everything here happens on the thread that calls run_agent, in one event loop: signals (SIGCHLD among them) come
// through a signalfd, the guardian's death as end of file, directives over the link. Nothing polls.
#pragma once

#include "launcher/config/launch_config.hpp"
#include "launcher/output/log.hpp"
#include "launcher/process/guardian.hpp"

namespace ddp::launcher {

// Runs the job on this node to its end; returns ddprun's exit code. Throws rendezvous::Error before anything was
// started (a port that is taken, no descriptors).
int run_agent(const LaunchConfig& config, const LogSettings& log, const Guarded& guarded);

}  // namespace ddp::launcher
