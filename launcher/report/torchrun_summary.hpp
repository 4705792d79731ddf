// SPDX-License-Identifier: BSD-3-Clause
// A job's end in torchrun's format, for scripts that call ddprun by that name and search its stderr. Lines and columns
// are those of torch 2.15's ChildFailedError. The content is ddprun's: the first failure of the whole job is the root
// cause, on every node. Text only.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "launcher/config/program.hpp"
#include "rendezvous/link/messages.hpp"

namespace ddp::launcher {

// Returns the summary of a job in which a worker failed. `error_files` holds the error files that were written, by
// rank.
std::string torchrun_summary(const Program& program, const rendezvous::WorkerFailure& cause,
                             const std::vector<rendezvous::WorkerFailure>& all,
                             const std::map<int, std::string>& error_files);

// Returns the summary of a job that was ended by a signal to the process `pid`.
std::string torchrun_signal_summary(int pid, int signal);

}  // namespace ddp::launcher
