// SPDX-License-Identifier: BSD-3-Clause
// The ddprun that a launch agent has started on a host (ddprun --on-host). It greets, tells its address, reads its part
// of the job from stdin, runs it in a child, and passes on output, signals and the exit code:
//
//     sshd ══ stdin, stdout ══ ddprun --on-host ── pipes ── guardian ── keeper ── agent ── workers
//
// on_host_core.hpp decides. The guardian gets SIGTERM from the kernel if this process dies.
#pragma once

#include <functional>

#include "launcher/hosts/job_header.hpp"

namespace ddp::launcher {

// Must be called while the process has one thread. `job` is called in the child, in the folder and with the variables
// of the header, and with stdin at its end; its result is the child's exit code. Returns the exit code of this process.
int run_on_host(const std::function<int(const JobHeader&)>& job);

}  // namespace ddp::launcher
