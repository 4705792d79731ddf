// SPDX-License-Identifier: BSD-3-Clause
// A job's end in torchrun's words, for whoever called ddprun by that name and looks for them in its stderr. Lines and
// columns are those of torch 2.15's ChildFailedError; what they say is ours: the first failure of the whole job is the
// root cause, on every node. Text only.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "launcher/config/program.hpp"
#include "rendezvous/link/messages.hpp"

namespace ddp::launcher {

// A worker failed. error_files: by rank; who is not in it has none.
std::string torchrun_summary(const Program& program, const rendezvous::WorkerFailure& cause,
                             const std::vector<rendezvous::WorkerFailure>& all,
                             const std::map<int, std::string>& error_files);

// The job was ended by a signal to the process `pid`.
std::string torchrun_signal_summary(int pid, int signal);

}  // namespace ddp::launcher
