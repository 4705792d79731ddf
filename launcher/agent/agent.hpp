// SPDX-License-Identifier: BSD-3-Clause
// The agent: one process per node. It wires AgentCore, which decides, to the processes of the round
// (round_processes.hpp), to what the node writes (node_output.hpp) and to the link to the coordinator. On the
// endpoint's node it has the coordinator and the store started beside it (coordination/sidecars.hpp). In a job of one
// node they run in this process, on threads of their own.
//
// Everything here happens on the thread that calls run_agent, in one event loop: signals, SIGCHLD among them, arrive
// through a signalfd, the guardian's death as end of file, directives over the link. Nothing polls but StoreSearch,
// until rank 0 has reached the store.
#pragma once

#include "launcher/config/launch_config.hpp"
#include "launcher/coordination/leave_notice.hpp"
#include "launcher/coordination/sidecars.hpp"
#include "launcher/guardian/guardian.hpp"
#include "launcher/output/log.hpp"

namespace ddp::launcher {

// `sidecars` is null in a job of one node. Runs the job on this node to its end and returns ddprun's exit code. Throws
// rendezvous::Error only before anything is started: a port is taken, or there are no descriptors.
int run_agent(const LaunchConfig& config, const LogSettings& log, const Guarded& guarded, LeaveNotice& leave_notice,
              Sidecars* sidecars);

}  // namespace ddp::launcher
