// SPDX-License-Identifier: BSD-3-Clause
// A job's end in torchrun's format, for scripts that call ddprun by that name and search its stderr. Lines and columns
// are those of torch 2.15's ChildFailedError. The content is ddprun's: the first failure of the whole job is the root
// cause, on every node. Text only.
#pragma once

#include <string>

#include "launcher/report/failure_report.hpp"

namespace ddp::launcher {

// Returns the summary of a job in which a worker failed; `binary` is what was executed.
std::string torchrun_summary(const JobEnd& end, const std::string& binary);

// Returns the summary of a job that was ended by a signal to the process `pid`.
std::string torchrun_signal_summary(int pid, int signal);

}  // namespace ddp::launcher
