// SPDX-License-Identifier: BSD-3-Clause
// The ddprun that a launch agent has started on a host (ddprun --on-host). It greets, tells its address, and reads
// from stdin which part of the job it has. It runs that in a child, and passes on output, signals and the exit code:
//
//     sshd ══ stdin, stdout ══ ddprun --on-host ── pipes ── guardian ── keeper ── agent ── workers
//
// on_host_core.hpp decides. The guardian gets SIGTERM or kHeadIsGone from the kernel if this process
// dies.
#pragma once

#include <functional>

#include "launcher/config/launch_config.hpp"
#include "launcher/hosts/wire/messages.hpp"

namespace ddp::launcher {

// Must be called while the process has one thread. `job` is called in the child. There the header's folder and
// variables are set, and stdin is empty. The result of `job` is the child's exit code. Returns this process's exit
// code.
int run_on_host(const std::function<int(const JobHeader&, const ToHead&)>& job);

}  // namespace ddp::launcher
